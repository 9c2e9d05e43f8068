"""Applies fetch responses: data goes to the buffer, errors to the code that handles them."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.fetching.fetch_buffer import FetchBuffer
from ottla.clients.consumer.fetching.fetch_session import Asked, ConsumerSession
from ottla.clients.consumer.fetching.fetched_batches import FetchedPartition, end_of_batches
from ottla.clients.consumer.fetching.partition_leaders import Leaders
from ottla.clients.consumer.state.errors import CorruptRecordError, OffsetOutOfRangeError
from ottla.clients.consumer.state.reset_policy import ResetPolicy
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import (
    NO_REPLICA,
    AssignedPartition,
    SubscriptionState,
)
from ottla.clients.errors import RETRIABLE, error_code
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.rpc.fetch_session import SESSION_LOST
from ottla.wire.messages.fetch import FetchResponse, PartitionData
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import batch_at

_log = logging.getLogger(__name__)
Found = Mapping[TopicPartition, tuple[AssignedPartition, int]]
"""The requested partitions, and the generation of each at the time of the request."""


class FetchResponses:
    """Handles fetch responses, on the event loop's thread. `on_progress` is called after each."""

    def __init__(
        self,
        view: ClusterView,
        state: SubscriptionState,
        settings: ConsumerSettings,
        leaders: Leaders,
        buffer: FetchBuffer,
        policy: ResetPolicy,
    ) -> None:
        self._view = view
        self._state = state
        self._settings = settings
        self._leaders = leaders
        self._buffer = buffer
        self._is_reset_allowed = not policy.is_none
        self._is_committed_only = settings.isolation_level == "read_committed"
        self.on_progress: Callable[[], None] = lambda: None

    def take(self, session: ConsumerSession, found: Found, response: FetchResponse) -> None:
        """Apply a fetch response to the session and the partitions."""
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            session.reset()
            if code not in SESSION_LOST:
                _log.info("a fetch was refused: %s", code.name)
                self.leave(partition for partition, _ in found.values())
            return
        asked = session.partitions
        session.accept(response.session_id)
        rows = [
            (session.name_of(topic), row)
            for topic in response.responses
            for row in topic.partitions
        ]
        refused: set[TopicPartition] = set()
        with self._state.lock:
            for topic_name, row in rows:
                name = TopicPartition(topic_name or "", row.partition_index)
                if row.error_code != ErrorCode.NONE:
                    refused.add(name)
                partition = self._unmoved(name, found)
                if partition is not None:
                    self._take_row(partition, row, response)
            _identify(found, asked, refused)

    def back_off(self, partitions: Iterable[AssignedPartition]) -> None:
        """Exclude these partitions from fetches for retry.backoff.ms."""
        pause_s = self._view.settings.retry_backoff_ms / 1000
        at = asyncio.get_running_loop().time() + pause_s
        for partition in partitions:
            partition.retry_at = at

    def leave(self, partitions: Iterable[AssignedPartition]) -> None:
        """Look up the leaders of these partitions again: the broker is gone, or not the leader."""
        left = list(partitions)
        for partition in left:
            partition.read_replica = NO_REPLICA
        self._leaders.forget([partition.name for partition in left])
        self.back_off(left)

    def _unmoved(self, name: TopicPartition, found: Found) -> AssignedPartition | None:
        partition, generation = found.get(name, (None, 0))
        if partition is None or self._state.assigned.get(name) is not partition:
            return None
        return partition if partition.generation == generation else None

    def _take_row(
        self, partition: AssignedPartition, row: PartitionData, response: FetchResponse
    ) -> None:
        code = error_code(row.error_code)
        if code is ErrorCode.NONE:
            self._take_data(partition, row)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._take_out_of_range(partition)
        elif code is ErrorCode.CORRUPT_MESSAGE:
            self._take_corrupt(partition, "the broker cannot read the batch there")
        elif code in RETRIABLE or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            if self._take_hint(partition, row, response):
                partition.read_replica = NO_REPLICA
            else:
                self.leave([partition])
        else:
            partition.failure = ApiError(code, f"partition {partition.name}")

    def _take_data(self, partition: AssignedPartition, row: PartitionData) -> None:
        partition.high_watermark = row.high_watermark
        partition.last_stable_offset = row.last_stable_offset
        partition.log_start_offset = row.log_start_offset
        if row.preferred_read_replica >= 0:
            now = asyncio.get_running_loop().time()
            partition.read_replica = row.preferred_read_replica
            age_max_ms = self._view.settings.metadata_max_age_ms
            partition.read_replica_until = now + age_max_ms / 1000
        if not row.records:
            return
        data = memoryview(row.records)
        if (end := end_of_batches(data)) is None:
            self._take_corrupt(partition, _why_unreadable(data))
            return
        fetched = FetchedPartition(
            partition,
            data,
            row.aborted_transactions,
            check_crcs=self._settings.check_crcs,
            is_committed_only=self._is_committed_only,
        )
        partition.fetch_position = end
        self._buffer.put(fetched)

    def _take_out_of_range(self, partition: AssignedPartition) -> None:
        assert partition.position is not None
        if partition.read_replica != NO_REPLICA:
            partition.read_replica = NO_REPLICA  # the follower may be behind: ask the leader
        elif partition.buffered_bytes:
            self.back_off([partition])  # the application gets the buffered records first
        elif self._is_reset_allowed:
            _log.warning(
                "%s has no offset %s: starting over by auto.offset.reset",
                partition.name,
                partition.position.offset,
            )
            partition.lose_position(None)
        else:
            partition.failure = OffsetOutOfRangeError({partition.name: partition.position.offset})

    def _take_corrupt(self, partition: AssignedPartition, reason: str) -> None:
        assert partition.fetch_position is not None
        offset = partition.fetch_position.offset
        partition.failure = CorruptRecordError(partition.name, offset, reason, offset + 1)

    def _take_hint(
        self, partition: AssignedPartition, row: PartitionData, response: FetchResponse
    ) -> bool:
        """Adopt the leader that the broker named (KIP-951); False if it named none."""
        hint = row.current_leader
        if hint is None:
            return False
        addresses = {row.node_id: Address(row.host, row.port) for row in response.node_endpoints}
        return self._view.learn_leader(
            partition.name, hint.leader_id, hint.leader_epoch, addresses.get(hint.leader_id)
        )


def _why_unreadable(data: memoryview) -> str:
    """Explain why no whole batch was found, for example an old message format (Kafka 0.10)."""
    try:
        batch_at(data)
    except ProtocolError as error:
        return error.detail
    return "the batch there is cut"


def _identify(
    found: Found, asked: Mapping[TopicPartition, Asked], refused: Collection[TopicPartition]
) -> None:
    """Record the topic id of each position at its first successful fetch."""
    for name, (partition, generation) in found.items():
        if not partition.topic_id and generation == partition.generation and name not in refused:
            topic_id = asked[name].topic_id
            partition.topic_id = b"" if topic_id == ZERO_UUID else topic_id
