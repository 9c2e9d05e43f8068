"""Fetch positions: committed offsets, resets, and validation after truncation (KIP-320)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.fetching.partition_leaders import Leaders
from ottla.clients.consumer.state.errors import LogTruncationError, NoOffsetForPartitionError
from ottla.clients.consumer.state.reset_policy import ResetPolicy
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import (
    NO_EPOCH,
    NO_OFFSET,
    AssignedPartition,
    Phase,
    Position,
    SubscriptionState,
)
from ottla.clients.errors import RETRIABLE, NoResponseError, UnreachableError, error_code
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, partitions_by_topic
from ottla.model.isolation_level import LATEST
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from ottla.clients.consumer.group.membership import GroupMembership

VALIDATION_VERSION_MIN: Final = 3
"""Earlier versions of OffsetForLeaderEpoch are for brokers only."""
_CONSUMER: Final = -1
"""The replica id of a client that is no broker."""
_log = logging.getLogger(__name__)
_Failure = ApiError | UnreachableError | NoResponseError


class PositionFinder:
    """Moves partitions from phase to phase until they are fetchable.

    Each call handles the partitions of its phase whose backoff has passed. It runs on the event
    loop's thread. After every `await` it ignores partitions whose position has moved meanwhile.
    """

    def __init__(
        self,
        view: ClusterView,
        state: SubscriptionState,
        settings: ConsumerSettings,
        leaders: Leaders,
        policy: ResetPolicy,
        clock: Clock,
        back_off: Callable[[Iterable[AssignedPartition]], None],
    ) -> None:
        self._view = view
        self._state = state
        self._leaders = leaders
        self._policy = policy
        self._clock = clock
        self._is_committed_only = settings.isolation_level == "read_committed"
        self._back_off = back_off
        self.group: GroupMembership | None = None

    async def place_committed(self, partitions: list[AssignedPartition]) -> None:
        """Start at the group's committed offsets; without a commit, use auto.offset.reset."""
        names = [partition.name for partition in partitions]
        if self.group is not None:
            try:
                committed = await self.group.committed(names)
            except (ApiError, UnreachableError, NoResponseError) as error:
                self._postpone(partitions, Phase.UNPLACED, error)
                return
            self._state.place_committed(
                {name: Position(row.offset, row.leader_epoch) for name, row in committed.items()}
            )
        with self._state.lock:
            for partition in partitions:
                if partition.phase is Phase.UNPLACED:
                    partition.lose_position(None)

    async def reset(self, broker_id: int, partitions: list[AssignedPartition]) -> None:
        """Request the reset offsets from the broker that leads these partitions."""
        with self._state.lock:
            partitions = [p for p in partitions if p.phase is Phase.RESETTING]
            generations = {p.name: p.generation for p in partitions}
            times = {p.name: self._reset_time(p) for p in partitions}
        request = _list_offsets_request(
            {name: time_ms for name, time_ms in times.items() if time_ms is not None},
            {p.name: self._epoch_of(p.name) for p in partitions},
            is_committed_only=self._is_committed_only,
            timeout_ms=self._view.settings.request_timeout_ms,
        )
        if not request.topics:
            return
        try:
            response = await self._view.ask_broker(broker_id, request, ListOffsetsResponse)
        except (ApiError, UnreachableError, NoResponseError) as error:
            self._postpone(partitions, Phase.RESETTING, error)
            return
        rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
        with self._state.lock:
            for topic_name, row in rows:
                name = TopicPartition(topic_name, row.partition_index)
                partition = self._unmoved(name, generations)
                if partition is not None and partition.phase is Phase.RESETTING:
                    self._take_reset(partition, row)

    async def validate(self, broker_id: int, partitions: list[AssignedPartition]) -> None:
        """Ask the leader whether its log still contains the consumed records."""
        with self._state.lock:
            partitions = [p for p in partitions if p.phase is Phase.VALIDATING]
            generations = {p.name: p.generation for p in partitions}
            epochs = {p.name: (p.fetch_position or Position(0)).leader_epoch for p in partitions}
            current = {p.name: self._epoch_of(p.name) for p in partitions}
        try:
            connection = await self._view.connection_to(broker_id)
            if connection.version_for(OffsetForLeaderEpochRequest) < VALIDATION_VERSION_MIN:
                self._trust(partitions)
                return
            request = _offset_for_leader_epoch_request(epochs, current)
            response = await self._view.ask_broker(broker_id, request, OffsetForLeaderEpochResponse)
        except (ApiError, UnreachableError, NoResponseError) as error:
            self._postpone(partitions, Phase.VALIDATING, error)
            return
        rows = [(topic.topic, row) for topic in response.topics for row in topic.partitions]
        with self._state.lock:
            for topic_name, row in rows:
                name = TopicPartition(topic_name, row.partition)
                partition = self._unmoved(name, generations)
                if partition is not None and partition.phase is Phase.VALIDATING:
                    self._take_validation(partition, row, current[name])

    def _reset_time(self, partition: AssignedPartition) -> int | None:
        if partition.reset_time_ms is not None:
            return partition.reset_time_ms
        if self._policy.is_none:
            partition.failure = NoOffsetForPartitionError([partition.name])
            return None
        return self._policy.time_at(self._clock.now_ms())

    def _take_reset(self, partition: AssignedPartition, row: ListOffsetsPartitionResponse) -> None:
        if row.error_code != ErrorCode.NONE:
            self._postpone([partition], Phase.RESETTING, _error(partition, row.error_code))
        elif row.offset == NO_OFFSET:
            partition.reset_time_ms = LATEST  # no record is at or after the requested time
            self._back_off([partition])
        else:
            partition.place(Position(row.offset, row.leader_epoch), Phase.READING)
            partition.validated_epoch = self._epoch_of(partition.name)

    def _take_validation(
        self, partition: AssignedPartition, row: EpochEndOffset, current_epoch: int
    ) -> None:
        assert partition.position is not None
        assert partition.fetch_position is not None
        if row.error_code != ErrorCode.NONE:
            self._postpone([partition], Phase.VALIDATING, _error(partition, row.error_code))
        elif row.end_offset == NO_OFFSET or row.leader_epoch == NO_EPOCH:
            self._truncated(partition, partition.position, None)
        elif row.end_offset >= partition.fetch_position.offset:
            partition.phase, partition.validated_epoch = Phase.READING, current_epoch
        elif row.end_offset >= partition.position.offset:
            # Only unconsumed records are dropped; they are fetched again.
            partition.place(partition.position, Phase.READING)
        else:
            found = Position(row.end_offset, row.leader_epoch)
            self._truncated(partition, partition.position, found)

    def _truncated(
        self, partition: AssignedPartition, position: Position, diverged_at: Position | None
    ) -> None:
        """Seek to the point of divergence, if it is known and auto.offset.reset allows it."""
        _log.warning("%s was truncated below offset %s", partition.name, position.offset)
        if self._policy.is_none:
            offset = None if diverged_at is None else diverged_at.offset
            partition.failure = LogTruncationError(partition.name, position.offset, offset)
        elif diverged_at is None:
            partition.lose_position(None)
        else:
            partition.place(diverged_at, Phase.READING)

    def _trust(self, partitions: Iterable[AssignedPartition]) -> None:
        with self._state.lock:
            for partition in partitions:
                if partition.phase is Phase.VALIDATING:
                    partition.phase = Phase.READING
                    partition.validated_epoch = self._epoch_of(partition.name)

    def _unmoved(
        self, name: TopicPartition, generations: dict[TopicPartition, int]
    ) -> AssignedPartition | None:
        partition = self._state.assigned.get(name)
        is_unmoved = partition is not None and partition.generation == generations.get(name)
        return partition if is_unmoved else None

    def _epoch_of(self, name: TopicPartition) -> int:
        leader = self._leaders.of(name)
        return NO_EPOCH if leader is None else leader.epoch

    def _postpone(
        self, partitions: Iterable[AssignedPartition], phase: Phase, error: _Failure
    ) -> None:
        """Back off and retry; an error that is not retriable is reported to the application.

        Partitions that have left the phase meanwhile are skipped: their position was set elsewhere.
        """
        with self._state.lock:
            waiting = [partition for partition in partitions if partition.phase is phase]
            if isinstance(error, ApiError) and error.code not in RETRIABLE:
                for partition in waiting:
                    partition.failure = error
                return
        names = [partition.name for partition in waiting]
        _log.info("no position yet in %s: %s", ", ".join(map(str, names)), error)
        self._leaders.forget(names)
        self._back_off(waiting)


def _error(partition: AssignedPartition, number: int) -> ApiError:
    return ApiError(error_code(number), f"partition {partition.name}")


def _list_offsets_request(
    time_by_partition: Mapping[TopicPartition, int],
    epoch_by_partition: Mapping[TopicPartition, int],
    *,
    is_committed_only: bool,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """Ask for the first offsets at or after these times, with the known leader epochs."""
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(is_committed_only),
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=name.partition,
                        current_leader_epoch=epoch_by_partition[name],
                        timestamp=time_by_partition[name],
                    )
                    for name in names
                ],
            )
            for topic, names in partitions_by_topic(time_by_partition).items()
        ],
        timeout_ms=timeout_ms,
    )


def _offset_for_leader_epoch_request(
    epoch_by_partition: Mapping[TopicPartition, int],
    current_epoch_by_partition: Mapping[TopicPartition, int],
) -> OffsetForLeaderEpochRequest:
    """Ask for the end offsets of these epochs in the current leaders' logs."""
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=name.partition,
                        current_leader_epoch=current_epoch_by_partition[name],
                        leader_epoch=epoch_by_partition[name],
                    )
                    for name in names
                ],
            )
            for topic, names in partitions_by_topic(epoch_by_partition).items()
        ],
    )
