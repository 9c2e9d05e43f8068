import pytest

from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records import down_conversion
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.down_conversion import message_sets
from ottla.wire.records.message_set import records_of_message_set
from ottla.wire.records.record import Record, RecordHeader

CODECS = [codec for codec in Compression if codec is not Compression.ZSTD]


def batch(*values: bytes, base_offset: int = 0, **how: object) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, **how)  # type: ignore[arg-type]
    for number, value in enumerate(values):
        builder.append(1000 + number, b"key", value, (RecordHeader("from", b"Prague"),))
    return bytes(builder.build())


def converted(data: bytes, *, magic: int = 1, first_offset: int = 0) -> list[Record]:
    sets = message_sets(data, magic=magic, first_offset=first_offset)
    return records_of_message_set(b"".join(sets))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("at_once_max", [0, 5000])
def test_records_keep_all_that_old_messages_have(
    monkeypatch: pytest.MonkeyPatch, magic: int, codec: Compression, at_once_max: int
) -> None:
    monkeypatch.setattr(down_conversion, "RECORDS_AT_ONCE_MAX", at_once_max)
    data = batch(b"a", b"b", base_offset=5, compression=codec)
    data += batch(b"c", base_offset=9, compression=codec)
    times = [1000, 1001, 1000] if magic else [-1] * 3
    assert converted(data, magic=magic) == [
        Record(5, times[0], b"key", b"a"),
        Record(6, times[1], b"key", b"b"),
        Record(9, times[2], b"key", b"c"),
    ]


def test_records_before_the_first_offset_are_left_out_unless_they_are_compressed() -> None:
    assert [r.offset for r in converted(batch(b"a", b"b", b"c"), first_offset=1)] == [1, 2]
    gzipped = batch(b"a", b"b", compression=Compression.GZIP)
    assert [r.offset for r in converted(gzipped, first_offset=1)] == [0, 1]
    assert converted(batch(b"a"), first_offset=1) == []


def test_control_batches_and_what_is_cut_off_are_left_out() -> None:
    marker = bytes(end_txn_marker(ControlType.COMMIT, 0, 7, 0, 1000))
    data = batch(b"a") + marker + batch(b"b", base_offset=2) + batch(b"c", base_offset=3)[:-1]
    assert [record.value for record in converted(data)] == [b"a", b"b"]


def test_the_time_of_the_log_stays_the_time_of_the_log() -> None:
    data = batch(b"a", b"b", log_append_time_ms=77)
    (messages,) = message_sets(data, magic=1, first_offset=0)
    assert messages[17] & 0x08
    assert [record.timestamp_ms for record in converted(data)] == [77, 77]


def test_zstandard_is_refused_once_it_is_its_turn() -> None:
    data = batch(b"a") + batch(b"b", base_offset=1, compression=Compression.ZSTD)
    sets = message_sets(data, magic=1, first_offset=0)
    assert records_of_message_set(next(sets))[0].value == b"a"
    with pytest.raises(ProtocolError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        next(sets)
