"""Runs the groups: each is kept by one partition of `__consumer_offsets`, and by its machine.

A decision is appended and replayed at once, so that the next one sees it; nothing suspends in
between. Who has to wait for others (JoinGroup, SyncGroup) waits for the bell of the group and asks
again. Deadlines are the machines'; here they become timers.

This broker runs the groups of the partitions that it leads. When it begins to lead one, the log is
loaded, one partition after the other and turn by turn; who asks too early is told
COORDINATOR_LOAD_IN_PROGRESS, and comes again. When it leads no more, the machine is dropped, and
who asks is told NOT_COORDINATOR: what it had decided and others do not have never was.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from itertools import product
from typing import Any, Final, TypeVar

from ottla.broker.flushing import Flushing
from ottla.broker.group_log import GroupLog
from ottla.broker.group_notices import tell_rebalances
from ottla.broker.offsets_topic import OffsetsTopic, partition_of_group
from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.topic_creation import TopicCreation
from ottla.broker.turns import Turns
from ottla.broker.waiting import Awaited, committed
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

T = TypeVar("T")
_WAIT_MS: Final = 600_000
_COMMIT_MS: Final = 5_000
"""How long replicas may take to have what was decided."""
_EXPIRE_AGAIN_MS: Final = 1_000
_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
_TOLD_BY_CODE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_REPLICATION_FACTOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a member is told when its group's own partition says this."""
_log = logging.getLogger(__name__)


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
        flushing: Flushing,
    ) -> None:
        self._partitions = partitions
        self._creation = creation
        self._bells = bells
        self._clock = clock
        self._settings = settings
        self._topic = topic
        self._log = log
        self._flushing = flushing
        self._image = creation.store.image
        self._partition_count = 0
        self._machines: dict[int, GroupMachine] = {}
        self._epochs: dict[int, int] = {}
        """The leader epoch in which each partition is led here, loaded or about to be."""
        self._loading: dict[int, None] = {}
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
        """Begin to load the groups of what is led here, and drop those of what is not."""
        topic = self._image.topics.get(CONSUMER_OFFSETS_TOPIC)
        self._partition_count = 0 if topic is None else len(topic.partitions)
        for index in range(self._partition_count):
            partition = self._partitions.find(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))
            is_led = partition is not None and partition.in_sync is not None
            epoch = partition.leader_epoch if partition is not None and is_led else None
            if self._epochs.get(index) != epoch:
                self._drop(index)
                if epoch is not None:
                    self._epochs[index] = epoch
                    self._loading[index] = None
        if self._loading and (self._load_task is None or self._load_task.done()):
            self._load_task = self._begin(self._load_all())

    async def open(self) -> None:
        """Be ready for groups: the first who looks for their coordinator has the topic made."""
        if self._partition_count:
            return
        (result,) = await self._creation.create([self._topic.wanted()])
        if result.error_code not in _THERE:
            raise _told(ApiError(ErrorCode(result.error_code), result.error_message or ""))
        self.open_if_there()
        if self._load_task is not None:
            await asyncio.wait([self._load_task])

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Forget what was committed for topics that are deleted, and all if it is our own."""
        before, self._image = self._image, image
        offsets = image.topics.get(CONSUMER_OFFSETS_TOPIC)
        if offsets is not None and any(
            getattr(record, "topic_id", None) == offsets.topic_id for record in records
        ):
            self.open_if_there()
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
        return self._execute(self.index_of(group_id), decide)

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
        await self.settle(group_id)
        return answer

    async def settle(self, group_id: str) -> None:
        """Return when what a group has decided is on every replica in sync, and flushed if due."""
        partition = self._partition(self.index_of(group_id))
        decided = Awaited(partition, partition.log.end_offset, partition.leader_epoch)
        if await self._flushing.flush_where_due([partition]):
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{partition.name} could not be flushed")
        if not partition.is_alone:
            deadline_ms = self._clock.monotonic_ms() + _COMMIT_MS
            (error,) = await committed(self._bells, [decided], deadline_ms)
            if error is not None:
                raise _told(error)

    def execute_on_all(self, decide: Callable[[GroupMachine], Decision[GroupRecord, T]]) -> list[T]:
        """Let the machine of every partition decide that is led here."""
        return [self._execute(index, decide) for index in sorted(self._epochs)]

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
            partition = self._partition(index)
            partition.check_enough_in_sync()
            self._log.append(partition, records)
        except ApiError as error:
            raise _told(error) from error

    def _machine(self, index: int) -> GroupMachine:
        machine = self._machines.get(index)
        if not self._is_led(index):
            raise ApiError(ErrorCode.NOT_COORDINATOR, "another broker has its groups")
        if machine is not None:
            return machine
        if index in self._loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "its groups could not be loaded")

    def _is_led(self, index: int) -> bool:
        """Tell whether a partition is led here, in the epoch in which it was loaded."""
        partition = self._partitions.find(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))
        return (
            partition is not None
            and partition.in_sync is not None
            and partition.leader_epoch == self._epochs.get(index)
        )

    def _partition(self, index: int) -> Partition:
        return self._partitions.get(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))

    def index_of(self, group_id: str) -> int:
        """Return which partition keeps a group; ApiError if there is none yet."""
        if self._partition_count == 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody has looked for it yet")
        return partition_of_group(group_id, self._partition_count)

    # -- loading and forgetting, turn by turn ---------------------------------------------------

    async def _load_all(self) -> None:
        while self._loading:
            index = next(iter(self._loading))
            epoch = self._epochs[index]
            try:
                await self._load(index, epoch)
            except Exception:  # noqa: BLE001 - the groups of the other partitions shall be there
                if self._epochs.get(index) == epoch:  # else it has been taken from us meanwhile
                    _log.exception("%s-%d: its groups are not there", CONSUMER_OFFSETS_TOPIC, index)
            if self._epochs.get(index) == epoch:
                self._loading.pop(index, None)

    async def _load(self, index: int, epoch: int) -> None:
        machine = GroupMachine(self._settings)
        await self._log.load(self._partition(index), machine)
        if self._epochs.get(index) != epoch:
            return
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
            self._load_task = None
        for index in list(self._epochs):
            self._drop(index)
        self._partition_count = 0

    def _drop(self, index: int) -> None:
        """Keep the groups of a partition no more."""
        self._epochs.pop(index, None)
        self._loading.pop(index, None)
        timer = self._timers.pop(index, None)
        if timer is not None:
            timer.cancel()
        machine = self._machines.pop(index, None)
        for group_id in machine.group_ids() if machine is not None else ():
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
            loop = asyncio.get_running_loop()
            again = loop.call_later(_EXPIRE_AGAIN_MS / 1000, self._expire, index)
            self._timers[index] = again


def _asking_again(
    ask_again: Callable[[GroupMachine, NotYet], Decision[GroupRecord, T]], waiting: NotYet
) -> Callable[[GroupMachine], Decision[GroupRecord, T]]:
    return lambda machine: ask_again(machine, waiting)


def _told(error: ApiError) -> ApiError:
    return ApiError(_TOLD_BY_CODE.get(error.code, error.code), error.detail)


def _bell(group_id: str) -> tuple[str, str]:
    return ("group", group_id)
