"""Runs one state machine per partition of an internal topic: the common part of coordinators.

`decision_runtime.py` has the steps of a decision. A decision is committed when all in-sync replicas
have it, and it is flushed if that is due. Machines have deadlines; here they become timers.

This broker runs the machines of the partitions that it leads. When it becomes the leader of one,
the log is loaded, one partition after the other and in time slices; early requests get
COORDINATOR_LOAD_IN_PROGRESS, and are retried. When it stops leading, the machine is dropped, and
requests get NOT_COORDINATOR: decisions that were not replicated never happened.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.decision_runtime import DecisionLog, DecisionRuntime
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.hosting.replication_wait import PendingReplication, committed
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.machines.decision import Decision
from ottla.machines.moment import Moment
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord, RemoveTopicRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset, TopicPartition
from ottla.model.topic_names import partition_of_name
from ottla.replication.partition import Partition
from ottla.wire.messages.create_topics import CreatableTopic

_EXPIRE_AGAIN_MS: Final = 1_000
_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
_CLIENT_CODE_BY_CODE: Final = {
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
"""The codes for clients, by the error of the coordinator's own partition."""
_log = logging.getLogger(__name__)


E = TypeVar("E")
R = TypeVar("R")
T = TypeVar("T")


class Machine(Protocol[R]):
    """A state machine that decides, and replays its decisions."""

    def start(self, now: Moment) -> None:
        """Begin to watch time, after all records were replayed."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` has something to do, on the monotonic clock."""
        ...

    def expire(self, now: Moment) -> Decision[R, None]:
        """Decide on expired deadlines."""
        ...


M = TypeVar("M", bound=Machine[Any])


@dataclass(frozen=True, slots=True)
class CoordinatorWorld:
    """The dependencies of coordinators."""

    partitions: HostedPartitions
    creation: TopicCreation
    notifier: Notifier
    clock: Clock
    flushing: LogFlusher
    has_valid_lease: Callable[[], bool]
    """Returns whether this broker certainly still leads its partitions."""


class _Timer(NamedTuple):
    deadline_ms: int
    """On the monotonic clock."""
    handle: asyncio.TimerHandle


class PartitionDecisions(ABC, Generic[R, E]):
    """The decisions of one machine, in a partition that this broker leads in one epoch."""

    def __init__(self, world: CoordinatorWorld, partition: Partition, commit_ms_max: int) -> None:
        self.partition = partition
        self._world = world
        self._leader_epoch = partition.leader_epoch
        self._commit_ms_max = commit_ms_max

    @abstractmethod
    def _take(self, records: tuple[R, ...]) -> E | None:
        """Append records, then replay them. ApiError, and nothing is replayed."""

    @property
    def end_offset(self) -> Offset:
        """The offset after the last decision."""
        return self.partition.log.end_offset

    def write(self, records: tuple[R, ...]) -> E | None:
        """Append and replay; ApiError, in the words of coordinators, if that is not possible."""
        if not records:
            return None
        try:
            self.partition.check_enough_in_sync()
            return self._take(records)
        except ApiError as error:
            raise _client_error(error) from error

    def is_committed(self, end_offset: Offset) -> bool:  # noqa: ARG002 - of all that is in the log
        """Whether no replica has to be waited for, and no disk."""
        partition = self.partition
        return partition.is_alone and not partition.log.needs_flush(self._world.clock.now_ms())

    async def committed(self, end_offset: Offset) -> None:
        """Wait for the replicas, and for the disk if a flush is due."""
        partition, world = self.partition, self._world
        decided = PendingReplication(partition, end_offset, self._leader_epoch)
        if await world.flushing.flush_where_due([partition]):
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{partition.name} could not be flushed")
        if not partition.is_alone:
            deadline_ms = world.clock.monotonic_ms() + self._commit_ms_max
            (error,) = await committed(
                world.notifier, [decided], deadline_ms, world.has_valid_lease
            )
            if error is not None:
                raise _client_error(error)


