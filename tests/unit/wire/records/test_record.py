import struct
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch as kio_read_batch

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import MalformedRecordError, ProtocolError
from ottla.wire.records import _reading_python
from ottla.wire.records.batch import HEADER_BYTES, RecordBatch, batch_at, write_crc
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import (
    Record,
    RecordHeader,
    RecordScan,
    find_time,
    records_of,
    scan_records,
    uncompressed_records,
)
from tests.examples import examples
from tests.record_peers import AiokafkaBatch, KafkaPythonBatch
from tests.record_strategies import record_lists

try:
    from ottla.wire.records import _reading
except ImportError:  # without a compiler there is only the fallback
    _reading = _reading_python
BOTH = [_reading, _reading_python]

PLAIN = Record(40, 1_700_000_000_000, b"key", b"value", (RecordHeader("h", b"x"),))
TOMBSTONE = Record(41, 1_699_999_999_990, b"key", None)
EMPTY = Record(45, 1_700_000_000_300, None, b"", (RecordHeader("", None), RecordHeader("é", b"")))
RECORDS = [PLAIN, TOMBSTONE, EMPTY]


def batch_with(section: bytes, record_count: int, **fields: int) -> RecordBatch:
    """Put these bytes into an uncompressed batch with this claimed record count."""
    header = {"base_offset": 0, "last": max(record_count - 1, 0), "base_ms": 0, "attributes": 0}
    header |= fields
    raw = bytearray(HEADER_BYTES) + section
    struct.pack_into(">qiib", raw, 0, header["base_offset"], len(raw) - 12, -1, 2)
    struct.pack_into(">hiqq", raw, 21, header["attributes"], header["last"], header["base_ms"], 99)
    struct.pack_into(">i", raw, 57, record_count)
    write_crc(memoryview(raw))
    return RecordBatch(memoryview(raw))


def read(module: ModuleType, batch: RecordBatch) -> Any:
    return module.read_records(batch, batch.records_view, Record, RecordHeader)


def outcome(function: Any, *arguments: Any) -> Any:
    """Return the result of a call or its protocol error; other exceptions propagate."""
    try:
        return function(*arguments)
    except ProtocolError as error:
        return error.code, error.detail


def peer_view(records: Iterable[Any]) -> list[Record]:
    return [
        Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple(RecordHeader(key, value) for key, value in record.headers),
        )
        for record in records
    ]


@pytest.mark.parametrize("codec", Compression)
@given(records=record_lists())
def test_a_written_record_is_read_back(codec: Compression, records: list[Record]) -> None:
    batch = batch_at(build_batch(records, compression=codec))
    assert records_of(batch) == records
    assert all(type(record) is Record for record in records_of(batch))


@pytest.mark.usefixtures("needs_compiled_loops")
@given(records=record_lists())
def test_compiled_and_plain_readers_agree(records: list[Record]) -> None:
    batch = batch_at(build_batch(records))
    assert read(_reading, batch) == read(_reading_python, batch) == records
    scans = [outcome(module.scan_records, batch.records_view, len(records)) for module in BOTH]
    assert scans[0] == scans[1]


def test_headers_come_back_as_headers() -> None:
    (record, _, last) = records_of(batch_at(build_batch(RECORDS)))
    assert record.headers[0].key == "h"
    assert [header.value for header in last.headers] == [None, b""]
    assert all(type(header) is RecordHeader for header in last.headers)


@pytest.mark.parametrize("module", BOTH)
def test_records_that_were_read_are_as_good_as_others(module: ModuleType) -> None:
    for record in read(module, batch_at(build_batch(RECORDS))):
        same = Record(*record[:4], tuple(RecordHeader(*header) for header in record.headers))
        assert record == same
        assert hash(record) == hash(same)
        assert {same: 1}[record] == 1
        assert repr(record) == repr(same)
        assert record._replace(offset=7).offset == 7


@pytest.mark.parametrize("module", BOTH)
def test_log_append_time_is_the_time_of_every_record(module: ModuleType) -> None:
    batch = batch_at(build_batch(RECORDS, log_append_time_ms=5))
    assert [record.timestamp_ms for record in read(module, batch)] == [5, 5, 5]


@given(records=record_lists(with_gaps=False))
def test_other_libraries_read_our_records(records: list[Record]) -> None:
    raw = bytes(build_batch(records))
    aiokafka, kafka_python = AiokafkaBatch(raw), KafkaPythonBatch(raw)
    assert aiokafka.validate_crc()
    assert kafka_python.validate_crc()
    assert peer_view(aiokafka) == peer_view(kafka_python) == records


