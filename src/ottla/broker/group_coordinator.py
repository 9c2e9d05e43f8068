"""Runs the groups: each is kept by one partition of `__consumer_offsets`, and by its machine.

A decision is appended and replayed at once, so that the next one sees it; nothing suspends in
between. Who has to wait for others (JoinGroup, SyncGroup) waits for the bell of the group and asks
again. Deadlines are the machines'; here they become timers.

After a start every partition is loaded, one after the other and turn by turn. Who asks too early
is told COORDINATOR_LOAD_IN_PROGRESS, and comes again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeVar

from ottla.broker.group_log import GroupLog
from ottla.broker.group_notices import tell_rebalances
from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.topic_creation import TopicCreation
from ottla.broker.turns import Turns
from ottla.environment.clock import Clock
from ottla.machines.decision import Decision
from ottla.machines.groups.calls import Moment, NotYet
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.settings import GroupSettings
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord, RemoveTopicRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.replication.partition import Partition
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

T = TypeVar("T")
_WAIT_MS: Final = 600_000
_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
_TOLD_BY_CODE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a member is told when its group's own partition says this."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """How `__consumer_offsets` is made."""

    partition_count: int
    segment_bytes: int

    def wanted(self) -> CreatableTopic:
        """Return what is asked of the controller."""
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }
        return CreatableTopic(
            name=CONSUMER_OFFSETS_TOPIC,
            num_partitions=self.partition_count,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in settings.items()],
        )


class GroupCoordinator:
    """Finds the machine of a group, lets it decide, and writes down what it decided."""

    def __init__(
        self,
        partitions: Partitions,
        creation: TopicCreation,
        bells: Bells,
        clock: Clock,
        settings: GroupSettings,
        topic: OffsetsTopic,
        log: GroupLog,
    ) -> None:
        self._partitions = partitions
        self._creation = creation
        self._bells = bells
        self._clock = clock
        self._settings = settings
        self._topic = topic
        self._log = log
        self._image = creation.store.image
        self._partition_count = 0
        self._machines: dict[int, GroupMachine] = {}
        self._loading: set[int] = set()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._load_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def machines(self) -> list[GroupMachine]:
        """The machines of all partitions that are loaded, to be looked at only."""
        return list(self._machines.values())

    def moment(self) -> Moment:
        """Return now, on both clocks."""
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    def open_if_there(self) -> None:
        """Begin to load the groups that were remembered when the broker stopped."""
        topic = self._image.topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is not None and not self._partition_count:
            self._partition_count = len(topic.partitions)
            self._loading.update(range(self._partition_count))
            self._load_task = self._begin(self._load_all())

    async def open(self) -> None:
        """Be ready for groups: the first who looks for their coordinator has the topic made."""
        if self._partition_count:
            return
        (result,) = await self._creation.create([self._topic.wanted()])
        if result.error_code not in _THERE:
            raise ApiError(ErrorCode(result.error_code), result.error_message or "")
        self.open_if_there()
        if self._load_task is not None:
            await asyncio.wait([self._load_task])

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Forget what was committed for topics that are deleted, and all if it is our own."""
        before, self._image = self._image, image
        for record in records:
            if not isinstance(record, RemoveTopicRecord):
                continue
            topic = before.topics_by_id.get(record.topic_id)
            if topic is not None and topic.name == CONSUMER_OFFSETS_TOPIC:
                self._close()
            elif topic is not None:
                self._begin(self._forget([topic.name], list(self._machines)))

    def execute(
        self, group_id: str, decide: Callable[[GroupMachine], Decision[GroupRecord, T]]
    ) -> T:
        """Let the machine of a group decide, and make it so. ApiError if that is not possible."""
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
        """Let no deadline come any more, and leave off what takes several turns."""
        self._close()
        for task in self._tasks:
            task.cancel()

    # -- one decision ---------------------------------------------------------------------------

    def _execute(self, index: int, decide: Callable[[GroupMachine], Decision[GroupRecord, T]]) -> T:
        machine = self._machine(index)
        decision = decide(machine)
        if decision.records:
            self._append(index, decision.records)
            for record in decision.records:
                machine.replay(record.key, record.value)
            tell_rebalances(decision.records)
        for group_id in machine.take_rung():
            self._bells.ring(_bell(group_id))
        self._arm(index, machine)
        return decision.response

    def _append(self, index: int, records: Sequence[GroupRecord]) -> None:
        try:
            self._log.append(self._partition(index), records)
        except ApiError as error:
            raise ApiError(_TOLD_BY_CODE.get(error.code, error.code), error.detail) from error

    def _machine(self, index: int) -> GroupMachine:
        machine = self._machines.get(index)
        if machine is not None:
            return machine
        if index in self._loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "its groups could not be loaded")

    def _partition(self, index: int) -> Partition:
        return self._partitions.get(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))

    def _index_of(self, group_id: str) -> int:
        if self._partition_count == 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody has looked for it yet")
        return abs(_java_hash(group_id)) % self._partition_count

    # -- loading and forgetting, turn by turn ---------------------------------------------------

    async def _load_all(self) -> None:
        for index in sorted(self._loading):
            try:
                await self._load(index)
            except Exception:  # noqa: BLE001 - the groups of the other partitions shall be there
                _log.exception("%s-%d: its groups are not there", CONSUMER_OFFSETS_TOPIC, index)
            self._loading.discard(index)

    async def _load(self, index: int) -> None:
        machine = GroupMachine(self._settings)
        await self._log.load(self._partition(index), machine)
        machine.start(self.moment())
        self._machines[index] = machine
        self._arm(index, machine)
        # Topics that were deleted while nobody could forget them, as the broker died.
        gone = [topic for topic in machine.topics() if topic not in self._image.topics]
        await self._forget(gone, [index])

    async def _forget(self, topics: Sequence[str], indexes: Sequence[int]) -> None:
        turns = Turns(self._clock)
        for index, topic in product(indexes, topics):
            while index in self._machines and self._forget_some(index, topic):
                if turns.is_over:
                    await turns.next()

    def _forget_some(self, index: int, topic: str) -> bool:
        alive = self._image.topics.get(topic)
        alive_id = None if alive is None else alive.topic_id
        try:
            return self._execute(index, lambda machine: machine.decide_forget(topic, alive_id))
        except ApiError as error:
            _log.warning("offsets in %s, which was deleted, are kept: %s", topic, error)
            return False

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _close(self) -> None:
        """Keep no group any more; requests that wait are told when they ask again."""
        if self._load_task is not None:
            self._load_task.cancel()
        for timer in self._timers.values():
            timer.cancel()
        machines = list(self._machines.values())
        self._timers.clear()
        self._machines.clear()
        self._loading.clear()
        self._partition_count = 0
        for machine in machines:
            for group_id in machine.group_ids():
                self._bells.ring(_bell(group_id))

    # -- deadlines ------------------------------------------------------------------------------

    def _arm(self, index: int, machine: GroupMachine) -> None:
        """Have the next deadline of a machine come true; a timer may be early, but never late."""
        deadline_ms = machine.next_deadline_ms()
        if deadline_ms is None:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000
        timer = self._timers.get(index)
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._timers[index] = loop.call_at(at, self._expire, index)

    def _expire(self, index: int) -> None:
        del self._timers[index]
        now = self.moment()
        try:
            self._execute(index, lambda machine: machine.expire(now))
        except ApiError as error:
            _log.warning("%s-%d: %s", CONSUMER_OFFSETS_TOPIC, index, error)
            self._arm(index, self._machines[index])


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
