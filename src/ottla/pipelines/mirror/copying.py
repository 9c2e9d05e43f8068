"""Copies one partition: transaction by transaction, from the recorded position up to an offset.

Each transaction holds the records, the new position and the offset syncs, so that they are
committed together or not at all. Before each transaction, the transactional id is fenced and the
offset syncs are read to their end. Then all commits of a former attempt are known, and it can
commit nothing more. So a task can be killed and repeated at any moment, and two mirrors at once
copy nothing twice.

Batches are not split. The batch at the end of the range is copied whole, and the position is behind
it; the next attempt begins at the position, not at the end of a range.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final, NamedTuple

from ottla.clients.admin.admin_offsets import OffsetAdmin, OffsetSpec, are_local
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.fetching.fetched_batches import end_of_batches
from ottla.clients.errors import RETRIABLE
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.mirror.batches import Piece, Span, pieces_of
from ottla.pipelines.mirror.offset_syncs import (
    OffsetSyncsReader,
    Position,
    Run,
    Runs,
    ident_of,
    joined,
    position_note,
    runs_note,
)
from ottla.pipelines.mirror.options import NOTES_SUFFIX, MirrorError
from ottla.pipelines.mirror.writing import TargetTransaction
from ottla.pipelines.topics.batch_fetcher import BatchFetcher, Fetched

TRANSACTION_BYTES_MAX: Final = 128 << 20
TRANSACTION_SECONDS_MAX: Final = 10.0
RUNS_MAX: Final = 10_000
"""The maximum number of runs in a note; a source with short transactions has many."""
PATIENCE_SECONDS: Final = 60.0
"""How long a partition may fail without progress before its task fails."""
_BACKOFF_MS: Final = 50
_BACKOFF_MS_MAX: Final = 2_000
_BEGIN_AGAIN: Final = RETRIABLE | {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.BROKER_NOT_AVAILABLE,
}
"""After these codes, the transaction is aborted and its records are copied in another."""
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_log = logging.getLogger(__name__)


class CopyRange(NamedTuple):
    """A task's share: one partition up to an offset."""

    source_topic: str
    source_id: str
    target_topic: str
    ident: str
    partition: int
    end_offset: int

    @property
    def source(self) -> TopicPartition:
        """The source partition."""
        return TopicPartition(self.source_topic, self.partition)

    @property
    def target(self) -> TopicPartition:
        """The target partition."""
        return TopicPartition(self.target_topic, self.partition)


@dataclass(slots=True)
class _Copied:
    """The content of a transaction so far."""

    offset: int
    until: float = field(default_factory=lambda: monotonic() + TRANSACTION_SECONDS_MAX)
    spans: list[Sequence[Span]] = field(default_factory=list)
    """The offsets of each sent batch."""
    records: int = 0
    bytes: int = 0
    span_count: int = 0

    def take(self, piece: Piece) -> None:
        """Count a sent piece."""
        self.offset = piece.end_offset
        if piece.record_count:
            self.spans.append(piece.spans)
            self.records += piece.record_count
            self.bytes += len(piece.raw)
            self.span_count += self._is_apart(piece)

    def _is_apart(self, piece: Piece) -> int:
        """Return how many runs a piece adds; mostly it continues the last run."""
        if len(self.spans) < 2:
            return len(piece.spans)
        last = self.spans[-2][-1]
        return len(piece.spans) - (last.start + last.size == piece.spans[0].start)

    @property
    def is_enough(self) -> bool:
        """Whether the transaction should end here."""
        is_large = self.bytes >= TRANSACTION_BYTES_MAX or self.span_count >= RUNS_MAX
        return is_large or monotonic() >= self.until