@given(records=record_lists())
def test_kio_reads_our_records(records: list[Record]) -> None:
    records = [record._replace(timestamp_ms=abs(record.timestamp_ms)) for record in records]
    raw = bytes(build_batch(records))
    kio_batch, size = kio_read_batch(raw, 0)
    assert size == len(raw)
    assert [(record.offset, record.key, record.value) for record in kio_batch.records] == [
        (record.offset, record.key, record.value) for record in records
    ]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_other_libraries_read_our_compressed_records(codec: Compression) -> None:
    raw = bytes(build_batch(RECORDS, compression=codec))
    assert peer_view(AiokafkaBatch(raw)) == RECORDS


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        (b"", "record 0, byte 0: a number is cut off"),
        (b"\x80", "record 0, byte 0: a number is cut off"),
        (b"\xff\xff\xff\xff\x10", "record 0, byte 0: a number has too many bits"),
        (b"\xff\xff\xff\xff\xff\x01", "record 0, byte 0: a number has too many bits"),
        (b"\x01", "record 0, byte 0: a length of -1 does not fit"),
        (b"\x0e\0\0\0\1\1", "record 0, byte 0: a length of 7 does not fit"),
        (b"\xfe\xff\xff\xff\x0f\0", "record 0, byte 0: a length of 2147483647 does not fit"),
        (b"\x00", "record 0, byte 1: there is no room for its fields"),
        (b"\x02\0", "record 0, byte 2: a number is cut off"),
        (b"\x18\0" + b"\xff" * 9 + b"\x02\0", "record 0, byte 2: a number has too many bits"),
        (b"\x0c\0\0\1\1\1\0", "record 0, byte 3: an offset delta of -1 is out of order"),
        (b"\x0c\0\0\2\1\1\0", "record 0, byte 3: an offset delta of 1 is out of order"),
        (b"\x0c\0\0\0\3\1\0", "record 0, byte 4: a length of -2 does not fit"),
        (b"\x0c\0\0\0\x06\1\0", "record 0, byte 4: a length of 3 does not fit"),
        (b"\x0c\0\0\0\1\x04\0", "record 0, byte 5: a length of 2 does not fit"),
        (b"\x0c\0\0\0\1\1\1", "record 0, byte 6: -1 headers do not fit"),
        (b"\x0e\0\0\0\1\1\2\0", "record 0, byte 6: 1 headers do not fit"),
        (b"\x10\0\0\0\1\1\2\1\1", "record 0, byte 7: a length of -1 does not fit"),
        (b"\x12\0\0\0\1\1\2\2\xff\1", "record 0, byte 7: a header key is not UTF-8"),
        (b"\x12\0\0\0\1\1\2\2a\4", "record 0, byte 9: a length of 2 does not fit"),
        (b"\x0e\0\0\0\1\1\0\0", "record 0, byte 7: 1 bytes are left over after its fields"),
        (b"\x0c\0\0\0\1\1\0\0", "record 1, byte 7: 1 bytes follow the last record"),
    ],
)
def test_damage_is_named_with_its_record_and_byte(
    module: ModuleType, section: bytes, complaint: str
) -> None:
    expected = (ErrorCode.INVALID_RECORD, complaint)
    assert outcome(read, module, batch_with(section, 1)) == expected
    assert outcome(module.scan_records, section, 1) == expected


@pytest.mark.parametrize("module", BOTH)
def test_numbers_may_take_more_bytes_than_they_need(module: ModuleType) -> None:
    section = b"\x14\0\x80\0\x80\x80\0\1\1\x80\0"
    assert read(module, batch_with(section, 1)) == [Record(0, 0, None, None)]


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize("delta", [-(2**63), -1, 0, 1, 2**63 - 1])
def test_timestamp_deltas_reach_as_far_as_timestamps(module: ModuleType, delta: int) -> None:
    zigzag = delta * 2 if delta >= 0 else -delta * 2 - 1
    septets = [zigzag >> shift & 0x7F for shift in range(0, 70, 7)]
    number = bytes(septet | 0x80 for septet in septets[:-1]) + bytes(septets[-1:])
    section = b"\x1e\0" + number + b"\0\1\1\0"
    assert read(module, batch_with(section, 1)) == [Record(0, delta, None, None)]
    assert module.scan_records(section, 1)[1:3] == (delta, delta)
    beyond = outcome(read, module, batch_with(section, 1, base_ms=1 if delta > 0 else -1))
    if abs(delta) > 1:
        complaint = f"record 0, byte 2: a timestamp delta of {delta} leaves the range of timestamps"
        assert beyond == (ErrorCode.INVALID_RECORD, complaint)
    fixed = batch_with(section, 1, base_ms=2**63 - 1, attributes=0x08)
    assert read(module, fixed) == [Record(0, 99, None, None)]


