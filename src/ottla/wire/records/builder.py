"""Builds record batches: for producers, for a broker's own records, and for rewriting."""

from collections.abc import Iterable, Sequence

from ottla.wire.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    Buffer,
    write_crc,
)
from ottla.wire.records.compression.codecs import Compression, compress
from ottla.wire.records.loops import RecordAccumulator
from ottla.wire.records.record import Record

_NO_PRODUCER_EPOCH = -1
_NO_LEADER_EPOCH = -1

# Five bytes for each varint (length, offset delta, key length, value length, header count),
# ten for the timestamp delta, one for the attributes.
_RECORD_OVERHEAD_BYTES_MAX = 5 * 5 + 10 + 1
_HEADER_OVERHEAD_BYTES_MAX = 2 * 5


class BatchBuilder(RecordAccumulator):
    """One batch, from its first record to its bytes.

    Records come in by append, extend and leave_gap, which the accumulator describes; size_bytes
    says how large the batch would be now without compression, and record_count how many records
    it has. The base timestamp is the first record's. With log_append_time_ms, readers see that
    time on every record.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_compression",
        "_compression_level",
        "_leader_epoch",
        "_log_append_time_ms",
        "_producer_epoch",
        "_producer_id",
    )

    def __init__(  # noqa: PLR0913 - a header has this many fields
        self,
        *,
        compression: Compression = Compression.NONE,
        compression_level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = _NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        base_offset: int = 0,
        leader_epoch: int = _NO_LEADER_EPOCH,
        log_append_time_ms: int | None = None,
    ) -> None:
        super().__init__()
        self._compression = compression
        self._compression_level = compression_level
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._log_append_time_ms = log_append_time_ms
        self._attributes = (
            compression
            | (LOG_APPEND_TIME_BIT if log_append_time_ms is not None else 0)
            | (TRANSACTIONAL_BIT if is_transactional else 0)
            | (CONTROL_BIT if is_control else 0)
        )

    def build(self) -> bytearray:
        """Finish the batch, which must have a record; the builder cannot be used again.

        Records are compressed even if that makes them larger, as the header has to say.
        """
        assert self.record_count > 0, "a batch needs a record"
        batch = self.take()
        if self._compression is not Compression.NONE:
            batch = self._compressed(batch)
        HEADER.pack_into(
            batch,
            0,
            self._base_offset,
            len(batch) - LOG_OVERHEAD_BYTES,
            self._leader_epoch,
            MAGIC,
            0,  # the checksum is computed last
            self._attributes,
            self.next_offset_delta - 1,
            self.base_timestamp_ms,
            self._max_timestamp_ms(),
            self._producer_id,
            self._producer_epoch,
            self._base_sequence,
            self.record_count,
        )
        write_crc(memoryview(batch))
        return batch

    def _compressed(self, batch: bytearray) -> bytearray:
        records = memoryview(batch)[HEADER_BYTES:]
        compressed = bytearray(HEADER_BYTES)
        compressed += compress(self._compression, records, self._compression_level)
        return compressed

    def _max_timestamp_ms(self) -> int:
        if self._log_append_time_ms is not None:
            return self._log_append_time_ms
        return self.max_timestamp_ms


def build_batch(  # noqa: PLR0913 - a header has this many fields
    records: Iterable[Record],
    *,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = _NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    leader_epoch: int = _NO_LEADER_EPOCH,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Make one batch of at least one record; their offsets must rise, and may have gaps."""
    remaining = list(records)
    assert remaining, "a batch needs a record"
    base_offset = remaining[0].offset
    builder = BatchBuilder(
        compression=compression,
        compression_level=compression_level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        log_append_time_ms=log_append_time_ms,
    )
    for record in remaining:
        builder.leave_gap(record.offset - base_offset - builder.next_offset_delta)
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    return builder.build()


def record_bytes_max(
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]] = (),
) -> int:
    """Return an upper limit of a record's share of BatchBuilder.size_bytes, without encoding.

    At most 29 bytes too much, and 8 more for each header; never too little.
    """
    size_bytes = _RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for header_key, header_value in headers:
        size_bytes += _HEADER_OVERHEAD_BYTES_MAX
        size_bytes += len(header_key.encode()) + len(header_value or b"")
    return size_bytes
