"""Decides which parts of a batch compaction keeps: all, some records, only the header, or nothing.

Offsets never change: a batch keeps its offset range even if it loses records, and a record keeps
its delta. A batch that loses no record is kept byte for byte.

The records of an aborted transaction are removed at once: no read_committed consumer ever saw them.
A marker stays as long as a batch of its transaction exists, even an empty one, because without it
that batch would belong to a transaction that never ends.

A tombstone, or the marker of a transaction without remaining records, stays until its *delete
horizon* (KIP-534): a reader that has seen the records must see their end. The first compaction that
finds it clean, with all older records of its key gone, writes that time into the header, in place
of the base timestamp.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset, ProducerId
from ottla.storage.compaction.offset_map import OffsetMap, shift_timestamps
from ottla.storage.indexes.aborted_index import ENTRY, ENTRY_BYTES, VERSION, AbortedTransaction
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.producers.producer_snapshot import ProducerEntry
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Buffer,
    RecordBatch,
    write_crc,
)
from ottla.wire.records.compression.codecs import compress
from ottla.wire.records.control import ControlType, control_type_of
from ottla.wire.records.record import uncompressed_records

_NO_PRODUCER_EPOCH: Final = -1
_NO_TIMESTAMP_MS: Final = -1
_INT64: Final = range(-(2**63), 2**63)


class SeenMarker(NamedTuple):
    """The meaning of a control batch for compaction."""

    is_needless: bool
    """Whether no batch of its transaction is left."""
    aborted: AbortedTransaction | None = None
    """The entry of the transaction index that must be kept."""


class TransactionTracker:
    """Follows the compaction through a log: sees every batch, in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[ProducerId, AbortedTransaction] = {}
        self._with_batches: set[ProducerId] = set()

    def see_batch(self, batch: RecordBatch) -> bool:
        """Return whether a batch of records belongs to an aborted transaction."""
        if not batch.is_transactional:
            return False
        self._advance(batch.last_offset)
        self._with_batches.add(batch.producer_id)
        aborted = self._aborted.get(batch.producer_id)
        return aborted is not None and batch.last_offset < aborted.last_offset

    def see_marker(self, batch: RecordBatch) -> SeenMarker:
        """Return the state of the transaction that this control batch ends.

        Other control batches, and unreadable ones, are never removable.
        """
        if batch.record_count == 0:
            return SeenMarker(is_needless=True)
        self._advance(batch.last_offset)
        producer_id = batch.producer_id
        match _control_type(batch):
            case ControlType.ABORT:
                aborted = self._aborted.pop(producer_id, None)
            case ControlType.COMMIT:
                aborted = None
            case _:
                return SeenMarker(is_needless=False)
        if producer_id not in self._with_batches:
            return SeenMarker(is_needless=True)
        self._with_batches.remove(producer_id)
        return SeenMarker(is_needless=False, aborted=aborted)

    def _advance(self, offset: Offset) -> None:
        """Apply the beginnings of transactions up to this offset."""
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            self._aborted[aborted.producer_id] = aborted


def read_aborted(disk: Disk, path: str) -> list[AbortedTransaction]:
    """Read the aborted transactions of a closed segment; a missing file is none.

    Unlike AbortedIndex this maps nothing: another thread may remove the segment meanwhile.
    """
    try:
        file = disk.open_file(path)
    except FileNotFoundError:
        return []
    with closing(file):
        content = file.read_at(0, file.size_bytes())
    rows = list(ENTRY.iter_unpack(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES]))
    if len(content) % ENTRY_BYTES or any(version != VERSION for version, *_ in rows):
        raise CorruptIndexError(path, f"{len(content)} bytes are not an index of transactions")
    return [AbortedTransaction(*fields) for _, *fields in rows]


def _control_type(batch: RecordBatch) -> ControlType:
    try:
        return control_type_of(batch)
    except ProtocolError:
        return ControlType.UNKNOWN


@dataclass(slots=True)
class CleaningCounts:
    """Counts of a compaction."""

    records_removed: int = 0
    unreadable_batches: int = 0
    """Batches with a valid checksum and malformed records: kept as they are."""


class _Records(NamedTuple):
    """The remaining records of a batch, uncompressed."""

    section: Buffer
    record_count: int
    least_delta: int
    greatest_delta: int


