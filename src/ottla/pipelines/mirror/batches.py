"""Turns fetched batches into batches to produce: only headers are rewritten.

Brokers accept no gaps, no old formats and no LogAppendTime of another broker from clients. Batches
with one of these are the exception: their records are read, and written as a new batch. So is a
batch with the log start in its middle, after records were deleted.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.clients.consumer.fetching.fetched_batches import AbortedBatches
from ottla.clients.producer.transactions.transaction_requests import ProducerName
from ottla.wire.messages.fetch import AbortedTransaction
from ottla.wire.records.batch import (
    ATTRIBUTES_AT,
    DELETE_HORIZON_BIT,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    RecordBatch,
    write_crc,
)
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.message_set import records_of_message_set
from ottla.wire.records.record import Record, records_of

_FRAME: Final = Struct(">qi")
_LEADER_EPOCH: Final = Struct(">i")
_ATTRIBUTES: Final = Struct(">h")
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_NO_LEADER_EPOCH: Final = -1
_BROKERS_BITS: Final = LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT
OLD_SET_BYTES_MAX: Final = 256 << 10
"""The bytes of old formats to read at once, unless a single message is larger."""
OLD_RECORDS_MAX: Final = 1_000
"""The maximum number of messages of an old format in one batch."""


class Span(NamedTuple):
    """Offsets without a gap."""

    start: int
    size: int


class Piece(NamedTuple):
    """A batch for the target, before it is sealed; empty where nothing is to be copied."""

    raw: memoryview
    record_count: int
    spans: Sequence[Span]
    """The offsets of its records on the source, in order."""
    end_offset: int
    """The offset on the source after the piece."""


def pieces_of(
    data: memoryview, position: int, aborted: Collection[AbortedTransaction]
) -> Iterator[Piece]:
    """Cut fetched bytes, in place, into pieces for the target, from a position on.

    Aborted transactions and markers become pieces without records. An incomplete batch at the end
    is left out. ProtocolError for a damaged batch.
    """
    left_out = AbortedBatches(aborted)
    for frame in _frames(data):
        if frame[MAGIC_AT] < MAGIC:
            yield from _old_pieces(frame, position)
            continue
        batch = RecordBatch(frame)
        batch.check_crc()
        is_left_out = left_out.includes(batch)
        if batch.end_offset <= position:
            continue
        if is_left_out or batch.record_count == 0:
            yield _nothing(batch.end_offset)
        elif _is_whole(batch, position):
            spans = (Span(batch.base_offset, batch.record_count),)
            yield Piece(batch.raw, batch.record_count, spans, batch.end_offset)
        else:
            yield _rewritten(records_of(batch), batch.compression, position, batch.end_offset)


def seal(raw: memoryview, producer: ProducerName, sequence: int) -> None:
    """Set a batch's producer id and epoch, sequence, transactional flag and CRC, in place."""
    _FRAME.pack_into(raw, 0, 0, len(raw) - LOG_OVERHEAD_BYTES)
    _LEADER_EPOCH.pack_into(raw, LEADER_EPOCH_AT, _NO_LEADER_EPOCH)
    (attributes,) = _ATTRIBUTES.unpack_from(raw, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(raw, ATTRIBUTES_AT, attributes | TRANSACTIONAL_BIT)
    _PRODUCER.pack_into(raw, _PRODUCER_AT, producer.producer_id, producer.epoch, sequence)
    write_crc(raw)


def spans_of(offsets: Iterable[int]) -> list[Span]:
    """Join increasing offsets without gaps into spans."""
    spans: list[Span] = []
    for offset in offsets:
        if spans and spans[-1].start + spans[-1].size == offset:
            spans[-1] = Span(spans[-1].start, spans[-1].size + 1)
        else:
            spans.append(Span(offset, 1))
    return spans


def _frames(data: memoryview) -> Iterator[memoryview]:
    """Split at batches; adjacent messages of the old formats stay together in sets."""
    begin = end = 0
    while (after := _frame_end(data, end)) is not None:
        is_old = data[end + MAGIC_AT] < MAGIC
        if begin < end and not (is_old and after - begin <= OLD_SET_BYTES_MAX):
            yield data[begin:end]
            begin = end
        if not is_old:
            yield data[begin:after]
            begin = after
        end = after
    if begin < end:
        yield data[begin:end]


def _frame_end(data: memoryview, position: int) -> int | None:
    """Return the end of the batch or message at a position; None if it is incomplete."""
    if len(data) - position <= MAGIC_AT:
        return None
    _, length = _FRAME.unpack_from(data, position)
    end: int = position + LOG_OVERHEAD_BYTES + length
    return end if position + MAGIC_AT < end <= len(data) else None


def _is_whole(batch: RecordBatch, position: int) -> bool:
    """Whether a broker accepts the batch unchanged, except for its producer."""
    has_gaps = batch.record_count != batch.last_offset_delta + 1
    return batch.base_offset >= position and not has_gaps and not batch.attributes & _BROKERS_BITS


def _old_pieces(frame: memoryview, position: int) -> Iterator[Piece]:
    records = records_of_message_set(frame)
    for start in range(0, len(records), OLD_RECORDS_MAX):
        part = records[start : start + OLD_RECORDS_MAX]
        if part[-1].offset >= position:
            yield _rewritten(part, Compression.NONE, position, part[-1].offset + 1)


def _rewritten(
    records: Sequence[Record], codec: Compression, position: int, end_offset: int
) -> Piece:
    """Write records as a new batch, one after the other, with their effective timestamps."""
    kept = [record for record in records if record.offset >= position]
    if not kept:
        return _nothing(end_offset)
    builder = BatchBuilder(compression=codec)
    for record in kept:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    spans = spans_of(record.offset for record in kept)
    return Piece(memoryview(builder.build()), len(kept), spans, end_offset)


def _nothing(end_offset: int) -> Piece:
    return Piece(memoryview(b""), 0, (), end_offset)