@pytest.mark.parametrize("module", BOTH)
def test_more_records_than_there_are_bytes_for_are_refused(module: ModuleType) -> None:
    batch = batch_with(b"\x0c\0\0\0\1\1\0", 2**31 - 1)
    complaint = "record 1, byte 7: a number is cut off"
    assert outcome(read, module, batch) == (ErrorCode.INVALID_RECORD, complaint)
    assert outcome(module.scan_records, batch.records_view, 2**31 - 1) == (
        ErrorCode.INVALID_RECORD,
        complaint,
    )


@pytest.mark.parametrize("module", BOTH)
def test_bytes_without_records_are_refused(module: ModuleType) -> None:
    expected = (ErrorCode.INVALID_RECORD, "record 0, byte 0: 1 bytes follow the last record")
    assert outcome(read, module, batch_with(b"\0", 0)) == expected
    assert outcome(module.scan_records, b"\0", 0) == expected


def test_offsets_beyond_64_bits_are_refused() -> None:
    batch = batch_with(b"\x0c\0\0\0\1\1\0", 1, base_offset=2**63 - 1, last=1)
    assert outcome(records_of, batch)[0] is ErrorCode.INVALID_RECORD


def test_a_batch_emptied_by_compaction_has_no_records_in_any_codec() -> None:
    assert records_of(batch_with(b"", 0, last=4, attributes=Compression.ZSTD)) == []


def test_a_scan_tells_what_admission_asks() -> None:
    batch = batch_at(build_batch(RECORDS[:2], compression=Compression.LZ4))
    found = RecordScan(null_key_count=0, min_timestamp_delta_ms=-10, max_timestamp_delta_ms=0)
    assert scan_records(uncompressed_records(batch), 2) == found
    assert scan_records(b"", 0) == RecordScan(0, 0, 0)


@pytest.mark.parametrize("module", BOTH)
def test_a_scan_refuses_gaps_which_a_reader_allows(module: ModuleType) -> None:
    batch = batch_at(build_batch(RECORDS))
    assert len(read(module, batch)) == 3
    with pytest.raises(MalformedRecordError) as caught:
        module.scan_records(batch.records_view, 3)
    assert caught.value.index == 2
    assert "an offset delta of 5 is out of order" in caught.value.detail


@pytest.mark.parametrize("module", BOTH)
def test_a_large_section_is_scanned_too(module: ModuleType) -> None:
    records = [Record(n, 1000 + n, None, bytes(90)) for n in range(2000)]
    raw = build_batch(records)
    assert module.scan_records(batch_at(raw).records_view, 2000) == (2000, 0, 1999)
    raw[-1] = 1
    expected = ErrorCode.INVALID_RECORD, f"record 1999, byte {len(raw) - 62}: -1 headers do not fit"
    assert outcome(module.scan_records, batch_at(raw).records_view, 2000) == expected


@pytest.mark.parametrize("module", BOTH)
def test_rejected_records_are_found_by_key_and_by_timestamp(module: ModuleType) -> None:
    records = [Record(n, 1000 + n, None if n % 2 else b"k", b"v") for n in range(6)]
    section = batch_at(build_batch(records)).records_view
    everything = section, 6, False, -(2**63), 2**63 - 1, -1001, 10
    assert module.rejected_records(*everything) == []
    assert module.rejected_records(section, 6, True, 1, 4, 5, 10) == [
        (0, 0),
        (1, None),
        (3, None),
        (5, None),
    ]
    assert module.rejected_records(section, 6, False, 1, 3, 5, 10) == [(0, 0), (4, 4)]
    assert module.rejected_records(section, 6, False, 1, 0, -1001, 2) == [(0, 0), (1, 1)]


@pytest.mark.parametrize("module", BOTH)
@given(key=st.binary(max_size=6))
@example(key=b"\xed\xa0\x80")  # a surrogate
@example(key=b"\xf4\x90\x80\x80")  # beyond the last code point
@example(key=b"\xe0\x80\x80")  # overlong
@example(key="é€😀"[:2].encode())
def test_a_scan_takes_the_header_keys_that_python_can_decode(
    module: ModuleType, key: bytes
) -> None:
    header = bytes([2, len(key) * 2]) + key + b"\1"
    section = bytes([(6 + len(header)) * 2, 0, 0, 0, 1, 1]) + header
    section = bytes([(len(section) - 1) * 2]) + section[1:]
    try:
        key.decode()
    except UnicodeDecodeError:
        assert "is not UTF-8" in outcome(module.scan_records, section, 1)[1]
    else:
        assert module.scan_records(section, 1) == (1, 0, 0)


