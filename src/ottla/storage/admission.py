"""What a produced set of records must satisfy before a log takes it.

Kafka looks at every record of every batch; here the header and its CRC answer for the records
wherever they can, and a batch is opened only where they cannot:

* the topic is compacted, so that every record needs a key;
* the topic names a codec, and the batch has another: it is compressed anew;
* `message.timestamp.before.max.ms` is set, and headers do not tell the least timestamp.

So the header is believed about the number of records and their greatest timestamp, and records that
nobody can read are stored if their CRC is right: that harms the readers of a topic which whoever
sends it may fill with nonsense anyway. Where a batch is opened it must be readable, and its offset
deltas must be 0, 1, 2 and so on. What the log itself sets, base offset and leader epoch, is not
looked at. Bits that only brokers set are refused; Kafka lets some of them pass, or clears them.
What our own coordinators have just made is believed altogether.
"""

from collections.abc import Iterable
from enum import Enum
from itertools import islice

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.topic_config import NO_LIMIT, PRODUCER_COMPRESSION, TimestampType, TopicConfig
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import (
    ATTRIBUTES_LOW_BYTE_AT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_ID,
    Buffer,
    RecordBatch,
    batch_at,
    write_crc,
)
from ottla.wire.records.compression import Compression, compress, compression_in, compression_named
from ottla.wire.records.message_set import NO_TIMESTAMP, to_batches
from ottla.wire.records.record import (
    Record,
    records_of,
    scan_records,
    uncompressed_records,
)

REJECTED_MAX = 1_000
"""Of so many refused records in a batch the producer is told one by one."""

_BROKERS_BITS = CONTROL_BIT | LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


class RejectedRecordsError(ApiError):
    """Some records of a batch were refused, and the batch with them."""

    def __init__(self, code: ErrorCode, detail: str, rejected: Iterable[tuple[int, str]]) -> None:
        super().__init__(code, detail)
        self.rejected = tuple(islice(rejected, REJECTED_MAX))
        """The numbers of the records in their batch, and what is wrong with each."""


class Origin(Enum):
    """Who wants to append: what one of our own coordinators writes need not look like a client's.

    What a follower fetches is not admitted again; its leader did.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"


def admit(
    data: memoryview, config: TopicConfig, now_ms: int, *, origin: Origin = Origin.CLIENT
) -> RecordBatch:
    """Return the one batch to append; ApiError says what the producer did wrong.

    It lies in `data`, which must be writable, as the time of the log may be stamped into it; or,
    converted from an old message set or compressed anew, in memory of its own. Its offsets and
    leader epoch are still the producer's.
    """
    if origin is Origin.COORDINATOR:
        return _own(data, config, now_ms)
    batch = _only_batch(data)
    _check_from_client(batch, config)
    if (
        config.compression_type != PRODUCER_COMPRESSION
        or config.message_timestamp_before_max_ms != NO_LIMIT
        or config.is_compacted
    ):
        batch = _opened(batch, config, now_ms)
    if config.message_timestamp_type is _LOG_APPEND_TIME:
        batch.stamp_log_append_time(now_ms)
    elif batch.max_timestamp_ms > now_ms + config.message_timestamp_after_max_ms:
        # To decompress what is refused anyway would be a gift to whoever wants to keep us busy.
        records = records_of(batch) if batch.compression is Compression.NONE else ()
        raise _bad_timestamps(records, config, now_ms)
    return batch


def is_compressed_anew(data: memoryview, config: TopicConfig) -> bool:
    """Tell whether `admit` would compress this batch: it has another codec than its topic."""
    return (
        config.compression_type != PRODUCER_COMPRESSION
        and len(data) >= HEADER_BYTES
        and data[MAGIC_AT] == MAGIC
        and data[ATTRIBUTES_LOW_BYTE_AT] & CODEC_MASK != compression_named(config.compression_type)
    )


def compressed_anew(data: memoryview, config: TopicConfig, now_ms: int) -> memoryview:
    """Do what takes longest in `admit` beforehand, on any thread; ApiError as there.

    What is returned has its topic's codec, and can be admitted.
    """
    batch = _only_batch(data)
    _check_from_client(batch, config)
    return _opened(batch, config, now_ms).raw


def _own(data: memoryview, config: TopicConfig, now_ms: int) -> RecordBatch:
    """Admit what was made here a moment ago, so that there is nothing to find out about it."""
    batch = RecordBatch(data)
    _check_size(batch, config)
    if is_compressed_anew(data, config) and not batch.is_control:
        wanted = compression_named(config.compression_type)
        batch = _recompressed(batch, uncompressed_records(batch), wanted, config)
    if config.message_timestamp_type is _LOG_APPEND_TIME:
        batch.stamp_log_append_time(now_ms)
    return batch


def _only_batch(data: memoryview) -> RecordBatch:
    if len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC:
        return _converted(data)
    try:
        return RecordBatch(data)
    except ProtocolError:
        if not data:
            raise _invalid("there is no batch") from None
        if batch_at(data).size_bytes < len(data):
            raise _invalid("there must be exactly one batch, but bytes follow it") from None
        raise


def _converted(data: memoryview) -> RecordBatch:
    batches = to_batches(data, base_offset=0)
    if len(batches) != 1:
        raise _invalid(f"the message set makes {len(batches)} batches, not one")
    return RecordBatch(memoryview(batches[0]))


def _check_size(batch: RecordBatch, config: TopicConfig) -> None:
    size_bytes = len(batch.raw)
    if size_bytes > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch has {size_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if size_bytes > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch has {size_bytes} bytes, segment.bytes is {config.segment_bytes}",
        )


def _check_from_client(batch: RecordBatch, config: TopicConfig) -> None:
    _check_size(batch, config)
    batch.check_crc()
    _check_client_header(batch)


def _check_client_header(batch: RecordBatch) -> None:
    batch.check_gapless()
    compression_in(batch.attributes)
    if batch.attributes & _BROKERS_BITS:
        raise _brokers_bit(batch)
    if batch.producer_id > NO_PRODUCER_ID:
        if batch.base_sequence < 0 or batch.producer_epoch < 0:
            raise _invalid(
                f"producer {batch.producer_id} comes with epoch {batch.producer_epoch}"
                f" and sequence {batch.base_sequence}"
            )
    elif batch.is_transactional:
        raise _invalid("a transactional batch needs a producer id")


def _brokers_bit(batch: RecordBatch) -> ApiError:
    if batch.is_control:
        return _invalid("clients cannot write control batches")
    if batch.has_delete_horizon:
        return _invalid("clients cannot set a delete horizon")
    return ApiError(ErrorCode.INVALID_TIMESTAMP, "clients cannot write with LogAppendTime")


def _opened(batch: RecordBatch, config: TopicConfig, now_ms: int) -> RecordBatch:
    """Look at the records if the topic's settings ask for it, and compress them as they ask."""
    codec = batch.compression
    wanted = _wanted_codec(batch, config)
    is_create_time = config.message_timestamp_type is not _LOG_APPEND_TIME
    has_least_time = is_create_time and config.message_timestamp_before_max_ms != NO_LIMIT
    if codec is wanted and not config.is_compacted and not has_least_time:
        return batch
    section = uncompressed_records(batch)
    scan = scan_records(section, batch.record_count)
    if not scan.is_sequential:
        raise _invalid("the offset deltas of the records are not 0, 1, 2 and so on")
    if config.is_compacted and scan.null_key_count:
        raise _keyless(batch, scan.null_key_count)
    if is_create_time:
        _check_timestamps(
            batch, batch.base_timestamp_ms + scan.min_timestamp_delta_ms, config, now_ms
        )
    return batch if codec is wanted else _recompressed(batch, section, wanted, config)


