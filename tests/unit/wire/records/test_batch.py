import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import HEADER_BYTES, RecordBatch, batch_at, batches, write_crc
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import records_of
from tests.record_peers import KafkaPythonBatch

LENGTH = (">i", 8)
ATTRIBUTES = (">h", 21)
LAST_OFFSET_DELTA = (">i", 23)
BASE_SEQUENCE = (">i", 53)
RECORD_COUNT = (">i", 57)
Field = tuple[str, int]

# Built from the protocol's description: at offset 7, transactional, a value and then a tombstone.
BY_HAND = bytes.fromhex(
    "0000000000000007 00000041 00000003 02 d45f402c 0010 00000001"
    "0000018bcfe56800 0000018bcfe56805 00000000000003e9 0002 0000000a 00000002"
    "0e 00 00 00 01 02 61 00"
    "0e 00 0a 02 02 6b 01 00"
)


def batch_of(*values: bytes | None, base_offset: int = 0) -> bytearray:
    builder = BatchBuilder(base_offset=base_offset)
    builder.extend(1_700_000_000_000, values)
    return builder.build()


def altered(raw: bytes | bytearray, *fields: tuple[Field, int]) -> RecordBatch:
    """Overwrite header fields of one batch, correct its CRC, and read it."""
    copy = bytearray(raw)
    for (layout, position), number in fields:
        struct.pack_into(layout, copy, position, number)
    write_crc(memoryview(copy))
    return RecordBatch(memoryview(copy))


def refusal(raw: bytes | bytearray | memoryview) -> ErrorCode:
    with pytest.raises(ProtocolError) as caught:
        batch_at(raw)
    return caught.value.code


def test_a_header_is_read_field_by_field() -> None:
    batch = RecordBatch(memoryview(BY_HAND))
    assert (batch.base_offset, batch.last_offset_delta, batch.record_count) == (7, 1, 2)
    assert (batch.last_offset, batch.end_offset) == (8, 9)
    assert (batch.partition_leader_epoch, batch.magic) == (3, 2)
    assert (batch.crc, batch.attributes) == (0xD45F402C, 0x10)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (1700000000000, 1700000000005)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1001, 2, 10)
    assert batch.has_producer_id
    assert batch.last_sequence == 11
    assert batch.is_transactional
    assert not batch.is_control
    assert not batch.is_log_append_time
    assert not batch.has_delete_horizon
    assert batch.compression is Compression.NONE
    assert batch.size_bytes == len(BY_HAND)
    assert bytes(batch.records_view) == BY_HAND[HEADER_BYTES:]
    assert batch.has_valid_crc()
    assert repr(batch) == "<RecordBatch offsets 7..8, 2 records, 77 bytes>"


def test_kafka_python_reads_the_same_header() -> None:
    peer = KafkaPythonBatch(BY_HAND)
    batch = RecordBatch(memoryview(BY_HAND))
    assert peer.validate_crc()
    assert (peer.base_offset, peer.next_offset) == (batch.base_offset, batch.end_offset)
    assert (peer.crc, peer.leader_epoch) == (batch.crc, batch.partition_leader_epoch)
    assert (peer.first_timestamp, peer.max_timestamp) == (
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
    )
    assert (peer.producer_id, peer.last_sequence) == (batch.producer_id, batch.last_sequence)
    assert (peer.is_transactional, peer.records_count) == (True, batch.record_count)


def test_the_view_is_not_a_copy() -> None:
    raw = bytearray(BY_HAND)
    batch = batch_at(raw)
    raw[-4] = ord("K")
    assert bytes(batch.raw[-4:-3]) == b"K"


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_buffer_too_short_for_a_header_is_refused(size: int) -> None:
    assert refusal(BY_HAND[:size]) is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(ProtocolError):
        RecordBatch(memoryview(BY_HAND)[:size])


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_older_than_batches_are_told_from_damage(magic: int) -> None:
    raw = bytearray(BY_HAND)
    raw[16] = magic
    assert refusal(raw) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert refusal(raw[:20]) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_an_unknown_magic_is_damage(magic: int) -> None:
    raw = bytearray(BY_HAND)
    struct.pack_into(">b", raw, 16, magic)
    assert refusal(raw) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 66, 2**31 - 1])
def test_a_length_that_lies_is_refused(length: int) -> None:
    raw = bytearray(BY_HAND)
    struct.pack_into(">i", raw, 8, length)
    assert refusal(raw) is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(ProtocolError, match="its header says"):
        RecordBatch(memoryview(raw))


