"""Fetch of `__cluster_metadata`: how other brokers learn of the controller's decisions.

A broker sends the term and the offset that it has reached, and gets the decisions after it; without
any, the fetch waits for a while. A broker from another term, or too far behind, gets the id of a
snapshot to take (FetchSnapshot). There are no sessions; brokers name topic ids, as they do since
version 13. Every error concerns the whole request:

    NOT_CONTROLLER              this broker is not the controller, or not any more
    BROKER_ID_NOT_REGISTERED    the sender is not a broker of this cluster
    FENCED_LEADER_EPOCH         the broker means an earlier controller
    UNKNOWN_LEADER_EPOCH        the broker knows a later controller than this broker
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from ottla.broker.metadata_store.metadata_history import Batches, MetadataFeed, Snapshot
from ottla.concurrency.notifier import Notifier
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, Offset
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)

KEPT_MAX: Final = 4
"""The newest, and some that others may still be taking."""

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
NO_EPOCH: Final = -1
METADATA_FETCHED: Final = "metadata fetched"
"""Rung when a broker has come to another offset."""
_METADATA_DECIDED: Final = "metadata feed"


class MetadataSnapshots:
    """Snapshots of the metadata, kept for as long as other brokers take them piece by piece.

    At the beginning of a term all brokers want a snapshot: they share one. But no broker gets a
    snapshot that was outdated when it asked: its earlier incarnation may have known more, and it
    would take replicas of newer topics for strays.
    """

    def __init__(self, threads: Executor | None) -> None:
        self._threads = threads
        self._kept: list[Snapshot] = []
        self._one_at_a_time = asyncio.Lock()

    async def of(self, feed: MetadataFeed) -> Snapshot:
        """Return a snapshot of all that the feed has now, or of more than that."""
        async with self._one_at_a_time:
            kept = self.find(feed.epoch, feed.end_offset)
            if kept is not None:
                return kept
            # In the background: it takes a while where there are many partitions.
            loop = asyncio.get_running_loop()
            made = await loop.run_in_executor(self._threads, feed.snapshot)
            self._kept = [*self._kept, made][-KEPT_MAX:]
            return made

    def find(self, epoch: int, end_offset: Offset) -> Snapshot | None:
        """Return an announced snapshot, if it is still kept."""
        return next(
            (one for one in self._kept if (one.epoch, one.end_offset) == (epoch, end_offset)), None
        )


class MetadataFetch:
    """Answers fetches of the metadata. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        feed: Callable[[], MetadataFeed | None],
        snapshots: MetadataSnapshots,
        notifier: Notifier,
    ) -> None:
        self._broker_id = broker_id
        self._feed = feed
        self._snapshots = snapshots
        self._notifier = notifier
        self.fetched: dict[BrokerId, int] = {}
        """The offset that each broker has come to, as far as it has come in this term."""
        self.heard_ms: dict[BrokerId, int] = {}
        """When each broker has come to fetch the last time, on the monotonic clock."""
        self._listening_to: MetadataFeed | None = None

    def is_meant(self, request: FetchRequest) -> bool:
        """Return whether a fetch is one of the metadata."""
        topics = request.topics
        return bool(topics) and topics[0].topic_id == METADATA_TOPIC_ID

    async def handle(self, request: FetchRequest, received_ms: int) -> FetchResponse:
        """Answer a fetch that was received at this time of the monotonic clock."""
        try:
            wanted = _wanted(request)
            feed = self._checked_feed(request, wanted)
            pulled = feed.read(wanted.last_fetched_epoch, Offset(wanted.fetch_offset))
            if pulled is not None:
                self._note(request, Offset(wanted.fetch_offset), received_ms)
            if pulled is not None and not pulled.data:
                deadline_ms = received_ms + request.max_wait_ms
                pulled = await self._wait(feed, wanted, deadline_ms)
            found = pulled if pulled is not None else await self._snapshots.of(feed)
        except ApiError as error:
            return FetchResponse(error_code=error.code)
        return self._response(feed, found)

    def _note(self, request: FetchRequest, offset: Offset, received_ms: int) -> None:
        assert request.replica_state is not None, "it has been checked"
        broker_id = BrokerId(request.replica_state.replica_id)
        self.heard_ms[broker_id] = received_ms
        if self.fetched.get(broker_id) != offset:
            self.fetched[broker_id] = offset
            self._notifier.notify(METADATA_FETCHED)

    def _checked_feed(self, request: FetchRequest, wanted: FetchPartition) -> MetadataFeed:
        feed = self._feed()
        if feed is None or feed.is_closed:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        state = request.replica_state
        if state is None or state.replica_id not in feed.image.brokers:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "only brokers fetch the metadata")
        if max(wanted.last_fetched_epoch, wanted.current_leader_epoch) > feed.epoch:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"this is term {feed.epoch}")
        if wanted.current_leader_epoch not in {NO_EPOCH, feed.epoch}:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"this is term {feed.epoch}")
        return feed

    async def _wait(
        self, feed: MetadataFeed, wanted: FetchPartition, deadline_ms: int
    ) -> Batches | None:
        """Wait until there is something after the offset; NOT_CONTROLLER if the term ends."""
        while True:
            self._listen_to(feed)
            is_notified = await self._notifier.wait_any([_METADATA_DECIDED], deadline_ms)
            if feed.is_closed:
                raise ApiError(ErrorCode.NOT_CONTROLLER, f"term {feed.epoch} is over")
            pulled = feed.read(wanted.last_fetched_epoch, Offset(wanted.fetch_offset))
            if not is_notified or pulled is None or pulled.data:
                return pulled

    def _listen_to(self, feed: MetadataFeed) -> None:
        """Have a feed notify waiting fetches; a feed drops its listeners when it calls them."""
        if self._listening_to is not feed:
            self._listening_to = feed
            feed.on_news(lambda: self._on_news(feed))

    def _on_news(self, feed: MetadataFeed) -> None:
        if self._listening_to is feed:
            self._listening_to = None
        self._notifier.notify(_METADATA_DECIDED)

    def _response(self, feed: MetadataFeed, found: Batches | Snapshot) -> FetchResponse:
        answer = PartitionData(
            partition_index=0,
            high_watermark=feed.end_offset,
            aborted_transactions=None,
            current_leader=LeaderIdAndEpoch(leader_id=self._broker_id, leader_epoch=feed.epoch),
            records=b"",
        )
        if isinstance(found, Snapshot):
            answer.snapshot_id = SnapshotId(end_offset=found.end_offset, epoch=found.epoch)
        else:
            answer.records = found.data
        topic = FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[answer])
        return FetchResponse(responses=[topic])


def _wanted(request: FetchRequest) -> FetchPartition:
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].partitions[0].partition:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the metadata has one partition, and is alone")
    return topics[0].partitions[0]
