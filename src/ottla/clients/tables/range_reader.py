"""Reads one range of offsets of a partition as Arrow batches.

The range is fetched from its partition's leader, one response ahead of the reader. Requests name
the topic by its id, so that no records come from a later topic of the same name. After a failure,
the leader is looked up again until the time limit.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from ottla.clients.admin.admin_offsets import OffsetAdmin, are_local
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.fetching.fetched_batches import AbortedBatches, end_of_batches
from ottla.clients.consumer.state.subscription import NO_REPLICA
from ottla.clients.errors import RETRIABLE, NoResponseError, UnreachableError
from ottla.clients.tables.errors import DataLossError, SourceReadError
from ottla.clients.tables.topic_cluster import NEWS_SECONDS_MAX, RecordSizes, TopicCluster
from ottla.clients.threads.loop_thread import create_background_task
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.rpc.partition_fetcher import PartitionFetcher
from ottla.wire.messages.fetch import AbortedTransaction, FetchPartition, PartitionData
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.arrow import arrow_batches

if TYPE_CHECKING:
    from ottla.wire.records.batch import RecordBatch

_NAMES_UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_log = logging.getLogger(__name__)

ARROW_BATCH_BYTES_MAX: Final = 4 << 20
"""The uncompressed bytes of records in one Arrow batch: about 40,000 records of 100 bytes."""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of one partition, from start_offset to before end_offset."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    topic_id: bytes = ZERO_UUID

    @property
    def name(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"offsets {self.start_offset} to {self.end_offset} of {self.name}"


Range = TypeVar("Range", bound=OffsetRange)


def split(
    ranges: Iterable[Range],
    *,
    min_partitions: int | None = None,
    records_per_partition_max: int | None = None,
) -> list[Range]:
    """Leave out empty ranges, and split the others to satisfy the given minimum and maximum.

    With min_partitions, large ranges are cut into more pieces than small ones.
    """
    found = [one for one in ranges if one.size > 0]
    if records_per_partition_max is not None:
        found = [
            piece
            for one in found
            for piece in _pieces(one, -(-one.size // records_per_partition_max))
        ]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(one.size for one in found)
    return [
        piece
        for one in found
        for piece in _pieces(one, max(-(-one.size * min_partitions // total), 1))
    ]


def _pieces(one: Range, count: int) -> Iterator[Range]:
    count = min(count, one.size)
    ends = [one.start_offset + one.size * number // count for number in range(count + 1)]
    for start_offset, end_offset in pairwise(ends):
        yield replace(one, start_offset=start_offset, end_offset=end_offset)


@dataclass(frozen=True, slots=True)
class Fetching:
    """The settings of the fetches of a range."""

    is_committed_only: bool
    check_crcs: bool
    partition_bytes_max: int
    wait_ms_max: int
    rack: str
    stuck_ms_max: int
    """How long a read retries while no records arrive."""
    advice_on_loss: str = ""
    """The end of the message of a DataLossError: the reader's way out."""


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Record batches as fetched, and the aborted transactions among them."""

    start_offset: int
    data: memoryview
    aborted: tuple[AbortedTransaction, ...]


class RangeFetches:
    """The fetches of one range. All methods run in the event loop's thread."""

    def __init__(
        self,
        view: ClusterView,
        wanted: OffsetRange,
        fetching: Fetching,
        sizes: RecordSizes,
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self._view = view
        self._sizes = sizes
        self._wanted = wanted
        self._fetching = fetching
        self._fail_on_data_loss = fail_on_data_loss
        self._fetcher = PartitionFetcher(
            name=wanted.name,
            topic_id=wanted.topic_id,
            wait_ms=fetching.wait_ms_max,
            isolation_level=int(fetching.is_committed_only),
            rack=fetching.rack,
        )
        self._position = wanted.start_offset
        self._replica_id = NO_REPLICA
        """The follower that the leader has named as the preferred read replica."""
        self._missed_since = 0.0
        self._ahead: asyncio.Task[FetchedBatches | None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the range is finished, and no fetch is in flight."""
        return self._ahead is None and self._position >= self._wanted.end_offset

    async def next(self) -> FetchedBatches | None:
        """Return the next batches, and start the fetch after them; None at the end of the range."""
        ahead, self._ahead = self._ahead, None
        fetched = await (self._fetched() if ahead is None else ahead)
        if fetched is not None and self._position < self._wanted.end_offset:
            self._ahead = create_background_task(self._fetched())
        return fetched

    async def close(self) -> None:
        """Cancel the fetch in flight."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    async def _fetched(self) -> FetchedBatches | None:
        """Fetch until records arrive, the range ends, or the time limit passes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._fetching.stuck_ms_max / 1000
        backoff_ms = self._view.settings.retry_backoff_ms
        while self._position < self._wanted.end_offset:
            try:
                if (fetched := await self._ask()) is not None:
                    return fetched
                why = "the leader has nothing there"
            except (ApiError, UnreachableError, NoResponseError) as error:
                why = str(error)
                with suppress(ApiError, UnreachableError, NoResponseError):
                    await self._look_again(error)
            if loop.time() > deadline:
                raise SourceReadError(
                    f"{self._wanted} could not be read within "
                    f"{self._fetching.stuck_ms_max / 1000:g} s, from {self._position} on: {why}"
                )
            if self._position < self._wanted.end_offset:
                await pause(backoff_ms)
                backoff_ms = min(2 * backoff_ms, self._view.settings.retry_backoff_max_ms)
        return None

    async def _ask(self) -> FetchedBatches | None:
        """Fetch once; None if there are no records. ApiError also if the broker does not lead."""
        partition = await self._view.partition(self._wanted.name)
        replica_id = partition.leader_id if self._replica_id < 0 else self._replica_id
        bytes_max = self._sizes.bytes_for(
            self._wanted.topic,
            self._wanted.end_offset - self._position,
            self._fetching.partition_bytes_max,
        )
        wanted = FetchPartition(
            partition=self._wanted.partition,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=bytes_max,
        )
        row = await self._fetcher.fetch(
            await self._view.connection_to(replica_id),
            wanted,
            timeout_ms=self._view.settings.request_timeout_ms,
        )
        if row is None:
            return None
        if row.preferred_read_replica >= 0:
            self._replica_id = row.preferred_read_replica
        if row.records:
            return self._accepted(row)
        if self._has_all(row) and await self._is_local():
            # Compaction has removed the last records of the range, and none follow them.
            self._position = self._wanted.end_offset
        return None

    def _accepted(self, row: PartitionData) -> FetchedBatches:
        data = memoryview(row.records)
        end = end_of_batches(data)
        if end is None:
            raise SourceReadError(f"{self._wanted}: no record batch begins at {self._position}")
        start_offset, self._position = self._position, max(self._position, end.offset)
        self._sizes.learn(self._wanted.topic, len(data), self._position - start_offset)
        return FetchedBatches(start_offset, data, tuple(row.aborted_transactions or ()))

    def _has_all(self, row: PartitionData) -> bool:
        """Whether the responding broker has the whole range, and may return it."""
        is_committed_only = self._fetching.is_committed_only
        readable = row.last_stable_offset if is_committed_only else row.high_watermark
        return row.preferred_read_replica < 0 and readable >= self._wanted.end_offset

    async def _is_local(self) -> bool:
        return await are_local(self._view, self._wanted.name, self._position)

    async def _look_again(self, error: ApiError | OSError) -> None:
        """Handle a failed fetch: skip deleted records, or look up the new leader."""
        was_asked, self._replica_id = self._replica_id, NO_REPLICA
        self._view.forget([self._wanted.topic])
        if not isinstance(error, ApiError):
            return
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if was_asked == NO_REPLICA:  # else the follower may be behind
                await self._leave_out_lost()
        elif error.code in _NAMES_UNKNOWN:
            await self._notice_other_topic()
        elif error.code not in RETRIABLE:
            raise SourceReadError(f"{self._wanted} cannot be read: {error}") from error

    async def _leave_out_lost(self) -> None:
        """Continue at the start of the log; DataLossError if failOnDataLoss is true."""
        name, end_offset = self._wanted.name, self._wanted.end_offset
        ends = await OffsetAdmin(self._view).ends([name])
        log_start, log_end = ends[name]
        if log_start <= self._position <= log_end:
            return  # only the previous leader lacked it
        place = f"begins at {log_start}" if self._position < log_start else f"ends at {log_end}"
        going_on_at = min(log_start, end_offset) if self._position < log_start else end_offset
        self._lose(f"offsets {self._position} to {going_on_at} of {name} are gone: its log {place}")
        self._position = going_on_at

    async def _notice_other_topic(self) -> None:
        """End the range if the topic was deleted, or created again under its name."""
        found = {topic.name: topic for topic in await self._view.refresh([self._wanted.topic])}
        topic = found.get(self._wanted.topic)
        is_there = topic is not None and topic.error_code == ErrorCode.NONE
        if is_there and topic is not None and topic.topic_id == self._wanted.topic_id:
            return
        now = asyncio.get_running_loop().time()
        self._missed_since = self._missed_since or now
        if now - self._missed_since < NEWS_SECONDS_MAX:
            return  # brokers learn of a new topic one by one
        made_again = " and made again" if is_there else ""
        self._lose(f"{self._wanted} are gone: the topic was deleted{made_again}")
        self._position = self._wanted.end_offset

    def _lose(self, loss: str) -> None:
        if self._fail_on_data_loss:
            raise DataLossError(f"{loss}; {self._fetching.advice_on_loss}")
        _log.warning("%s; the read goes on without them", loss)


def read_range(
    cluster: TopicCluster,
    wanted: OffsetRange,
    fetching: Fetching,
    columns: pa.Schema,
    *,
    fail_on_data_loss: bool,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the records of a range, with these columns in this order.

    Control records are left out. Records of aborted transactions are left out unless the isolation
    level is read_uncommitted.
    """
    fetches = RangeFetches(
        cluster.view, wanted, fetching, cluster.sizes, fail_on_data_loss=fail_on_data_loss
    )
    try:
        while not fetches.is_over and (fetched := cluster.thread.run(fetches.next())) is not None:
            for rows in _decoded(fetched, wanted, fetching, columns):
                arrays = [rows.column(name) for name in columns.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=columns)
    except ProtocolError as error:
        raise SourceReadError(f"{wanted}: a batch is damaged: {error.detail}") from error
    finally:
        if not fetches.is_over:
            cluster.thread.run(fetches.close())


def _decoded(
    fetched: FetchedBatches, wanted: OffsetRange, fetching: Fetching, columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    # Without a skip function, runs of batches are decoded at once.
    skip: Callable[[RecordBatch], bool] | None = None
    if fetching.is_committed_only and fetched.aborted:
        skip = AbortedBatches(fetched.aborted).includes
    return arrow_batches(
        fetched.data,
        wanted.topic,
        wanted.partition,
        start_offset=fetched.start_offset,
        end_offset=wanted.end_offset,
        columns=columns.names,
        check_crcs=fetching.check_crcs,
        skip=skip,
        arrow_batch_bytes_max=ARROW_BATCH_BYTES_MAX,
    )
