"""Whatever clients send, admission ends in a batch that keeps the rules or in one ApiError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.api_error import ApiError
from ottla.model.topic_config import CleanupPolicy, TimestampType, TopicConfig
from ottla.storage.admission import Origin, admit
from ottla.wire.records.batch import write_crc
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression import Compression
from ottla.wire.records.record import Record, records_of
from tests.record_strategies import record_lists

NOW_MS = 1_700_000_000_000
CHECKED_FROM = 16  # before it stand the offset, the size and the leader epoch

configs = st.builds(
    TopicConfig,
    cleanup_policy=st.frozensets(st.sampled_from(CleanupPolicy)),
    compression_type=st.sampled_from(["producer", "uncompressed", "lz4"]),
    message_timestamp_before_max_ms=st.sampled_from([1000, 2**63 - 1]),
    message_timestamp_type=st.sampled_from(TimestampType),
)


@given(record_lists(with_gaps=False))
def test_whatever_producers_write_is_taken(records: list[Record]) -> None:
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


@given(st.binary(max_size=200), configs, st.sampled_from(Origin))
def test_any_bytes_are_admitted_or_refused(
    data: bytes, config: TopicConfig, origin: Origin
) -> None:
    check_outcome(data, config, origin)


@given(record_lists(), st.data(), configs, st.sampled_from(Origin))
def test_any_damage_under_a_right_crc_is_admitted_or_refused(
    records: list[Record], data: st.DataObject, config: TopicConfig, origin: Origin
) -> None:
    raw = build_batch(records, compression=data.draw(st.sampled_from(Compression)))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(16, len(raw) - 1))] = data.draw(st.integers(0, 255))
    write_crc(memoryview(raw))
    check_outcome(raw, config, origin)
