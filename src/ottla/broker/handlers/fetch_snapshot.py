"""FetchSnapshot v0-v1: a piece of a snapshot of the metadata (KIP-630).

For brokers only, and not advertised to clients. The response to Fetch has named the snapshot. If it
is not kept any more the result is SNAPSHOT_NOT_FOUND: then the broker has to fetch again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.broker.controller.metadata_log_server import MetadataSnapshots
from ottla.broker.metadata_store.embedded.metadata_log import METADATA_PARTITION
from ottla.broker.metadata_store.metadata_history import MetadataFeed
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset, TopicPartition
from ottla.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
)

VERSIONS = range(2)
PIECE_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class FetchSnapshotHandler:
    """Answers FetchSnapshot."""

    feed: Callable[[], MetadataFeed | None]
    snapshots: MetadataSnapshots

    async def handle(
        self, _context: RequestContext, request: FetchSnapshotRequest
    ) -> FetchSnapshotResponse:
        """Send the next piece of a snapshot; all pieces of a snapshot come from one incarnation."""
        try:
            self._check(request)
        except ApiError as error:
            return FetchSnapshotResponse(error_code=error.code)
        bytes_max = min(max(request.max_bytes, 0), PIECE_BYTES_MAX)
        topics = []
        for topic in request.topics:
            pieces = []
            for wanted in topic.partitions:
                piece = self._piece(TopicPartition(topic.name, wanted.partition), wanted, bytes_max)
                bytes_max -= len(piece.unaligned_records or b"")
                pieces.append(piece)
            topics.append(FetchSnapshotResponseTopicSnapshot(name=topic.name, partitions=pieces))
        return FetchSnapshotResponse(topics=topics)

    def _check(self, request: FetchSnapshotRequest) -> None:
        feed = self.feed()
        if feed is None or feed.is_closed:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        if request.cluster_id not in {None, feed.image.cluster_id}:
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID)
        if request.replica_id not in feed.image.brokers:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED)

    def _piece(
        self, name: TopicPartition, wanted: FetchSnapshotRequestPartitionSnapshot, bytes_max: int
    ) -> FetchSnapshotResponsePartitionSnapshot:
        snapshot_id, position = wanted.snapshot_id, wanted.position
        snapshot = self.snapshots.find(snapshot_id.epoch, Offset(snapshot_id.end_offset))
        code = ErrorCode.NONE
        if name != METADATA_PARTITION:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif snapshot is None:
            code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= position < max(len(snapshot.data), 1):
            code = ErrorCode.POSITION_OUT_OF_RANGE
        if code is not ErrorCode.NONE or snapshot is None:
            return FetchSnapshotResponsePartitionSnapshot(
                index=name.partition,
                error_code=code,
                snapshot_id=snapshot_id,
                unaligned_records=b"",
            )
        return FetchSnapshotResponsePartitionSnapshot(
            index=name.partition,
            snapshot_id=snapshot_id,
            size=len(snapshot.data),
            position=position,
            unaligned_records=snapshot.data[position : position + bytes_max],
        )