class CoordinatorRuntime(ABC, Generic[M, R, E]):
    """Finds the machine of a name, lets it decide, and writes its decisions."""

    def __init__(self, world: CoordinatorWorld, topic: CreatableTopic, commit_ms_max: int) -> None:
        self._world = world
        self._partitions = world.partitions
        self._notifier = world.notifier
        self._clock = world.clock
        self._wanted = topic
        self.topic = topic.name
        self._commit_ms_max = commit_ms_max
        self._image = world.creation.store.image
        self._partition_count = 0
        self._runtimes: dict[int, DecisionRuntime[M, R, E]] = {}
        self._epochs: dict[int, int] = {}
        """The leader epoch in which each partition is led here, loaded or about to be."""
        self._loading: dict[int, None] = {}
        self._timers: dict[int, _Timer] = {}
        self._load_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- to be implemented by each coordinator --------------------------------------------------

    @abstractmethod
    def _new_machine(self, epoch: int) -> M:
        """Create the machine of a partition that is led in this epoch."""

    @abstractmethod
    async def _load_machine(self, partition: Partition, machine: M) -> None:
        """Replay a partition's log into its machine, in time slices."""

    @abstractmethod
    def _new_runtime(
        self, index: int, partition: Partition, machine: M
    ) -> DecisionRuntime[M, R, E]:
        """Create the runtime of a loaded machine."""

    @abstractmethod
    def _on_decided(self, machine: M) -> None:
        """Act on the soft state after a decision, by time or by request."""

    @abstractmethod
    async def _on_loaded(self, index: int, runtime: DecisionRuntime[M, R, E]) -> None:
        """Complete the start of a machine."""

    @abstractmethod
    def _on_dropped(self, index: int, machine: M) -> None:
        """Notify that a machine was dropped."""

    @abstractmethod
    def _on_topic_removed(self, topic: str) -> None:
        """Hear that a topic was deleted, which is not our own."""

    # -- public ---------------------------------------------------------------------------------

    @property
    def machines(self) -> list[M]:
        """The machines of all loaded partitions, read-only."""
        return [runtime.machine for runtime in self._runtimes.values()]

    def machine_of(self, index: int) -> M | None:
        """Return the machine of a partition, read-only; None unless it is loaded."""
        runtime = self._runtimes.get(index)
        return None if runtime is None else runtime.machine

    def moment(self) -> Moment:
        """Return now, on both clocks."""
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    def open_if_there(self) -> None:
        """Begin to load the machines of led partitions, and drop the machines of others."""
        topic = self._image.topics.get(self.topic)
        self._partition_count = 0 if topic is None else len(topic.partitions)
        for index in range(self._partition_count):
            partition = self._partitions.find(TopicPartition(self.topic, index))
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
        """Ensure that the topic exists: the first lookup of a coordinator creates it."""
        if self._partition_count:
            return
        (result,) = await self._world.creation.create([self._wanted])
        if result.error_code not in _THERE:
            raise _client_error(ApiError(ErrorCode(result.error_code), result.error_message or ""))
        self.open_if_there()
        if self._load_task is not None:
            await asyncio.wait([self._load_task])

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Follow changes of leaders, and deletions of topics."""
        before, self._image = self._image, image
        own = image.topics.get(self.topic)
        if own is not None and any(
            getattr(record, "topic_id", None) == own.topic_id for record in records
        ):
            self.open_if_there()
        for record in records:
            if not isinstance(record, RemoveTopicRecord):
                continue
            topic = before.topics_by_id.get(record.topic_id)
            if topic is not None and topic.name == self.topic:
                self._close()
            elif topic is not None:
                self._on_topic_removed(topic.name)

    def execute(self, name: str, decide: Callable[[M], Decision[R, T]]) -> T:
        """Let the machine of a name decide, and append the records. ApiError if that fails."""
        return self._execute(self.index_of(name), decide)

    async def wait_replicated(self, name: str) -> None:
        """Return when a machine's decisions are on all in-sync replicas, and flushed if due."""
        await self._runtime(self.index_of(name)).committed()

    async def wait_replicated_for_reader(self, name: str) -> None:
        """Return when a machine's state cannot be lost: another coordinator would have it, too."""
        index = self.index_of(name)
        partition = self._partitions.get(TopicPartition(self.topic, index))
        if partition.high_watermark < partition.log.end_offset:
            await self._runtime(index).committed()

    def execute_on_all(self, decide: Callable[[M], Decision[R, T]]) -> list[T]:
        """Let the machines of all partitions led here decide."""
        return [self._execute(index, decide) for index in sorted(self._epochs)]

    def index_of(self, name: str) -> int:
        """Return the partition of a name; ApiError if there is none yet."""
        if self._partition_count == 0:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker has not loaded its partition yet"
            )
        return partition_of_name(name, self._partition_count)

    def stop(self) -> None:
        """Cancel all deadlines and all work in time slices."""
        self._close()
        for task in self._tasks:
            task.cancel()

    # -- one decision ---------------------------------------------------------------------------

    def _execute(
        self,
        index: int,
        decide: Callable[[M], Decision[R, T]],
        log: DecisionLog[R, E] | None = None,
    ) -> T:
        self._led(index)
        runtime = self._runtime(index)
        try:
            response = runtime.decide(decide, log)
        except ApiError:
            self._arm(index, runtime.machine, _EXPIRE_AGAIN_MS)
            raise
        self._on_decided(runtime.machine)
        self._arm(index, runtime.machine)
        return response

    def _runtime(self, index: int) -> DecisionRuntime[M, R, E]:
        """Return the runtime of a loaded partition."""
        runtime = self._runtimes.get(index)
        if runtime is not None:
            return runtime
        if index in self._loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "its log is being loaded")
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "its log could not be loaded")

    def _led(self, index: int) -> Partition:
        """Return a partition that is led here, in the epoch in which it was loaded."""
        partition = self._partitions.find(TopicPartition(self.topic, index))
        # The epoch is compared, too: if the partition was led elsewhere in between, the machine
        # lacks the records of that coordinator.
        if (
            partition is None
            or partition.in_sync is None
            or partition.leader_epoch != self._epochs.get(index)
        ):
            raise ApiError(ErrorCode.NOT_COORDINATOR, "another broker is its coordinator")
        return partition

    # -- loading and dropping -------------------------------------------------------------------

    async def _load_all(self) -> None:
        while self._loading:
            index = next(iter(self._loading))  # leaderships may change during each load
            epoch = self._epochs[index]
            try:
                await self._load(index, epoch)
            except Exception:  # noqa: BLE001 - the machines of other partitions must still load
                if self._epochs.get(index) == epoch:  # else it has been taken from us meanwhile
                    _log.exception("%s-%d could not be loaded", self.topic, index)
            if self._epochs.get(index) == epoch:
                self._loading.pop(index, None)

    async def _load(self, index: int, epoch: int) -> None:
        machine = self._new_machine(epoch)
        partition = self._partitions.get(TopicPartition(self.topic, index))
        await self._load_machine(partition, machine)
        if self._epochs.get(index) != epoch:
            return  # lost, or led in a later epoch, while the log was read
        machine.start(self.moment())
        runtime = self._runtimes[index] = self._new_runtime(index, partition, machine)
        self._arm(index, machine)
        await self._on_loaded(index, runtime)

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _close(self) -> None:
        """Drop all machines; waiting requests get an error on their retry."""
        if self._load_task is not None:
            self._load_task.cancel()
            self._load_task = None
        for index in list(self._epochs):
            self._drop(index)
        self._partition_count = 0

    def _drop(self, index: int) -> None:
        self._epochs.pop(index, None)
        self._loading.pop(index, None)
        timer = self._timers.pop(index, None)
        if timer is not None:
            timer.handle.cancel()
        runtime = self._runtimes.pop(index, None)
        if runtime is not None:
            runtime.close()
            self._on_dropped(index, runtime.machine)

    # -- deadlines ------------------------------------------------------------------------------

    def _arm(self, index: int, machine: M, delay_ms_min: int = 0) -> None:
        """Set a timer for the next deadline of a machine; it may fire early, but never late.

        It is late only with a minimum delay, after a decision that could not be written.
        """
        deadline_ms = machine.next_deadline_ms()
        armed = self._timers.get(index)
        if deadline_ms is None or (armed is not None and armed.deadline_ms <= deadline_ms):
            return
        now_ms = self._clock.monotonic_ms()
        delay_ms = max(deadline_ms - now_ms, delay_ms_min)
        if armed is not None and armed.deadline_ms <= now_ms + delay_ms:
            return
        if armed is not None:
            armed.handle.cancel()
        self._arm_in(index, delay_ms)

    def _arm_in(self, index: int, delay_ms: int) -> None:
        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire, index)
        self._timers[index] = _Timer(self._clock.monotonic_ms() + delay_ms, handle)

    def _expire(self, index: int) -> None:
        del self._timers[index]
        now = self.moment()
        try:
            self._execute(index, lambda machine: machine.expire(now))
        except ApiError as error:
            partition = self._partitions.find(TopicPartition(self.topic, index))
            is_full = partition is not None and not partition.log.has_room
            # A full disk is logged once for its log dir, not at each try.
            level = logging.DEBUG if is_full else logging.WARNING
            _log.log(level, "%s-%d: %s", self.topic, index, error)
            if index not in self._timers:
                self._arm_in(index, _EXPIRE_AGAIN_MS)


def _client_error(error: ApiError) -> ApiError:
    return ApiError(_CLIENT_CODE_BY_CODE.get(error.code, error.code), error.detail)
