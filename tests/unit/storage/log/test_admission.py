import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.topic_config import CleanupPolicy, TimestampType, TopicConfig
from ottla.storage.log.admission import Origin, RejectedRecordsError, admit, validate
from ottla.wire.protocol_error import TooLargeError
from ottla.wire.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    RecordBatch,
    write_crc,
)
from ottla.wire.records.builder import BatchBuilder, build_batch
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.message_set import to_message_set
from ottla.wire.records.record import Record, records_of
from tests.old_messages import message
from tests.record_peers import AiokafkaBuilder, KafkaPythonBuilder

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PLAIN = TopicConfig()
COMPACTED = TopicConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
LOG_APPEND_TIME = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
LIMITED = TopicConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=2000)
ANY_TIME = TopicConfig(message_timestamp_after_max_ms=2**62)

LENGTH = (">i", 8)
ATTRIBUTES = (">h", 21)
LAST_OFFSET_DELTA = (">i", 23)
BASE_TIMESTAMP = (">q", 27)
MAX_TIMESTAMP = (">q", 35)
PRODUCER_ID = (">q", 43)
PRODUCER_EPOCH = (">h", 51)
BASE_SEQUENCE = (">i", 53)
RECORD_COUNT = (">i", 57)


def produced(
    *values: bytes | None,
    timestamps: Sequence[int] = (),
    keys: Sequence[bytes | None] | None = None,
    compression: Compression = Compression.NONE,
) -> bytearray:
    builder = BatchBuilder(compression=compression)
    builder.extend(timestamps or NOW_MS, values, keys)
    return builder.build()


def altered(raw: bytearray, *fields: tuple[tuple[str, int], int]) -> bytearray:
    """Overwrite header fields of a batch and correct its CRC."""
    for (layout, position), number in fields:
        struct.pack_into(layout, raw, position, number)
    write_crc(memoryview(raw))
    return raw


def refusal(
    data: bytes | bytearray, config: TopicConfig = PLAIN, origin: Origin = Origin.CLIENT
) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        admit(memoryview(bytearray(data)), config, NOW_MS, origin=origin)
    assert caught.value.detail
    return caught.value.code


def admitted(
    data: bytes | bytearray, config: TopicConfig = PLAIN, origin: Origin = Origin.CLIENT
) -> RecordBatch:
    batch = admit(memoryview(bytearray(data)), config, NOW_MS, origin=origin)
    batch.check_crc()
    return batch


def compressed_as(compression_type: str, **settings: Any) -> TopicConfig:
    return replace(ANY_TIME, compression_type=compression_type, **settings)


# The usual way in


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_is_taken_as_it_lies_there(compression: Compression) -> None:
    data = produced(b"a", None, b"c", compression=compression)
    before = bytes(data)
    batch = admit(memoryview(data), PLAIN, NOW_MS)
    assert bytes(data) == before
    batch.restamp(77, 3)
    assert batch.raw.obj is data
    assert RecordBatch(memoryview(data)).base_offset == 77


@pytest.mark.parametrize("builder_type", [AiokafkaBuilder, KafkaPythonBuilder])
def test_batches_of_other_clients_are_taken(builder_type: type[AiokafkaBuilder]) -> None:
    for is_transactional, producer in ((0, (-1, -1, -1)), (1, (4000, 2, 17))):
        builder = builder_type(
            magic=2,
            compression_type=0,
            is_transactional=is_transactional,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            batch_size=10_000,
        )
        for offset in range(3):
            builder.append(offset, NOW_MS, b"key", b"value", [])
        data = builder.build()
        for config in (PLAIN, COMPACTED, LIMITED):
            assert admitted(data, config).record_count == 3


# One whole batch


def test_there_must_be_exactly_one_batch() -> None:
    one = produced(b"a")
    assert refusal(b"") is ErrorCode.INVALID_RECORD
    assert refusal(one + one) is ErrorCode.INVALID_RECORD
    assert refusal(one + b"\0") is ErrorCode.INVALID_RECORD
    for size_bytes in (len(one) - 1, HEADER_BYTES, HEADER_BYTES - 1, 17, 16, 5):
        assert refusal(one[:size_bytes]) is ErrorCode.INVALID_RECORD
    for size in (-1, 0, HEADER_BYTES - 13):
        raw = bytearray(one)
        struct.pack_into(">i", raw, 8, size)
        assert refusal(raw) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(one[:16] + b"\3") is ErrorCode.CORRUPT_MESSAGE