class BatchCleaner:
    """Decides batch by batch, with a map of the last offset of each key below `end_offset`."""

    def __init__(
        self,
        offset_map: OffsetMap,
        end_offset: Offset,
        last_by_producer: Mapping[ProducerId, ProducerEntry],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.counts = CleaningCounts()
        self._map = offset_map
        self._end_offset = end_offset
        self._last_by_producer = last_by_producer
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms

    def cleaned_marker(
        self, batch: RecordBatch, seen: SeenMarker, room_bytes: int
    ) -> RecordBatch | None:
        """Return the remainder of a control batch, or None."""
        # A producer's last batch stays: its epoch fences earlier incarnations.
        if not seen.is_needless or self._is_last_of_producer(batch):
            return batch
        if batch.record_count == 0 or self._is_past_horizon(batch):
            return None
        return self._with_horizon(batch, self._all_records(batch), room_bytes) or batch

    def cleaned_batch(
        self, batch: RecordBatch, room_bytes: int, *, is_aborted: bool
    ) -> RecordBatch | None:
        """Return the remains of a batch of records: the same object if it loses nothing.

        It may be larger by `room_bytes` than it was: a horizon makes timestamps longer.
        """
        if is_aborted or batch.record_count == 0:
            self.counts.records_removed += batch.record_count
            return self._emptied(batch)
        if batch.base_offset >= self._end_offset:
            return batch
        try:
            return self._filtered(batch, room_bytes)
        except ProtocolError:
            self.counts.unreadable_batches += 1
            return batch

    def _filtered(self, batch: RecordBatch, room_bytes: int) -> RecordBatch | None:
        section = uncompressed_records(batch)
        kept, count, tombstones, least, greatest = self._map.filter_records(
            batch, section, self._end_offset, with_tombstones=not self._is_past_horizon(batch)
        )
        self.counts.records_removed += batch.record_count - count
        if count == 0:
            return self._emptied(batch)
        records = _Records(section if kept is None else kept, count, least, greatest)
        # Of a batch that the map knows in part, older values may still be there.
        if tombstones and not batch.has_delete_horizon and batch.last_offset < self._end_offset:
            marked = self._with_horizon(batch, records, room_bytes)
            if marked is not None:
                return marked
        return batch if kept is None else _rewritten(batch, records)

    def _all_records(self, batch: RecordBatch) -> _Records:
        """Take all records of a control batch, which has been read and has one timestamp."""
        section = uncompressed_records(batch)
        delta = batch.max_timestamp_ms - batch.base_timestamp_ms
        return _Records(section, batch.record_count, delta, delta)

    def _with_horizon(
        self, batch: RecordBatch, records: _Records, room_bytes: int
    ) -> RecordBatch | None:
        """Write the batch with a delete horizon; None if there is no room for it, or no number."""
        if batch.has_delete_horizon:
            return batch
        shift = 0 if batch.is_log_append_time else batch.base_timestamp_ms - self._horizon_ms
        deltas = (records.least_delta + shift, records.greatest_delta + shift)
        if shift not in _INT64 or not all(delta in _INT64 for delta in deltas):
            return None
        section = records.section
        if shift:
            section = shift_timestamps(batch, section, records.record_count, shift)
        marked = _rewritten(
            batch, _Records(section, records.record_count, *deltas), horizon_ms=self._horizon_ms
        )
        return marked if marked.size_bytes - batch.size_bytes <= room_bytes else None

    def _emptied(self, batch: RecordBatch) -> RecordBatch | None:
        """Keep the header of a batch with a producer's last sequence number."""
        if not self._is_last_of_producer(batch):
            return None
        return batch if batch.record_count == 0 else emptied(batch)

    def _is_past_horizon(self, batch: RecordBatch) -> bool:
        return batch.has_delete_horizon and batch.base_timestamp_ms <= self._now_ms

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self._last_by_producer.get(batch.producer_id)
        if last is None or not batch.has_producer_id:
            return False
        if last.last_offset >= 0:
            return batch.last_offset == last.last_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch


def emptied(batch: RecordBatch) -> RecordBatch:
    """Return a batch without records and with the batch's producer fields."""
    return _with_header(batch, b"", batch.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT))


def placeholder(batch: RecordBatch) -> RecordBatch:
    """Return a batch without records or a producer, only to say that there were these offsets."""
    return _with_header(batch, b"", 0, is_anonymous=True)


def _rewritten(batch: RecordBatch, records: _Records, horizon_ms: int | None = None) -> RecordBatch:
    """Rewrite a batch with these records; their deltas are relative to the horizon, if any."""
    attributes = batch.attributes
    base_ms = batch.base_timestamp_ms
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_ms = horizon_ms
    max_ms = batch.max_timestamp_ms
    if not batch.is_log_append_time:
        max_ms = base_ms + records.greatest_delta
        if max_ms not in _INT64:
            raise ProtocolError(f"a timestamp of {max_ms}", code=ErrorCode.INVALID_RECORD)
    section = compress(batch.compression, records.section)
    return _with_header(
        batch, section, attributes, count=records.record_count, base_ms=base_ms, max_ms=max_ms
    )


def _with_header(
    batch: RecordBatch,
    section: Buffer,
    attributes: int,
    *,
    count: int = 0,
    base_ms: int = _NO_TIMESTAMP_MS,
    max_ms: int | None = None,
    is_anonymous: bool = False,
) -> RecordBatch:
    raw = bytearray(HEADER_BYTES)
    raw += section
    HEADER.pack_into(
        raw,
        0,
        batch.base_offset,
        len(raw) - LOG_OVERHEAD_BYTES,
        batch.partition_leader_epoch,
        MAGIC,
        0,  # the checksum, once all that it covers is in place
        attributes,
        batch.last_offset_delta,
        base_ms,
        batch.max_timestamp_ms if max_ms is None else max_ms,
        NO_PRODUCER_ID if is_anonymous else batch.producer_id,
        _NO_PRODUCER_EPOCH if is_anonymous else batch.producer_epoch,
        NO_SEQUENCE if is_anonymous else batch.base_sequence,
        count,
    )
    view = memoryview(raw)
    write_crc(view)
    return RecordBatch(view)