def _check_timestamps(batch: RecordBatch, least_ms: int, config: TopicConfig, now_ms: int) -> None:
    if least_ms >= now_ms - config.message_timestamp_before_max_ms:
        return
    error = _bad_timestamps(records_of(batch), config, now_ms)
    if error.rejected:  # else they are no timestamps
        raise error


def _wanted_codec(batch: RecordBatch, config: TopicConfig) -> Compression:
    if config.compression_type == PRODUCER_COMPRESSION or batch.is_control:
        return batch.compression
    return compression_named(config.compression_type)


def _level(codec: Compression, config: TopicConfig) -> int | None:
    match codec:
        case Compression.GZIP:
            return config.compression_gzip_level
        case Compression.LZ4:
            return config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def _recompressed(
    batch: RecordBatch, section: Buffer, codec: Compression, config: TopicConfig
) -> RecordBatch:
    """Write the batch with another codec. The records inside stay as they are, byte for byte."""
    raw = bytearray(HEADER_BYTES)
    raw += compress(codec, section, _level(codec, config))
    HEADER.pack_into(
        raw,
        0,
        batch.base_offset,
        len(raw) - LOG_OVERHEAD_BYTES,
        batch.partition_leader_epoch,
        MAGIC,
        0,  # the checksum, once all that it covers is in place
        batch.attributes & ~CODEC_MASK | codec,
        batch.last_offset_delta,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    write_crc(memoryview(raw))
    recompressed = RecordBatch(memoryview(raw))
    _check_size(recompressed, config)
    return recompressed


def _bad_timestamps(
    records: Iterable[Record], config: TopicConfig, now_ms: int
) -> RejectedRecordsError:
    first_ms = now_ms - config.message_timestamp_before_max_ms
    last_ms = now_ms + config.message_timestamp_after_max_ms
    return RejectedRecordsError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamps from {first_ms} to {last_ms} are allowed",
        (
            (number, f"its timestamp is {record.timestamp_ms}")
            for number, record in enumerate(records)
            if not first_ms <= record.timestamp_ms <= last_ms
            and record.timestamp_ms != NO_TIMESTAMP
        ),
    )


def _keyless(batch: RecordBatch, count: int) -> ApiError:
    return RejectedRecordsError(
        ErrorCode.INVALID_RECORD,
        f"the topic is compacted, and {count} of the {batch.record_count} records have no key",
        (
            (number, "it has no key, and the topic is compacted")
            for number, record in enumerate(records_of(batch))
            if record.key is None
        ),
    )


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, detail)
