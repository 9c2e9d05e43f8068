"""Runs the groups: each is kept by one partition of `__consumer_offsets`, and by its machine.

A decision is appended and replayed at once, so that the next one sees it; nothing suspends in
between. Who has to wait for others (JoinGroup, SyncGroup) waits for the bell of the group and asks
again. Deadlines are the machines'; here they become timers.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.topic_creation import TopicCreation
from ottla.environment.clock import Clock
from ottla.machines.decision import Decision
from ottla.machines.groups.calls import Moment, NotYet
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.settings import GroupSettings
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.replication.partition import Partition
from ottla.storage.admission import Origin
from ottla.storage.log import PartitionLog
from ottla.wire.coordinator_records.codec import CONSUMER_OFFSETS, RecordCodec
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.wire.records.batch import batches
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.record import Record, records_of

T = TypeVar("T")
_CODEC: Final = RecordCodec(CONSUMER_OFFSETS)
_WAIT_MS: Final = 600_000
_READ_BYTES: Final = 1 << 20
_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


class GroupCoordinator:
    """Finds the machine of a group, lets it decide, and writes down what it decided."""

    def __init__(
        self,
        partitions: Partitions,
        creation: TopicCreation,
        bells: Bells,
        clock: Clock,
        settings: GroupSettings,
        partition_count: int,
    ) -> None:
        self._partitions = partitions
        self._creation = creation
        self._bells = bells
        self._clock = clock
        self._settings = settings
        self._new_partition_count = partition_count
        self._partition_count = 0
        self._machines: dict[int, GroupMachine] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def moment(self) -> Moment:
        """Return now, on both clocks."""
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    def open_if_there(self) -> None:
        """Look after the groups that were remembered when the broker stopped."""
        topic = self._creation.store.image.topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is not None:
            self._partition_count = len(topic.partitions)

    async def open(self) -> None:
        """Be ready for groups: the first who looks for their coordinator has the topic made."""
        if self._partition_count:
            return
        wanted = CreatableTopic(
            name=CONSUMER_OFFSETS_TOPIC,
            num_partitions=self._new_partition_count,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
        )
        (result,) = await self._creation.create([wanted])
        if result.error_code not in _THERE:
            raise ApiError(ErrorCode(result.error_code), result.error_message or "")
        self.open_if_there()

    def execute(
        self, group_id: str, decide: Callable[[GroupMachine], Decision[GroupRecord, T]]
    ) -> T:
        """Let the machine of a group decide, and make it so. ApiError if that cannot be written."""
        return self._execute(self._index_of(group_id), decide)

    async def execute_waiting(
        self,
        group_id: str,
        decide: Callable[[GroupMachine], Decision[GroupRecord, "T | NotYet"]],
        ask_again: Callable[[GroupMachine, NotYet], Decision[GroupRecord, "T | NotYet"]],
    ) -> T:
        """Do the same for a request that may have to wait for other members."""
        answer = self.execute(group_id, decide)
        while isinstance(answer, NotYet):
            deadline_ms = self._clock.monotonic_ms() + _WAIT_MS
            await self._bells.wait_any([_bell(group_id)], deadline_ms)
            if self._bells.is_closed:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker stops")
            answer = self.execute(group_id, _asking_again(ask_again, answer))
        return answer

    def execute_on_all(self, decide: Callable[[GroupMachine], Decision[GroupRecord, T]]) -> list[T]:
        """Let the machine of every partition decide."""
        return [self._execute(index, decide) for index in range(self._partition_count)]

    def stop(self) -> None:
        """Let no deadline come any more."""
        for timer in self._timers.values():
            timer.cancel()

    def _execute(self, index: int, decide: Callable[[GroupMachine], Decision[GroupRecord, T]]) -> T:
        machine = self._machine(index)
        decision = decide(machine)
        if decision.records:
            self._append(index, decision.records)
            for record in decision.records:
                machine.replay(record.key, record.value)
        for group_id in machine.take_rung():
            self._bells.ring(_bell(group_id))
        self._arm(index, machine)
        return decision.response

    def _append(self, index: int, records: tuple[GroupRecord, ...]) -> None:
        now_ms = self._clock.now_ms()
        builder = BatchBuilder()
        for key, value, version in records:
            encoded = None if value is None else _CODEC.encode_value(value, version)
            builder.append(now_ms, _CODEC.encode_key(key), encoded)
        batch = memoryview(builder.build())
        self._partition(index).append_as_leader(batch, now_ms, origin=Origin.COORDINATOR)

    def _partition(self, index: int) -> Partition:
        return self._partitions.get(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))

    def _machine(self, index: int) -> GroupMachine:
        """Return the machine of a partition, having replayed its log if it is asked for first."""
        machine = self._machines.get(index)
        if machine is None:
            machine = GroupMachine(self._settings)
            _replay(machine, self._partition(index))
            machine.start(self.moment())
            self._machines[index] = machine
        return machine

    def _arm(self, index: int, machine: GroupMachine) -> None:
        """Set the timer of a machine to its next deadline."""
        timer = self._timers.pop(index, None)
        if timer is not None:
            timer.cancel()
        deadline_ms = machine.next_deadline_ms()
        if deadline_ms is not None:
            left_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
            loop = asyncio.get_running_loop()
            self._timers[index] = loop.call_later(left_ms / 1000, self._expire, index)

    def _expire(self, index: int) -> None:
        now = self.moment()
        deadline_ms = self._machines[index].next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now.monotonic_ms:
            self._execute(index, lambda machine: machine.expire(now))
        else:
            self._arm(index, self._machines[index])

    def _index_of(self, group_id: str) -> int:
        if self._partition_count == 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody has looked for it yet")
        return abs(_java_hash(group_id)) % self._partition_count


def _asking_again(
    ask_again: Callable[[GroupMachine, NotYet], Decision[GroupRecord, T]], waiting: NotYet
) -> Callable[[GroupMachine], Decision[GroupRecord, T]]:
    return lambda machine: ask_again(machine, waiting)


def _bell(group_id: str) -> tuple[str, str]:
    return ("group", group_id)


def _java_hash(text: str) -> int:
    """Return what Java's String.hashCode says, by which Kafka finds the partition of a group."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    # Kafka's abs() maps the one number that has no positive twin to 0.
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else signed


def _replay(machine: GroupMachine, partition: Partition) -> None:
    for record in _all_records(partition.log):
        if record.key is not None:
            machine.replay(*_CODEC.decode(record.key, record.value))


def _all_records(log: PartitionLog) -> Iterator[Record]:
    offset = log.log_start_offset
    while offset < log.end_offset:
        for batch in batches(log.read(offset, log.end_offset, _READ_BYTES).read()):
            offset = batch.end_offset
            if not batch.is_control:
                yield from records_of(batch)
