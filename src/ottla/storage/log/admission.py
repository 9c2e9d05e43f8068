"""Validates produced records before a log appends them.

Every record of a client's batch is checked, as in Kafka: a batch with a correct CRC can still be
unreadable, and would stop every consumer at its offset. Compressed batches are decompressed for
this, within the limits of `decompress`. Ottla is stricter than Kafka. It also refuses offset deltas
other than 0, 1, 2 and so on, lengths below -1, header keys that are not UTF-8, bytes after the end
of the compressed records, and attribute bits that only brokers set (decision 0041). Base offset and
leader epoch are not checked, because the log sets them. A max timestamp that differs from the
greatest timestamp of the records is corrected.

`validate` does the slow part and runs on any thread; `admit` calls it unless it gets the result.
Batches of this broker's coordinators are not validated. Neither are a follower's fetched batches:
the leader has validated them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.topic_config import PRODUCER_COMPRESSION, TimestampType, TopicConfig
from ottla.wire.protocol_error import MalformedRecordError, ProtocolError, TooLargeError
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
from ottla.wire.records.compression.codecs import (
    DECOMPRESSED_BYTES_MAX,
    Compression,
    compress,
    compression_in,
    compression_named,
)
from ottla.wire.records.loops import rejected_records
from ottla.wire.records.message_set import NO_TIMESTAMP, to_batches
from ottla.wire.records.record import (
    RecordScan,
    scan_records,
    uncompressed_records,
)

REJECTED_MAX = 1_000
"""The maximum number of refused records per batch that the response lists."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_BROKERS_BITS = CONTROL_BIT | LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


class RejectedRecordsError(ApiError):
    """Some records of a batch were refused, and the batch with them."""

    def __init__(self, code: ErrorCode, detail: str, rejected: Iterable[tuple[int, str]]) -> None:
        super().__init__(code, detail)
        self.rejected = tuple(rejected)
        """The indexes of rejected records in their batch, each with its error."""


class Origin(Enum):
    """The origin of a batch: the checks for clients do not apply to our own coordinators.

    Fetched batches of a follower are not admitted again; the leader has admitted them.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Validated:
    """A client's batch that `validate` has passed, for a topic with this config."""

    batch: RecordBatch
    config: TopicConfig
    decompressed_bytes: int
    """The size of its records without compression, as they were sent."""

    def __len__(self) -> int:
        return len(self.batch.raw)


def admit(
    data: memoryview | Validated,
    config: TopicConfig,
    now_ms: int,
    *,
    origin: Origin = Origin.CLIENT,
) -> RecordBatch:
    """Return the one batch to append; ApiError describes the producer's mistake.

    The batch is a view of `data`, which must be writable: log append time may be stamped into it.
    If it was converted from an old message set or recompressed, it has its own memory. Its offsets
    and leader epoch are still the producer's.
    """
    if not isinstance(data, Validated):
        if origin is Origin.COORDINATOR:
            return _own(data, config, now_ms)
        batch, _ = _validated(data, config, now_ms, DECOMPRESSED_BYTES_MAX)
    elif data.config is config:
        batch = data.batch
    else:  # the topic was altered meanwhile
        batch, _ = _validated(data.batch.raw, config, now_ms, DECOMPRESSED_BYTES_MAX)
    if config.message_timestamp_type is _LOG_APPEND_TIME:
        batch.stamp_log_append_time(now_ms)
    return batch


