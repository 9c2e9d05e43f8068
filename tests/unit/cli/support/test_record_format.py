"""Formatting records for stdout."""

import json

import pytest

from ottla.cli.support.exit_codes import WrongCallError
from ottla.cli.support.record_format import renderer
from ottla.wire.records.consumer_record import ConsumerRecord
from ottla.wire.records.record import RecordHeader

HEADERS = (RecordHeader("a", b"1"), RecordHeader("b", None))
RECORD = ConsumerRecord("letters", 3, 47, 1_000, 0, b"key", b"value", HEADERS, 5)
NULLS = ConsumerRecord("letters", 0, 0, 0, 0, None, None, (), 0)


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("%v\\n", b"value\n"),
        ("%t/%p/%o %k=%s", b"letters/3/47 key=value"),
        ("%T %d %e %i", b"1000 1000 5 9"),
        ("%K %V %S %H %h", b"3 5 5 2 a=1,b="),
        ("100%%\\t\\x41\\\\ü", "100%\tA\\ü".encode()),
        ("", b""),
    ],
)
def test_a_format_is_filled_in(form: str, shown: bytes) -> None:
    assert renderer(form)(RECORD, 9) == shown


def test_null_is_empty_and_has_no_size() -> None:
    assert renderer("[%k|%v|%K|%V|%h]")(NULLS, 1) == b"[||-1|-1|]"


def test_json_is_one_line_with_everything() -> None:
    line = renderer("json")(RECORD, 9)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "letters",
        "key": "key",
        "value": "value",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
        "timestamp": 1000,
        "partition": 3,
        "offset": 47,
    }


def test_json_says_where_bytes_are_no_text() -> None:
    shown = json.loads(renderer("json")(NULLS._replace(value=b"\xff"), 1))
    assert shown["value_base64"] == "/w=="
    assert "value" not in shown
    assert shown["key"] is None


@pytest.mark.parametrize("form", ["%", "%q", "\\", "\\q", "\\x4"])
def test_what_a_format_does_not_know_is_a_wrong_call(form: str) -> None:
    with pytest.raises(WrongCallError, match="a format knows no"):
        renderer(form)