@given(
    records=record_lists(),
    timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    start=st.integers(0, 20),
    end=st.integers(0, 20),
)
def test_a_time_is_found_as_if_by_looking_at_every_record(
    records: list[Record], timestamp_ms: int, start: int, end: int
) -> None:
    first_offset = records[0].offset if records else 0
    start_offset, end_offset = first_offset + start, first_offset + end
    within = [record for record in records if start_offset <= record.offset < end_offset]
    young = [record for record in within if record.timestamp_ms >= timestamp_ms]
    expected = young[0] if young else max(within, key=lambda each: each.timestamp_ms, default=None)
    batch = batch_at(build_batch(records))
    for module in BOTH:
        found = module.find_time(batch, batch.records_view, timestamp_ms, start_offset, end_offset)
        assert found == (expected and (expected.timestamp_ms, expected.offset))


def test_a_search_by_time_goes_no_further_than_it_has_to() -> None:
    raw = build_batch(RECORDS)
    raw[-1] = 0x7F
    assert outcome(records_of, batch_at(raw))[0] is ErrorCode.INVALID_RECORD
    assert find_time(batch_at(raw), PLAIN.timestamp_ms, 0, 100) == (PLAIN.timestamp_ms, 40)
    by_log = batch_at(build_batch(RECORDS, compression=Compression.GZIP, log_append_time_ms=5))
    assert find_time(by_log, 5, 41, 100) == (5, 41)
    assert find_time(by_log, 6, 42, 45) is None


def agree(raw: bytes | bytearray) -> None:
    """Compare the compiled reader and the fallback on one batch, damaged or not."""
    try:
        batch = RecordBatch(memoryview(raw))
    except ProtocolError:
        return
    compiled, plain = (outcome(read, module, batch) for module in BOTH)
    assert compiled == plain
    count = batch.record_count
    scans = [outcome(module.scan_records, batch.records_view, count) for module in BOTH]
    assert scans[0] == scans[1]
    for bounds in ((2**63 - 1, 0, 2**63 - 1), (99, 2, 41)):
        found = [outcome(module.find_time, batch, batch.records_view, *bounds) for module in BOTH]
        assert found[0] == found[1]
    if isinstance(compiled, list):
        assert len(compiled) == count
        deltas = [record.offset - batch.base_offset for record in compiled]
        is_scanned = len(scans[0]) == len(RecordScan._fields)
        assert is_scanned == (deltas == list(range(count))), "the scan disagrees with the reader"
    elif scans[0][-1] is True:
        assert "timestamps" in compiled[1], "the scan passes what cannot be read"


def test_no_single_wrong_byte_does_more_than_a_protocol_error() -> None:
    raw = bytes(build_batch(RECORDS))
    for position in range(len(raw)):
        for byte in (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF, raw[position] ^ 1, raw[position] ^ 0x80):
            agree(raw[:position] + bytes([byte]) + raw[position + 1 :])


@pytest.mark.usefixtures("needs_compiled_loops")
@settings(max_examples=examples(400))
@given(
    records=record_lists(),
    edits=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 3), st.binary(max_size=12))),
)
@example(records=RECORDS, edits=[])
def test_compiled_and_plain_readers_agree_on_any_damage(
    records: list[Record], edits: list[tuple[int, int, bytes]]
) -> None:
    raw = bytes(build_batch(records))
    for position, removed, inserted in edits:
        at = HEADER_BYTES + position % (len(raw) - HEADER_BYTES + 1)
        raw = raw[:at] + inserted + raw[at + removed :]
    agree(raw[:8] + struct.pack(">i", len(raw) - 12) + raw[12:])


@pytest.mark.parametrize("codec", Compression)
@given(position=st.integers(0, 10_000), byte=st.integers(1, 255))
def test_a_damaged_batch_of_any_codec_ends_in_records_or_a_protocol_error(
    codec: Compression, position: int, byte: int
) -> None:
    raw = build_batch([PLAIN._replace(value=b"value" * 50)], compression=codec)
    raw[HEADER_BYTES + position % (len(raw) - HEADER_BYTES)] ^= byte
    found = outcome(records_of, batch_at(raw))
    assert isinstance(found, list) or isinstance(found[0], ErrorCode)


@pytest.mark.usefixtures("needs_compiled_loops")
@given(st.binary(max_size=60), st.integers(0, 4))
def test_noise_is_read_alike(noise: bytes, record_count: int) -> None:
    agree(batch_with(noise, record_count, last=100).raw.tobytes())
