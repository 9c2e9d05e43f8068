"""Parsing records from stdin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.support import input_format
from ottla.cli.support.exit_codes import WrongCallError
from ottla.cli.support.input_format import InputReader, InputRecord, UnreadableInputError
from ottla.cli.support.record_format import renderer
from ottla.wire.records.consumer_record import ConsumerRecord
from ottla.wire.records.record import RecordHeader


def read_all(form: str, *chunks: bytes) -> list[InputRecord]:
    reader = InputReader(form)
    records = [record for chunk in chunks for record in reader.feed(chunk)]
    return [*records, *reader.finish()]


def test_lines_are_values_and_the_last_needs_no_end() -> None:
    assert read_all("%v\\n", b"a\nb") == [InputRecord(b"a"), InputRecord(b"b")]


def test_fields_are_told_by_what_stands_between_them() -> None:
    assert read_all("%t|%p|%T %k:%h:%v;", b"letters|3|1000 key:a=1,b=2:v:v;") == [
        InputRecord(b"v:v", b"key", (("a", b"1"), ("b", b"2")), "letters", 3, 1000)
    ]


def test_records_may_end_with_several_bytes_that_come_apart() -> None:
    assert read_all("%v\\r\\n", b"a\r", b"\nb\nb\r\n") == [InputRecord(b"a"), InputRecord(b"b\nb")]


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line)), st.integers(1, 5))
def test_it_does_not_matter_how_the_input_is_cut(lines: list[bytes], size: int) -> None:
    content = b"".join(line + b"\n" for line in lines)
    cut = [content[at : at + size] for at in range(0, len(content), size)]
    assert [record.value for record in read_all("%v\\n", *cut)] == lines


text_or_bytes = st.none() | st.binary() | st.text().map(str.encode)


@given(
    text_or_bytes,
    text_or_bytes,
    st.lists(st.tuples(st.text(), text_or_bytes)),
    st.integers(0, 2**40),
)
def test_what_consume_writes_as_json_is_read_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> None:
    named = tuple(RecordHeader(*row) for row in headers)
    record = ConsumerRecord("letters", 2, 7, timestamp_ms, 0, key, value, named, 0)
    line = renderer("json")(record, 1)
    assert read_all("json", line) == [
        InputRecord(value, key, tuple(headers), "letters", 2, timestamp_ms)
    ]


def test_a_json_value_that_is_no_text_is_kept_as_json() -> None:
    assert read_all("json", b'{"value": {"a": [1]}}')[0].value == b'{"a": [1]}'


@pytest.mark.parametrize(
    ("form", "line", "word"),
    [
        ("%k:%v\\n", b"no colon", "%k is not followed by ':'"),
        ("%p %v\\n", b"one x", "record 1"),
        ("%v %h\\n", b"v header", "KEY=VALUE"),
        ("json", b"{", "record 1"),
        ("json", b"[]", "JSON object"),
        ("json", b'{"value_base64": "?"}', "record 1"),
        ("json", b'{"partition": "two"}', "partition is 'two'"),
        ("json", b'{"headers": [{}]}', "record 1"),
        ("json", b"\xff", "record 1"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(form: str, line: bytes, word: str) -> None:
    with pytest.raises(UnreadableInputError) as error:
        read_all(form, line)
    assert word in str(error.value)


def test_a_record_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_format, "RECORD_BYTES_MAX", 10)
    with pytest.raises(UnreadableInputError, match="does not end"):
        read_all("%v;", b"x" * 11)


@pytest.mark.parametrize("form", ["", "x", "x%v", "%k%v", "%p\\n", "%v %v", "%q", "%v\\q", "%"])
def test_a_format_that_cannot_be_read_is_a_wrong_call(form: str) -> None:
    with pytest.raises(WrongCallError):
        InputReader(form)
