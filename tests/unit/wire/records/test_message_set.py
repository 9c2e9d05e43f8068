"""Reading the two formats before record batches, and refusing invalid sets."""

import itertools
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import batch_at
from ottla.wire.records.compression import lz4_header
from ottla.wire.records.compression.codecs import Compression, compress
from ottla.wire.records.compression.inflation import Buffer
from ottla.wire.records.message_set import (
    COMPRESSED_COUNT_FREE,
    records_of_message_set,
    to_batches,
)
from ottla.wire.records.record import Record
from tests.old_messages import GZIP, LOG_APPEND_TIME, gzipped, message, sealed

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]

each_magic = pytest.mark.parametrize("magic", [0, 1])
each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.config_name)


def refusal(
    view: Buffer, read: Callable[[Buffer], object] = records_of_message_set
) -> ProtocolError:
    with pytest.raises(ProtocolError) as raised:
        read(view)
    return raised.value


# Reading


def test_messages_of_the_second_format_are_read() -> None:
    view = message(7, b"one", key=b"k", timestamp_ms=5) + message(9, None, key=b"")
    records = [Record(7, 5, b"k", b"one"), Record(9, 1000, b"", None)]
    assert records_of_message_set(view) == records


def test_messages_of_the_first_format_have_no_timestamp() -> None:
    assert records_of_message_set(message(7, b"one", magic=0)) == [Record(7, -1, None, b"one")]


def test_an_empty_set_has_no_records() -> None:
    assert records_of_message_set(b"") == []
    assert to_batches(b"") == []


def test_a_set_may_hold_both_formats() -> None:
    records = records_of_message_set(message(1, magic=0) + message(2, magic=1))
    assert [record.timestamp_ms for record in records] == [-1, 1000]


def test_compressed_offsets_are_absolute_in_the_first_format() -> None:
    inner = message(41, b"a", magic=0) + message(44, b"b", magic=0)
    records = records_of_message_set(gzipped(44, inner, magic=0))
    assert records == [Record(41, -1, None, b"a"), Record(44, -1, None, b"b")]


def test_compressed_offsets_count_from_the_first_one_in_the_second_format() -> None:
    inner = message(0, b"a", timestamp_ms=5) + message(3, b"b", timestamp_ms=6)
    records = records_of_message_set(gzipped(44, inner, timestamp_ms=6))
    assert records == [Record(41, 5, None, b"a"), Record(44, 6, None, b"b")]


def test_offsets_of_a_producer_that_leaves_the_outer_one_at_zero_stay_as_they_are() -> None:
    records = records_of_message_set(gzipped(0, message(0) + message(1)))
    assert [record.offset for record in records] == [0, 1]


def test_the_broker_s_time_replaces_the_timestamps_inside() -> None:
    inner = message(0, timestamp_ms=5) + message(1, timestamp_ms=6)
    outer = gzipped(1, inner, attributes=GZIP | LOG_APPEND_TIME, timestamp_ms=77)
    assert [record.timestamp_ms for record in records_of_message_set(outer)] == [77, 77]


def test_the_bit_for_the_broker_s_time_means_nothing_in_the_first_format() -> None:
    outer = gzipped(0, message(0, magic=0), attributes=GZIP | LOG_APPEND_TIME, magic=0)
    assert records_of_message_set(outer)[0].timestamp_ms == -1
    assert not batch_at(to_batches(outer)[0]).is_log_append_time


@each_codec
@each_magic
def test_every_codec_is_read(codec: Compression, magic: int) -> None:
    inner = message(0, b"a", magic=magic) + message(1, b"b", magic=magic)
    content = compress(codec, inner)
    outer = message(1, content, magic=magic, attributes=codec) if codec else inner
    assert [record.value for record in records_of_message_set(outer)] == [b"a", b"b"]


def test_lz4_in_the_first_format_may_have_the_wrong_header_checksum() -> None:
    content = lz4_header.with_wrong_header_checksum(
        compress(Compression.LZ4, message(0, magic=0) + message(1, magic=0))
    )
    assert len(records_of_message_set(message(1, content, magic=0, attributes=3))) == 2
    error = refusal(message(1, content, attributes=3))
    assert error.detail.startswith("lz4: ")


# The end of a set


@each_magic
def test_a_cut_off_end_is_left_out_only_where_that_is_allowed(magic: int) -> None:
    whole = message(1, magic=magic)
    last = message(2, magic=magic)
    for length in range(1, len(last)):
        cut = whole + last[:length]
        assert len(records_of_message_set(cut, is_cut_off_allowed=True)) == 1
        error = refusal(cut)
        assert f"at byte {len(whole)}: breaks off after {length} bytes" in error.detail


def test_a_cut_off_end_inside_a_compressed_message_is_never_allowed() -> None:
    outer = gzipped(1, message(0) + message(1)[:-1])
    error = refusal(outer, partial(records_of_message_set, is_cut_off_allowed=True))
    assert error.detail.startswith("message at byte 0: inside it, message at byte 39: breaks off")


# Invalid sets


