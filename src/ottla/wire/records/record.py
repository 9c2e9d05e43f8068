"""Records, and functions that read them from a batch."""

from typing import NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import Buffer, RecordBatch
from ottla.wire.records.compression.codecs import DECOMPRESSED_BYTES_MAX, Compression, decompress
from ottla.wire.records.loops import find_time as find_time_in_section
from ottla.wire.records.loops import read_records
from ottla.wire.records.loops import scan_records as scan_section

_OFFSET_MAX = 2**63 - 1


class RecordHeader(NamedTuple):
    """One header of a record. Keys may repeat; their order is kept."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record, with its offset in the partition and its time since the epoch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()


class RecordScan(NamedTuple):
    """The result of checking every record of a batch; all are well formed.

    Timestamp deltas are relative to the batch's base timestamp, and 0 if there is no record.
    """

    null_key_count: int
    min_timestamp_delta_ms: int
    max_timestamp_delta_ms: int


def records_of(batch: RecordBatch) -> list[Record]:
    """Read all records of a batch, decompressed within the limits of `decompress`.

    ProtocolError names the record and the byte (of the decompressed records) where the format is
    broken. Offsets rise strictly and stay within the batch; header keys are UTF-8. The checksum
    is not looked at.
    """
    _check_offsets(batch)
    return read_records(batch, uncompressed_records(batch), Record, RecordHeader)


def scan_records(section: Buffer, record_count: int) -> RecordScan:
    """Check a producer's uncompressed records, as records_of does, but without building any.

    MalformedRecordError also for offset deltas that are not 0, 1, 2 and so on. If the
    check passes, records_of can read the records, provided that the deltas do not overflow.
    """
    return RecordScan(*scan_section(section, record_count))


def find_time(
    batch: RecordBatch, timestamp_ms: int, start_offset: int, end_offset: int
) -> tuple[int, int] | None:
    """Return timestamp and offset of the first record in these bounds with at least this timestamp.

    If all are older, of the latest record; None if there is no record. No record is built. Keys,
    values and headers, and records after the result, are not checked.
    """
    _check_offsets(batch)
    return find_time_in_section(
        batch, uncompressed_records(batch), timestamp_ms, start_offset, end_offset
    )


def _check_offsets(batch: RecordBatch) -> None:
    if batch.last_offset > _OFFSET_MAX:
        raise ProtocolError(
            f"batch's last offset {batch.last_offset} has more than 64 bits",
            code=ErrorCode.INVALID_RECORD,
        )


def uncompressed_records(
    batch: RecordBatch, *, size_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes | memoryview:
    """Return the records' uncompressed bytes: a view if they are not compressed, else a copy.

    TooLargeError if the copy would have more than `size_bytes_max`.
    """
    stored = batch.records_view
    codec = batch.compression
    if codec is Compression.NONE or not stored:
        return stored
    return decompress(codec, stored, size_bytes_max=size_bytes_max)
