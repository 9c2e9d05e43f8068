"""For any input of a client, admission returns a valid batch or raises one ApiError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.api_error import ApiError
from ottla.model.settings.topic_config import CleanupPolicy, TimestampType, TopicConfig
from ottla.storage.log.admission import Origin, admit
from ottla.wire.records.batch import (
    ATTRIBUTES_LOW_BYTE_AT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    write_crc,
)
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression.codecs import Compression, compress
from ottla.wire.records.record import Record, records_of
from tests.record_strategies import record_lists

NOW_MS = 1_700_000_000_000
CHECKED_FROM = 16  # after the base offset, the size and the leader epoch

configs = st.builds(
    TopicConfig,
    cleanup_policy=st.frozensets(st.sampled_from(CleanupPolicy)),
    compression_type=st.sampled_from(["producer", "uncompressed", "lz4"]),
    message_timestamp_before_max_ms=st.sampled_from([1000, 2**63 - 1]),
    message_timestamp_after_max_ms=st.sampled_from([3_600_000, 2**63 - 1]),
    message_timestamp_type=st.sampled_from(TimestampType),
)


@given(record_lists(with_gaps=False))
def test_all_valid_batches_are_accepted(records: list[Record]) -> None:
    config = TopicConfig(message_timestamp_after_max_ms=2**62)
    batch = admit(memoryview(build_batch(records)), config, NOW_MS)
    assert records_of(batch) == records


@given(record_lists(with_gaps=False), st.data())
def test_a_flipped_bit_is_not_taken(records: list[Record], data: st.DataObject) -> None:
    raw = build_batch(records)
    bit = data.draw(st.integers(8 * CHECKED_FROM, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ApiError):
        admit(memoryview(raw), TopicConfig(), NOW_MS)


def check_outcome(data: bytes | bytearray, config: TopicConfig, origin: Origin) -> None:
    try:
        batch = admit(memoryview(bytearray(data)), config, NOW_MS, origin=origin)
    except ApiError:
        return
    batch.check_crc()
    assert batch.size_bytes <= config.max_message_bytes
    if origin is Origin.CLIENT:
        assert batch.record_count == batch.last_offset_delta + 1 > 0
        assert not batch.is_control
        batch.restamp(40, 3)
        records = records_of(batch)
        assert [record.offset for record in records] == list(range(40, 40 + batch.record_count))
        greatest_ms = max(record.timestamp_ms for record in records)
        assert batch.max_timestamp_ms == max(greatest_ms, -1)


@given(st.binary(max_size=200), configs, st.sampled_from(Origin))
def test_any_bytes_are_admitted_or_refused(
    data: bytes, config: TopicConfig, origin: Origin
) -> None:
    check_outcome(data, config, origin)


@given(record_lists(with_gaps=False), st.data(), configs, st.sampled_from(Compression))
def test_a_damaged_batch_with_a_right_crc_is_refused_or_readable(
    records: list[Record], data: st.DataObject, config: TopicConfig, codec: Compression
) -> None:
    damaged = build_batch(records)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(HEADER_BYTES, len(damaged) - 1))] = data.draw(
            st.integers(0, 255)
        )
    raw = damaged[:HEADER_BYTES] + compress(codec, damaged[HEADER_BYTES:])
    raw[8:12] = (len(raw) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    raw[ATTRIBUTES_LOW_BYTE_AT] |= codec
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(CHECKED_FROM, len(raw) - 1))] = data.draw(st.integers(0, 255))
    write_crc(memoryview(raw))
    check_outcome(raw, config, Origin.CLIENT)
