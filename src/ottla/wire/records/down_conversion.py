"""Converts batches to message sets, for clients that are older than record batches."""

from collections.abc import Iterable, Iterator

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records._reading_python import each_record
from ottla.wire.records.batch import Buffer, RecordBatch, batches
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.message_set import to_message_set
from ottla.wire.records.record import Record, RecordHeader, records_of, uncompressed_records

RECORDS_AT_ONCE_MAX = 5_000
"""Batches with more are read in plain Python, record by record: the compiled loop would
block other threads, and so would freeing that many objects at once."""


def message_sets(data: Buffer, *, magic: int, first_offset: int) -> Iterator[bytes]:
    """Convert batches one by one; each gives one message set with the same codec, or b"".

    Control batches are left out, and so are headers, and records before the first offset where
    they are not compressed: some clients count on that. A batch that is cut off at the end is left
    out as well. ProtocolError UNSUPPORTED_COMPRESSION_TYPE if a batch is compressed by Zstandard,
    which clients that old cannot read.
    """
    for batch in batches(data):
        if batch.is_control:
            continue
        if batch.compression is Compression.ZSTD:
            raise ProtocolError(
                f"{batch} is compressed by Zstandard", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            )
        records: Iterable[Record] = _records_of(batch)
        if batch.compression is Compression.NONE and batch.base_offset < first_offset:
            records = (record for record in records if record.offset >= first_offset)
        yield to_message_set(
            records,
            magic=magic,
            compression=batch.compression,
            is_log_append_time=batch.is_log_append_time,
        )


def _records_of(batch: RecordBatch) -> Iterable[Record]:
    if batch.record_count <= RECORDS_AT_ONCE_MAX:
        return records_of(batch)
    return each_record(batch, uncompressed_records(batch), Record, RecordHeader)