def test_a_format_that_does_not_exist_is_refused() -> None:
    raw = produced(b"a")
    raw[16] = 3
    assert refusal(raw) is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_can_be_too_large_for_its_topic() -> None:
    raw = produced(b"a" * 1000)
    admitted(raw, TopicConfig(max_message_bytes=len(raw), segment_bytes=len(raw)))
    too_large = refusal(raw, TopicConfig(max_message_bytes=len(raw) - 1))
    assert too_large is ErrorCode.MESSAGE_TOO_LARGE
    too_large = refusal(raw, TopicConfig(segment_bytes=len(raw) - 1))
    assert too_large is ErrorCode.RECORD_LIST_TOO_LARGE


# Batches that clients may not send


@pytest.mark.parametrize(
    ("last_offset_delta", "record_count"), [(2, 2), (1, 1), (1, 0), (0, 0), (-1, 0)]
)
def test_there_is_one_record_for_each_offset(last_offset_delta: int, record_count: int) -> None:
    raw = altered(
        produced(b"a", b"b"), (LAST_OFFSET_DELTA, last_offset_delta), (RECORD_COUNT, record_count)
    )
    assert refusal(raw) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("bit", "code"),
    [
        (CONTROL_BIT, ErrorCode.INVALID_RECORD),
        (DELETE_HORIZON_BIT, ErrorCode.INVALID_RECORD),
        (LOG_APPEND_TIME_BIT, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_some_attributes_are_for_brokers_only(bit: int, code: ErrorCode) -> None:
    assert refusal(altered(produced(b"a"), (ATTRIBUTES, bit))) is code


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    raw = altered(produced(b"a"), (ATTRIBUTES, codec))
    assert refusal(raw) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_producer_id_needs_an_epoch_and_a_sequence() -> None:
    def from_producer(producer_id: int, epoch: int, sequence: int) -> bytearray:
        fields = (PRODUCER_ID, producer_id), (PRODUCER_EPOCH, epoch), (BASE_SEQUENCE, sequence)
        return altered(produced(b"a"), *fields)

    admitted(from_producer(0, 0, 0))
    assert refusal(from_producer(1, 0, -1)) is ErrorCode.INVALID_RECORD
    assert refusal(from_producer(1, -1, 0)) is ErrorCode.INVALID_RECORD
    without_sequence = from_producer(1, 0, -1)
    assert admitted(without_sequence, origin=Origin.COORDINATOR).base_sequence == -1


def test_a_transaction_needs_a_producer_id() -> None:
    assert refusal(altered(produced(b"a"), (ATTRIBUTES, 0x10))) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("config", [PLAIN, COMPACTED, compressed_as("zstd")])
def test_coordinators_write_markers_which_are_never_compressed(config: TopicConfig) -> None:
    marker = end_txn_marker(ControlType.COMMIT, 1, 4000, 2, NOW_MS)
    assert bytes(admitted(marker, config, Origin.COORDINATOR).raw) == bytes(marker)
    assert refusal(marker, config) is ErrorCode.INVALID_RECORD


def test_what_coordinators_write_is_compressed_and_stamped_as_the_topic_has_it() -> None:
    ours = produced(b"a", keys=[b"k"])
    kept = admitted(ours, replace(COMPACTED, compression_type="uncompressed"), Origin.COORDINATOR)
    assert bytes(kept.raw) == bytes(ours)
    packed = admitted(ours, compressed_as("gzip"), Origin.COORDINATOR)
    assert packed.compression is Compression.GZIP
    packed.check_crc()
    assert [record.value for record in records_of(packed)] == [b"a"]
    assert admitted(ours, LOG_APPEND_TIME, Origin.COORDINATOR).is_log_append_time


# Timestamps


@pytest.mark.parametrize(
    ("timestamps", "is_allowed"),
    [
        ((NOW_MS - 1000, NOW_MS + 2000), True),
        ((NOW_MS + 2000, NOW_MS - 1000), True),
        ((NOW_MS, NOW_MS + 2001), False),
        ((NOW_MS, NOW_MS - 1001), False),
        ((NOW_MS - 1001, NOW_MS), False),
        ((-1, -1), True),
        ((NOW_MS, -1), True),
        ((-1, NOW_MS - 1000), True),
        ((-1, NOW_MS - 1001), False),
    ],
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_topic_may_limit_timestamps_in_both_directions(
    timestamps: tuple[int, int], is_allowed: bool, compression: Compression
) -> None:
    raw = produced(b"a", b"b", timestamps=timestamps, compression=compression)
    if is_allowed:
        assert [record.timestamp_ms for record in records_of(admitted(raw, LIMITED))] == [
            *timestamps
        ]
    else:
        assert refusal(raw, LIMITED) is ErrorCode.INVALID_TIMESTAMP


def test_by_default_only_the_future_is_limited() -> None:
    admitted(produced(b"a", timestamps=[0]))
    admitted(produced(b"a", timestamps=[NOW_MS + HOUR_MS]))
    too_late = produced(b"a", timestamps=[NOW_MS + HOUR_MS + 1])
    assert refusal(too_late) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("claimed_ms", [NOW_MS + HOUR_MS + 1, NOW_MS - 5, -1])
def test_a_max_timestamp_that_no_record_has_is_corrected(
    compression: Compression, claimed_ms: int
) -> None:
    raw = produced(b"a", b"b", timestamps=[NOW_MS - 7, NOW_MS - 9], compression=compression)
    lying = altered(raw, (MAX_TIMESTAMP, claimed_ms))
    assert admitted(lying).max_timestamp_ms == NOW_MS - 7
    untimed = altered(produced(b"a", timestamps=[-5]), (MAX_TIMESTAMP, claimed_ms))
    assert admitted(untimed).max_timestamp_ms == -1


@pytest.mark.parametrize(("base_ms", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (-(2**63), 5)])
def test_a_timestamp_beyond_64_bits_or_the_limits_is_refused(base_ms: int, delta: int) -> None:
    raw = produced(b"a", b"b", timestamps=[0, delta])
    config = replace(LIMITED, message_timestamp_after_max_ms=2**62)
    with pytest.raises(RejectedRecordsError) as caught:
        admit(memoryview(altered(raw, (BASE_TIMESTAMP, base_ms))), config, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert caught.value.rejected[-1] == (1, f"its timestamp is {base_ms + delta}")


@pytest.mark.parametrize("compression", Compression)
def test_with_log_append_time_the_broker_stamps_the_batch(compression: Compression) -> None:
    data = produced(b"a", b"b", timestamps=[5, 2**60], compression=compression)
    batch = admit(memoryview(data), LOG_APPEND_TIME, NOW_MS)
    assert batch.raw.obj is data
    batch.check_crc()
    assert batch.is_log_append_time
    assert [record.timestamp_ms for record in records_of(batch)] == [NOW_MS, NOW_MS]


def test_with_log_append_time_no_limit_counts() -> None:
    raw = produced(b"a", timestamps=[0], keys=[b"k"])
    for policy in (PLAIN.cleanup_policy, COMPACTED.cleanup_policy):
        config = replace(
            LOG_APPEND_TIME,
            cleanup_policy=policy,
            message_timestamp_before_max_ms=0,
            message_timestamp_after_max_ms=0,
        )
        assert admitted(raw, config).max_timestamp_ms == NOW_MS


# Records


@pytest.mark.parametrize("compression", Compression)
def test_in_a_compacted_topic_every_record_needs_a_key(compression: Compression) -> None:
    values = [b"a", None]
    admitted(produced(*values, keys=[b"", b"k"], compression=compression), COMPACTED)
    without = produced(*values, keys=[b"k", None], compression=compression)
    assert refusal(without, COMPACTED) is ErrorCode.INVALID_RECORD
    admitted(without)


@pytest.mark.parametrize("config", [PLAIN, COMPACTED, LIMITED, compressed_as("gzip")])
def test_every_record_must_be_readable(config: TopicConfig) -> None:
    raw = produced(b"a", b"b", keys=[b"k", b"l"])
    raw[-1] = 0xFF
    with pytest.raises(RejectedRecordsError) as caught:
        admit(memoryview(altered(raw)), config, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.rejected] == [1]


def test_bytes_behind_the_last_record_are_the_fault_of_no_record() -> None:
    raw = altered(produced(b"a") + b"\0", (LENGTH, len(produced(b"a")) - 11))
    with pytest.raises(RejectedRecordsError) as caught:
        admit(memoryview(raw), PLAIN, NOW_MS)
    assert caught.value.rejected == ()


@pytest.mark.parametrize("config", [PLAIN, COMPACTED])
@pytest.mark.parametrize("compression", [codec for codec in Compression if codec])
def test_batches_that_cannot_be_decompressed_are_refused(
    compression: Compression, config: TopicConfig
) -> None:
    raw = altered(produced(b"a" * 100, keys=[b"k"]), (ATTRIBUTES, compression))
    assert refusal(raw, config) is ErrorCode.INVALID_RECORD


def test_offsets_must_be_dense() -> None:
    records = [Record(0, NOW_MS, b"k", b"a"), Record(2, NOW_MS, b"k", b"b")]
    raw = altered(build_batch(records), (LAST_OFFSET_DELTA, 1))
    assert refusal(raw) is ErrorCode.INVALID_RECORD


def test_what_was_validated_is_admitted_as_it_is_unless_its_topic_was_altered() -> None:
    one = validate(memoryview(produced(b"a", b"b", compression=Compression.GZIP)), PLAIN, NOW_MS)
    one.batch.raw[-1] ^= 1  # a second validation would find this
    assert admit(one, PLAIN, NOW_MS) is one.batch
    with pytest.raises(ApiError):
        admit(one, replace(PLAIN), NOW_MS)


def test_a_caller_may_ask_for_less_to_be_decompressed() -> None:
    data = memoryview(produced(bytes(1000), compression=Compression.ZSTD))
    one = validate(data, PLAIN, NOW_MS, decompressed_bytes_max=1100)
    assert 1000 < one.decompressed_bytes < 1100
    with pytest.raises(TooLargeError):
        validate(data, PLAIN, NOW_MS, decompressed_bytes_max=1000)


# Compression


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("compression", Compression)
def test_a_topic_may_ask_for_another_codec(name: str, compression: Compression) -> None:
    records = [Record(n, NOW_MS + n % 3, b"key", b"value" * n) for n in range(50)]
    raw = build_batch(
        records,
        compression=compression,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=17,
        is_transactional=True,
    )
    source = RecordBatch(memoryview(raw))
    batch = admitted(raw, compressed_as(name))
    assert batch.compression.config_name == name.replace("uncompressed", "none")
    assert records_of(batch) == records
    for field in set(RecordBatch.__slots__) - {"raw", "crc", "attributes"}:
        assert getattr(batch, field) == getattr(source, field)
    assert batch.is_transactional


def test_a_batch_that_has_the_codec_is_left_alone() -> None:
    raw = produced(b"a" * 1000, compression=Compression.GZIP)
    config = compressed_as("gzip", compression_gzip_level=9)
    assert admit(memoryview(raw), config, NOW_MS).raw.obj is raw


@pytest.mark.parametrize(
    ("name", "level_setting", "levels"),
    [("gzip", "compression_gzip_level", (1, 9)), ("zstd", "compression_zstd_level", (-50, 19))],
)
def test_the_topics_level_is_used(name: str, level_setting: str, levels: tuple[int, int]) -> None:
    raw = produced(*(b"%d" % (n * n * 7919) for n in range(500)))
    fast, small = (admitted(raw, compressed_as(name, **{level_setting: n})) for n in levels)
    assert small.size_bytes < fast.size_bytes


def test_a_batch_can_become_too_large_for_its_topic() -> None:
    raw = produced(b"a" * 5000, compression=Compression.ZSTD)
    config = compressed_as("uncompressed", max_message_bytes=5000)
    assert refusal(raw, config) is ErrorCode.MESSAGE_TOO_LARGE


def test_compressed_anew_and_stamped() -> None:
    config = TopicConfig(
        compression_type="lz4", message_timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    batch = admitted(produced(b"a", timestamps=[5]), config)
    assert (batch.compression, batch.max_timestamp_ms) == (Compression.LZ4, NOW_MS)


# Old formats


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_old_message_sets_become_one_batch(magic: int, compression: Compression) -> None:
    records = [Record(n, NOW_MS if magic else -1, b"k", b"%d" % n) for n in range(3)]
    data = to_message_set(records, magic=magic, compression=compression)
    for config in (PLAIN, COMPACTED, LIMITED):
        batch = admitted(data, config)
        assert (batch.compression, records_of(batch)) == (compression, records)
    assert records_of(admitted(data, compressed_as("zstd"))) == records
    assert admitted(data, LOG_APPEND_TIME).max_timestamp_ms == NOW_MS


def test_old_producers_number_their_messages_as_they_like() -> None:
    data = message(7, b"a") + message(0, b"b") + message(0, b"c")
    batch = admitted(data)
    assert [(record.offset, record.value) for record in records_of(batch)] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_a_compressed_message_comes_alone() -> None:
    records = [Record(0, NOW_MS, None, b"a")]
    data = to_message_set(records, magic=1, compression=Compression.GZIP)
    assert refusal(data + data) is ErrorCode.INVALID_RECORD


def test_old_message_sets_keep_the_rules() -> None:
    assert refusal(message(0, b"a"), COMPACTED) is ErrorCode.INVALID_RECORD
    late = message(0, b"a", timestamp_ms=NOW_MS + HOUR_MS + 1)
    assert refusal(late) is ErrorCode.INVALID_TIMESTAMP
    stamped = message(0, b"a", attributes=LOG_APPEND_TIME_BIT)
    assert refusal(stamped) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(message(0, b"a" * 100), TopicConfig(max_message_bytes=100)) is (
        ErrorCode.MESSAGE_TOO_LARGE
    )
    assert refusal(message(0, b"a")[:-1]) is ErrorCode.CORRUPT_MESSAGE