class PartitionCopier:
    """Copies one range, with retries."""

    def __init__(
        self,
        source: ClusterView,
        target: ClusterView,
        wanted: CopyRange,
        notes: OffsetSyncsReader,
        turn: asyncio.Lock,
    ) -> None:
        """Copy between two views; the lock is for the notes, which several copiers read."""
        self._source = source
        self._target = target
        self._range = wanted
        self._notes = notes
        self._turn = turn
        mirror = notes.log.topic.removesuffix(NOTES_SUFFIX)
        self._transactional_id = f"{mirror}.{wanted.target_topic}.{wanted.partition}"

    async def copy(self) -> Position:
        """Copy the remaining offsets, and return the position after them."""
        deadline = monotonic() + PATIENCE_SECONDS
        backoff_ms, reached = _BACKOFF_MS, -1
        while True:
            try:
                position = await self._copy_some()
            except (ApiError, OSError) as error:
                self._check_again(error, deadline)
                await pause(backoff_ms)
                backoff_ms = min(2 * backoff_ms, _BACKOFF_MS_MAX)
                continue
            if position.offset >= self._range.end_offset:
                return position
            if position.offset > reached:
                deadline, backoff_ms = monotonic() + PATIENCE_SECONDS, _BACKOFF_MS
            elif monotonic() > deadline:
                raise MirrorError(
                    f"{self._range.source} gives nothing after offset {position.offset}, "
                    f"though it has {self._range.end_offset}"
                )
            reached = position.offset

    def _check_again(self, error: Exception, deadline: float) -> None:
        """Raise an error that a retry cannot heal, or has not healed for too long."""
        code = error.code if isinstance(error, ApiError) else None
        if code in _FENCED:
            raise MirrorError(
                f"another producer copies to {self._range.target}: does another mirror run?"
            ) from error
        if code is ErrorCode.INVALID_TIMESTAMP:
            raise MirrorError(
                f"{self._range.target} does not take the times of records: raise "
                f"message.timestamp.after.max.ms of topic {self._range.target_topic!r} on the "
                f"target, which stays as you set it ({error})"
            ) from error
        if monotonic() > deadline or (code is not None and code not in _BEGIN_AGAIN):
            raise error
        _log.info("%s is copied again from its position: %s", self._range.source, error)
        self._source.forget([self._range.source_topic])
        self._target.forget([self._range.target_topic, self._notes.log.topic])

    async def _copy_some(self) -> Position:
        """Copy one transaction, and return the resulting position."""
        await self._check_topics()
        transaction = await TargetTransaction.begin(self._target, self._transactional_id)
        position = await self._position()
        if position.offset >= self._range.end_offset:
            return position
        copied = await self._write(transaction, position.offset)
        if copied.offset == position.offset:
            return position
        reached = replace(
            position,
            offset=copied.offset,
            records=position.records + copied.records,
            bytes=position.bytes + copied.bytes,
        )
        rows: list[tuple[bytes, bytes | None]] = [position_note(reached)]
        runs = runs_of(copied.spans, await transaction.wait_acknowledged(self._range.target))
        if runs:
            rows.append(runs_note(Runs(reached.ident, reached.partition, position.offset, runs)))
        await transaction.note(self._notes.log.name, rows)
        await transaction.commit()
        return reached

    async def _check_topics(self) -> None:
        """Check that neither topic was deleted and created again."""
        wanted = self._range
        for view, name, ident in (
            (self._source, wanted.source_topic, wanted.source_id),
            (self._target, wanted.target_topic, wanted.ident),
        ):
            topic = await view.topic(name)
            if ident_of(topic.topic_id, name) != ident:
                raise MirrorError(f"topic {name!r} was deleted and made again: start the mirror")

    async def _position(self) -> Position:
        wanted = self._range
        async with self._turn:
            known = await self._notes.read_on(self._target)
        position = known.positions.get((wanted.ident, wanted.partition))
        if position is not None:
            return position
        found = await OffsetAdmin(self._source).find({wanted.source: OffsetSpec.EARLIEST})
        return Position(wanted.ident, wanted.partition, found[wanted.source].offset, 0, 0)

    async def _write(self, transaction: TargetTransaction, offset: int) -> _Copied:
        """Send records until the transaction is large enough or no more come."""
        copied, end = _Copied(offset), self._range.end_offset
        async with BatchFetcher(self._source, self._range.source) as fetcher:
            while copied.offset < end and not copied.is_enough:
                fetched = await self._fetched(fetcher, copied)
                if fetched is not None and not fetched.data:
                    copied.offset = end if await self._is_over(fetched, copied) else copied.offset
                    break
                if fetched is not None:
                    self._fetch_ahead(fetcher, fetched)
                    await self._send(transaction, fetched, copied)
        return copied

    async def _is_over(self, fetched: Fetched, copied: _Copied) -> bool:
        """Return whether the fetch was empty because compaction has removed all up to the end."""
        is_there = fetched.last_stable_offset >= self._range.end_offset
        return is_there and await are_local(self._source, self._range.source, copied.offset)

    def _fetch_ahead(self, fetcher: BatchFetcher, fetched: Fetched) -> None:
        ahead = end_of_batches(fetched.data)
        if ahead is not None and ahead.offset < self._range.end_offset:
            fetcher.fetch_ahead(ahead.offset)

    async def _fetched(self, fetcher: BatchFetcher, copied: _Copied) -> Fetched | None:
        """Fetch; None if the source has deleted uncopied records, and its log starts later now."""
        try:
            return await fetcher.fetch(copied.offset)
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        name = self._range.source
        start, end = (await OffsetAdmin(self._source).ends([name]))[name]
        if copied.offset >= start:
            raise MirrorError(
                f"{name} ends at offset {end}, but was copied up to {copied.offset}: it has lost "
                f"records, or was recreated; delete {self._range.target_topic!r} on the "
                "target to copy it anew"
            )
        _log.warning(
            "%s: records %d to %d were deleted before they were copied",
            name,
            copied.offset,
            start - 1,
        )
        copied.offset = start
        return None

    async def _send(
        self, transaction: TargetTransaction, fetched: Fetched, copied: _Copied
    ) -> None:
        before = copied.offset
        for piece in pieces_of(fetched.data, before, fetched.aborted):
            if piece.record_count:
                await transaction.send(self._range.target, piece.raw, piece.record_count)
            copied.take(piece)
            if copied.offset >= self._range.end_offset or copied.is_enough:
                return
        if copied.offset == before:
            raise MirrorError(f"{self._range.source} has no whole batch at offset {before}")


def runs_of(spans: Iterable[Sequence[Span]], base_offsets: Iterable[int]) -> tuple[Run, ...]:
    """Return the runs of batches: their offsets on the source, and on the target."""
    runs = []
    for of_batch, base_offset in zip(spans, base_offsets, strict=True):
        target = base_offset
        for span in of_batch:
            runs.append(Run(span.start, target, span.size))
            target += span.size
    return tuple(joined(runs))