def validate(
    data: memoryview,
    config: TopicConfig,
    now_ms: int,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Validated:
    """Check the batch and its records, and compress them as the topic asks; ApiError as in `admit`.

    TooLargeError if the records decompress to more than a lower `decompressed_bytes_max`.
    """
    batch, size_bytes = _validated(data, config, now_ms, decompressed_bytes_max)
    return Validated(batch, config, size_bytes)


def _validated(
    data: memoryview, config: TopicConfig, now_ms: int, decompressed_bytes_max: int
) -> tuple[RecordBatch, int]:
    batch = _only_batch(data)
    _check_size(batch, config)
    batch.check_crc()
    _check_client_header(batch)
    section = _section(batch, decompressed_bytes_max)
    scan = _scanned(batch, section)
    is_create_time = config.message_timestamp_type is not _LOG_APPEND_TIME
    if is_create_time or (config.is_compacted and scan.null_key_count):
        _check_topic_rules(batch, section, scan, config, now_ms)
    wanted = _wanted_codec(batch, config)
    if wanted is not batch.compression:
        batch = _recompressed(batch, section, wanted, config)
    if is_create_time:
        greatest_ms = max(batch.base_timestamp_ms + scan.max_timestamp_delta_ms, NO_TIMESTAMP)
        if greatest_ms != batch.max_timestamp_ms:
            batch.stamp_max_timestamp(greatest_ms)
    return batch, len(section)


def is_compressed_anew(data: memoryview, config: TopicConfig) -> bool:
    """Return whether `admit` would compress this batch: it has another codec than its topic."""
    return (
        config.compression_type != PRODUCER_COMPRESSION
        and len(data) >= HEADER_BYTES
        and data[MAGIC_AT] == MAGIC
        and data[ATTRIBUTES_LOW_BYTE_AT] & CODEC_MASK != compression_named(config.compression_type)
    )


def _own(data: memoryview, config: TopicConfig, now_ms: int) -> RecordBatch:
    """Admit a batch of this broker's coordinators without validation."""
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
    except ProtocolError as error:
        raise _not_one_batch(data, error) from None


def _not_one_batch(data: memoryview, error: ProtocolError) -> ApiError:
    """Choose the error code that Kafka gives to bytes that are not exactly one batch."""
    if len(data) <= MAGIC_AT:
        return _invalid(f"there is no batch in {len(data)} bytes")
    size_bytes = LOG_OVERHEAD_BYTES + int.from_bytes(data[8:LOG_OVERHEAD_BYTES], "big", signed=True)
    if data[MAGIC_AT] != MAGIC or size_bytes < HEADER_BYTES:
        return error
    if size_bytes > len(data):
        return _invalid(f"a batch of {size_bytes} bytes is cut off after {len(data)}")
    if size_bytes == len(data):
        return _invalid(error.detail)  # the counts in its header are impossible
    batch_at(data).check_crc()
    return _invalid("there must be exactly one batch, but bytes follow it")


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


def _section(batch: RecordBatch, size_bytes_max: int) -> Buffer:
    """Return the uncompressed records."""
    try:
        return uncompressed_records(batch, size_bytes_max=size_bytes_max)
    except TooLargeError as error:
        if size_bytes_max < DECOMPRESSED_BYTES_MAX:
            raise
        raise _invalid(error.detail) from None
    except ProtocolError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        # Producers retry CORRUPT_MESSAGE. With a correct CRC these are the bytes they wrote.
        raise _invalid(error.detail) from None


def _scanned(batch: RecordBatch, section: Buffer) -> RecordScan:
    try:
        return scan_records(section, batch.record_count)
    except MalformedRecordError as error:
        named = [(error.index, error.detail)] if error.index < batch.record_count else []
        raise RejectedRecordsError(error.code, error.detail, named) from None


def _check_topic_rules(
    batch: RecordBatch, section: Buffer, scan: RecordScan, config: TopicConfig, now_ms: int
) -> None:
    """Refuse null keys where the topic is compacted, and timestamps out of its bounds."""
    base_ms = batch.base_timestamp_ms
    first_ms, last_ms = _INT64_MIN, _INT64_MAX
    if config.message_timestamp_type is not _LOG_APPEND_TIME:
        first_ms = max(first_ms, now_ms - config.message_timestamp_before_max_ms)
        last_ms = min(last_ms, now_ms + config.message_timestamp_after_max_ms)
    is_in_time = (
        first_ms <= base_ms + scan.min_timestamp_delta_ms
        and base_ms + scan.max_timestamp_delta_ms <= last_ms
    )
    needs_keys = config.is_compacted and scan.null_key_count > 0
    if is_in_time and not needs_keys:
        return
    least, greatest = first_ms - base_ms, last_ms - base_ms
    if least > _INT64_MAX or greatest < _INT64_MIN:
        least, greatest = 1, 0  # no delta reaches the bounds
    rejected = rejected_records(
        section,
        batch.record_count,
        needs_keys,
        max(least, _INT64_MIN),
        min(greatest, _INT64_MAX),
        NO_TIMESTAMP - base_ms,
        REJECTED_MAX,
    )
    if rejected:  # else all that is out of bounds is the timestamp -1, which stands for none
        raise _rejected(rejected, batch, first_ms, last_ms)


def _rejected(
    found: list[tuple[int, int | None]], batch: RecordBatch, first_ms: int, last_ms: int
) -> RejectedRecordsError:
    messages = [
        (
            index,
            "it has no key, and the topic is compacted"
            if delta is None
            else f"its timestamp is {batch.base_timestamp_ms + delta}",
        )
        for index, delta in found
    ]
    if all(delta is None for _, delta in found):
        detail = f"the topic is compacted, and {len(found)} records or more have no key"
        return RejectedRecordsError(ErrorCode.INVALID_RECORD, detail, messages)
    detail = f"timestamps from {first_ms} to {last_ms} are allowed"
    return RejectedRecordsError(ErrorCode.INVALID_TIMESTAMP, detail, messages)


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


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, detail)