@pytest.mark.parametrize("size_bytes", [-(1 << 31), -13, -12, -1, 0, 4, 13])
def test_a_size_that_cannot_be_is_refused(size_bytes: int) -> None:
    lie = struct.pack(">qi", 0, size_bytes) + bytes(100)
    for is_cut_off_allowed in (False, True):
        read = partial(records_of_message_set, is_cut_off_allowed=is_cut_off_allowed)
        error = refusal(lie, read)
        assert error.detail == f"message at byte 0: its size is {size_bytes}"


@each_magic
def test_a_flipped_bit_is_found_by_the_crc(magic: int) -> None:
    whole = message(1, b"value", key=b"key", magic=magic)
    for position in range(12, len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        assert "its CRC" in refusal(changed).detail


def test_a_flipped_bit_inside_a_compressed_message_is_found() -> None:
    inner = bytearray(message(0) + message(1))
    inner[-1] ^= 1
    error = refusal(gzipped(1, bytes(inner)))
    assert error.detail.endswith("inside it, message at byte 39: its CRC does not match its bytes")


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (struct.pack(">bb", 2, 0) + bytes(20), "magic 2 in a message set"),
        (struct.pack(">bb", -1, 0) + bytes(20), "magic -1 in a message set"),
        (struct.pack(">bbq", 1, 0, 5), "ends inside a length"),
        (struct.pack(">bbqi", 1, 0, 5, -1), "ends inside a length"),
        (struct.pack(">bbq", 1, 0, -2) + b"\xff" * 8, "its timestamp is -2"),
        (struct.pack(">bbii", 0, 0, -2, -1), "key or value of -2 bytes"),
        (struct.pack(">bbii", 0, 0, 5, -1), "key or value of 5 bytes"),
        (struct.pack(">bbii", 0, 0, -1, 1 << 30), "key or value of 1073741824 bytes"),
        (struct.pack(">bbiib", 0, 0, -1, -1, 0), "1 bytes follow its value"),
    ],
    ids=itertools.count(),
)
def test_fields_that_do_not_fit_are_refused(body: bytes, what: str) -> None:
    error = refusal(message(0) + sealed(1, body))
    assert error.detail.startswith("message at byte 39: ")
    assert what in error.detail
    assert error.code is ErrorCode.CORRUPT_MESSAGE


def test_a_set_inside_a_set_inside_a_set_is_refused() -> None:
    inner = gzipped(0, gzipped(0, message(0)))
    assert "inside it, message at byte 0: compressed, inside" in refusal(inner).detail


@pytest.mark.parametrize(("outside", "inside"), [(0, 1), (1, 0)])
def test_another_format_inside_a_compressed_message_is_refused(outside: int, inside: int) -> None:
    outer = gzipped(0, message(0, magic=inside), magic=outside)
    error = refusal(outer)
    assert f"magic {inside} inside magic {outside}" in error.detail


def test_a_compressed_message_without_a_set_is_refused() -> None:
    null = message(0, None, attributes=GZIP)
    assert "its value is null" in refusal(null).detail
    empty = gzipped(0, b"")
    assert "nothing is in it" in refusal(empty).detail


def test_offsets_that_would_need_more_than_64_bits_are_refused() -> None:
    largest = (1 << 63) - 1
    outer = gzipped(largest, message(largest) + message(0))
    assert "not the largest" in refusal(outer).detail


@each_magic
@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_newer_codecs_are_refused(magic: int, codec: int) -> None:
    outer = message(0, compress(Compression.ZSTD, message(0)), magic=magic, attributes=codec)
    error = refusal(outer)
    assert error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_all_compressed_messages_together_have_one_limit() -> None:
    outer = gzipped(0, message(0, bytes(1000)))
    size_bytes = len(message(0, bytes(1000)))
    both = records_of_message_set(outer * 2, size_bytes_max=2 * size_bytes)
    assert len(both) == 2
    read = partial(records_of_message_set, size_bytes_max=2 * size_bytes - 1)
    error = refusal(outer * 2, read)
    assert "gzip" in error.detail


def test_compressed_messages_are_limited_in_number_as_equal_ones_take_up_no_room() -> None:
    inner = message(0, b"")
    view = gzipped(0, inner * COMPRESSED_COUNT_FREE)
    assert len(records_of_message_set(view)) == COMPRESSED_COUNT_FREE
    assert "too many small messages" in refusal(gzipped(0, inner * 22_000)).detail
    assert "too many small messages" in refusal(view * 2).detail


@given(data=st.data())
def test_changed_sets_give_records_or_a_protocol_error(data: st.DataObject) -> None:
    """The checksum is corrected each time, so that the test covers more than the checksum."""
    inner = message(0, b"a", key=b"b") + message(1, b"c")
    whole = data.draw(st.sampled_from([inner, gzipped(1, inner), gzipped(1, inner, magic=0)]))
    changed = bytearray(whole[16:])
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    raw = sealed(0, bytes(changed))
    for read in (records_of_message_set, to_batches, lambda raw: to_batches(raw, base_offset=5)):
        with suppress(ProtocolError):
            read(raw)


@given(noise=st.binary(max_size=200), is_cut_off_allowed=st.booleans())
def test_noise_gives_records_or_a_protocol_error(noise: bytes, is_cut_off_allowed: bool) -> None:
    with suppress(ProtocolError):
        records_of_message_set(noise, is_cut_off_allowed=is_cut_off_allowed)