@pytest.mark.parametrize(
    ("record_count", "last_offset_delta"),
    [(-1, 1), (1, -1), (3, 1), (2, -(2**31)), (2**31 - 1, 5), (0, -2)],
)
def test_counts_that_cannot_be_are_refused(record_count: int, last_offset_delta: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        altered(BY_HAND, (RECORD_COUNT, record_count), (LAST_OFFSET_DELTA, last_offset_delta))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_compacted_batch_has_fewer_records_than_offsets() -> None:
    batch = altered(BY_HAND, (LAST_OFFSET_DELTA, 9))
    assert (batch.record_count, batch.end_offset) == (2, 17)
    with pytest.raises(ProtocolError, match="2 records for 10 offsets") as caught:
        batch.check_gapless()
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_batch_may_have_lost_all_its_records() -> None:
    empty = altered(BY_HAND[:HEADER_BYTES], (LENGTH, HEADER_BYTES - 12), (RECORD_COUNT, 0))
    assert (empty.record_count, empty.end_offset) == (0, 9)
    assert records_of(empty) == []
    with pytest.raises(ProtocolError):
        empty.check_gapless()


def test_what_a_producer_sends_has_a_record_for_each_offset() -> None:
    batch_at(batch_of(b"a", b"b", b"c")).check_gapless()


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_without_a_name_is_refused(codec: int) -> None:
    batch = altered(BY_HAND, (ATTRIBUTES, codec))
    with pytest.raises(ProtocolError) as caught:
        _ = batch.compression
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", Compression)
def test_each_codec_is_recognised_among_the_other_attributes(codec: Compression) -> None:
    assert altered(BY_HAND, (ATTRIBUTES, 0x78 | codec)).compression is codec


@pytest.mark.parametrize(
    ("bit", "name"),
    [
        (0x08, "is_log_append_time"),
        (0x10, "is_transactional"),
        (0x20, "is_control"),
        (0x40, "has_delete_horizon"),
    ],
)
def test_each_attribute_is_one_bit(bit: int, name: str) -> None:
    assert getattr(altered(BY_HAND, (ATTRIBUTES, bit)), name)
    assert not getattr(altered(BY_HAND, (ATTRIBUTES, 0x7F ^ bit)), name)


def test_sequence_numbers_start_again_after_the_largest() -> None:
    assert altered(BY_HAND, (BASE_SEQUENCE, 2**31 - 2)).last_sequence == 2**31 - 1
    assert altered(BY_HAND, (BASE_SEQUENCE, 2**31 - 1)).last_sequence == 0


def test_without_a_producer_there_is_no_sequence() -> None:
    batch = batch_at(batch_of(b"a", b"b"))
    assert not batch.has_producer_id
    assert batch.last_sequence == -1


def test_a_flipped_bit_is_found_by_the_crc() -> None:
    for position in range(21, len(BY_HAND)):
        for bit in range(8):
            raw = bytearray(BY_HAND)
            raw[position] ^= 1 << bit
            try:
                batch = RecordBatch(memoryview(raw))
            except ProtocolError:
                continue  # the header is refused already
            assert not batch.has_valid_crc()
            with pytest.raises(ProtocolError, match="CRC") as caught:
                batch.check_crc()
            assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_a_restamped_batch_keeps_its_crc(base_offset: int, leader_epoch: int) -> None:
    raw = bytearray(BY_HAND)
    batch = batch_at(raw)
    batch.restamp(base_offset, leader_epoch)
    again = batch_at(raw)
    for seen in (batch, again):
        assert (seen.base_offset, seen.partition_leader_epoch) == (base_offset, leader_epoch)
        seen.check_crc()
    assert raw[16:] == BY_HAND[16:]


def test_log_append_time_replaces_every_timestamp() -> None:
    raw = bytearray(BY_HAND)
    batch = batch_at(raw)
    batch.stamp_log_append_time(1_800_000_000_000)
    again = batch_at(raw)
    for seen in (batch, again):
        assert seen.is_log_append_time
        assert seen.is_transactional
        assert seen.base_timestamp_ms == 1_700_000_000_000
        assert [record.timestamp_ms for record in records_of(seen)] == [1_800_000_000_000] * 2
        seen.check_crc()
    assert KafkaPythonBatch(bytes(raw)).validate_crc()


def test_batches_lie_back_to_back() -> None:
    buffer = batch_of(b"a", base_offset=5) + BY_HAND + batch_of(b"b", b"c", base_offset=9)
    assert [batch.base_offset for batch in batches(buffer)] == [5, 7, 9]
    second = batch_at(buffer, position=next(batches(buffer)).size_bytes)
    assert second.raw == BY_HAND


def test_a_batch_cut_off_at_the_end_of_a_fetch_is_left_out() -> None:
    first, second = batch_of(b"a", base_offset=5), batch_of(b"b", base_offset=6)
    for cut in range(len(second)):
        offsets = [batch.base_offset for batch in batches(first + second[:cut])]
        assert offsets == [5]


def test_the_batches_before_a_damaged_one_are_still_read() -> None:
    damaged = bytearray(BY_HAND)
    struct.pack_into(">i", damaged, 8, 3)
    reading = batches(BY_HAND + damaged)
    assert next(reading).base_offset == 7
    with pytest.raises(ProtocolError):
        next(reading)


@given(st.binary(max_size=200))
def test_noise_ends_in_batches_or_in_a_protocol_error(noise: bytes) -> None:
    with suppress(ProtocolError):
        assert sum(batch.size_bytes for batch in batches(noise)) <= len(noise)
