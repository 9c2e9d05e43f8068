"""The two formats before record batches: converted to batches, and written."""

import pytest
from hypothesis import given

from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import batch_at
from ottla.wire.records.compression import lz4_header
from ottla.wire.records.compression.codecs import Compression, compress
from ottla.wire.records.message_set import records_of_message_set, to_batches, to_message_set
from ottla.wire.records.record import Record, RecordHeader, records_of
from tests.old_messages import GZIP, LOG_APPEND_TIME, gzipped, message
from tests.record_strategies import record_lists

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]

each_magic = pytest.mark.parametrize("magic", [0, 1])
each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.config_name)


def refusal(view: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as raised:
        to_batches(view)
    return raised.value


# Converting to record batches


def converted(view: bytes, *, base_offset: int | None = None) -> list[list[Record]]:
    made = [batch_at(raw) for raw in to_batches(view, base_offset=base_offset)]
    for batch in made:
        batch.check_crc()
    return [records_of(batch) for batch in made]


def test_uncompressed_neighbours_become_one_batch() -> None:
    view = message(5, b"a", key=b"k", timestamp_ms=3) + message(7, b"b", timestamp_ms=2)
    records = [Record(5, 3, b"k", b"a"), Record(7, 2, None, b"b")]
    assert converted(view) == [records]


def test_compressed_messages_become_batches_with_their_codec() -> None:
    content = compress(Compression.LZ4, message(0))
    view = gzipped(1, message(0) + message(1)) + message(2) + message(3, content, attributes=3)
    made = [batch_at(raw) for raw in to_batches(view)]
    assert [batch.compression.config_name for batch in made] == ["gzip", "none", "lz4"]
    assert [(batch.base_offset, batch.last_offset) for batch in made] == [(0, 1), (2, 2), (3, 3)]


def test_the_broker_s_time_stays_the_broker_s() -> None:
    stamped = LOG_APPEND_TIME
    view = b"".join(
        [
            gzipped(1, message(0) + message(1), attributes=GZIP | stamped, timestamp_ms=70),
            message(2, attributes=stamped, timestamp_ms=80),
            message(3, attributes=stamped, timestamp_ms=80),
            message(4, attributes=stamped, timestamp_ms=90),
            message(5, timestamp_ms=90),
        ]
    )
    made = [batch_at(raw) for raw in to_batches(view)]
    assert [batch.is_log_append_time for batch in made] == [True, True, True, False]
    times = [[record.timestamp_ms for record in records_of(batch)] for batch in made]
    assert times == [[70, 70], [80, 80], [90], [90]]


def test_a_producer_s_messages_are_numbered_in_their_order() -> None:
    view = message(0) + message(0) + gzipped(0, message(-1) + message(-1))
    numbered = [[record.offset for record in batch] for batch in converted(view, base_offset=100)]
    assert numbered == [[100, 101], [102, 103]]


def test_offsets_that_do_not_rise_are_refused_unless_they_are_given_anew() -> None:
    for view in (message(5) + message(5), message(-1), gzipped(3, message(0)) + message(2)):
        assert "is the least" in refusal(view).detail
        assert len(to_batches(view, base_offset=0)) >= 1


def test_offsets_too_far_apart_for_one_batch_are_refused() -> None:
    span = 1 << 31
    assert len(to_batches(message(1) + message(span))) == 1
    error = refusal(message(1) + message(span + 1))
    assert "do not fit into one batch" in error.detail


def test_timestamps_too_far_apart_for_one_batch_are_refused() -> None:
    last = message(1, timestamp_ms=(1 << 63) - 1)
    assert len(to_batches(message(0, timestamp_ms=0) + last)) == 1
    error = refusal(message(0, timestamp_ms=-1) + last)
    assert "too far apart" in error.detail


def test_a_set_that_breaks_off_is_not_converted() -> None:
    assert "breaks off" in refusal(message(0) + message(1)[:-1]).detail


# Writing


@each_codec
@each_magic
@given(records=record_lists())
def test_a_written_message_set_is_read_again_without_headers(
    codec: Compression, magic: int, records: list[Record]
) -> None:
    raw = to_message_set(records, magic=magic, compression=codec)
    expected = [
        record._replace(headers=(), timestamp_ms=record.timestamp_ms if magic else -1)
        for record in records
    ]
    assert records_of_message_set(raw) == expected


@each_magic
def test_uncompressed_messages_are_written_to_the_byte(magic: int) -> None:
    records = [
        Record(4, 1000, None, b"value", (RecordHeader("dropped", b""),)),
        Record(6, 1000, b"", None),
    ]
    expected = message(4, magic=magic) + message(6, None, key=b"", magic=magic)
    assert to_message_set(records, magic=magic) == expected


def test_compressed_messages_are_written_to_the_byte() -> None:
    records = [Record(40, 6, None, b"a"), Record(42, 5, None, b"b")]
    inner = message(40, b"a", magic=0) + message(42, b"b", magic=0)
    raw = to_message_set(records, magic=0, compression=Compression.GZIP)
    assert raw == gzipped(42, inner, magic=0)
    inner = message(0, b"a", timestamp_ms=6) + message(2, b"b", timestamp_ms=5)
    raw = to_message_set(records, magic=1, compression=Compression.GZIP)
    assert raw == gzipped(42, inner, timestamp_ms=6)


def test_lz4_is_written_as_readers_of_each_format_expect_it() -> None:
    records = [Record(0, 1000, None, b"value")]
    inner = message(0, magic=0)
    wrong = lz4_header.with_wrong_header_checksum(compress(Compression.LZ4, inner))
    raw = to_message_set(records, magic=0, compression=Compression.LZ4)
    assert raw == message(0, wrong, magic=0, attributes=3)
    raw = to_message_set(records, magic=1, compression=Compression.LZ4)
    assert raw == message(0, compress(Compression.LZ4, message(0)), attributes=3)


@each_codec
def test_the_broker_s_time_is_written_as_such(codec: Compression) -> None:
    records = [Record(0, 70, None, b"a"), Record(1, 70, None, b"b")]
    raw = to_message_set(records, magic=1, compression=codec, is_log_append_time=True)
    assert converted(raw) == [records]
    assert batch_at(to_batches(raw)[0]).is_log_append_time
    first = to_message_set(records, magic=0, compression=codec, is_log_append_time=True)
    assert first == to_message_set(records, magic=0, compression=codec)


def test_no_records_are_no_bytes() -> None:
    assert to_message_set([], magic=1, compression=Compression.GZIP) == b""


def test_zstandard_is_not_for_old_formats() -> None:
    with pytest.raises(AssertionError, match="Zstandard"):
        to_message_set([Record(0, 0, None, b"")], magic=1, compression=Compression.ZSTD)
