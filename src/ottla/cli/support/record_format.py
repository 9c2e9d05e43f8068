r"""How a record is written to stdout: percent formats as of kcat and rpk, or JSON.

%t topic    %p partition    %o offset    %k key     %v value (also %s)    %h headers
%T time in milliseconds (also %d)        %K, %V size of key, value in bytes (also %S)
%H number of headers        %e leader epoch         %i number of the record, from 1
%% a percent sign           \n \t \r \0 \\ \xHH as in C
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Final

from ottla.cli.support.exit_codes import WrongCallError
from ottla.wire.records.consumer_record import ConsumerRecord
from ottla.wire.records.record import RecordHeader

_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class JsonBytes(bytes):
    """A key or value that was decoded: JSON, which stays JSON inside a JSON record."""


Render = Callable[[ConsumerRecord, int], bytes]
"""Writes a record with its number in the output."""


def _size(value: bytes | None) -> bytes:
    return b"%d" % (-1 if value is None else len(value))


def _headers(headers: tuple[RecordHeader, ...]) -> bytes:
    return b",".join(key.encode() + b"=" + (value or b"") for key, value in headers)


_RENDER_BY_LETTER: Final[dict[str, Render]] = {
    "t": lambda record, _: record.topic.encode(),
    "p": lambda record, _: b"%d" % record.partition,
    "o": lambda record, _: b"%d" % record.offset,
    "k": lambda record, _: record.key or b"",
    "v": lambda record, _: record.value or b"",
    "s": lambda record, _: record.value or b"",
    "K": lambda record, _: _size(record.key),
    "V": lambda record, _: _size(record.value),
    "S": lambda record, _: _size(record.value),
    "T": lambda record, _: b"%d" % record.timestamp,
    "d": lambda record, _: b"%d" % record.timestamp,
    "h": lambda record, _: _headers(record.headers),
    "H": lambda record, _: b"%d" % len(record.headers),
    "e": lambda record, _: b"%d" % record.leader_epoch,
    "i": lambda _, number: b"%d" % number,
    "%": lambda _record, _number: b"%",
}


def renderer(text: str) -> Render:
    """Return the writer of records in this format; an invalid format is a wrong call."""
    if text == "json":
        return as_json
    parts: list[Render] = []
    at = 0
    for match in _TOKEN.finditer(text):
        if match.start() > at:
            parts.append(_literal(text[at : match.start()].encode()))
        if match[0].startswith("%"):
            parts.append(_field(match[1]))
        else:
            parts.append(_literal(escaped(match[2])))
        at = match.end()
    if at < len(text):
        parts.append(_literal(text[at:].encode()))
    return lambda record, number: b"".join([part(record, number) for part in parts])


def escaped(letters: str) -> bytes:
    """Return the bytes of an escape sequence; an unknown sequence is a wrong call."""
    if letters.startswith("x") and len(letters) == 3:
        return bytes.fromhex(letters[1:])
    if letters not in _ESCAPES:
        raise WrongCallError(f"a format knows no \\{letters}: write \\\\ for a backslash")
    return _ESCAPES[letters]


def as_json(record: ConsumerRecord, _: int) -> bytes:
    """Write a record as one line of JSON. Bytes that are not UTF-8 become base64 fields."""
    fields: dict[str, object] = {"topic": record.topic}
    _put(fields, "key", record.key)
    _put(fields, "value", record.value)
    if record.headers:
        fields["headers"] = [_header(header) for header in record.headers]
    fields["timestamp"] = record.timestamp
    fields["partition"] = record.partition
    fields["offset"] = record.offset
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _header(header: RecordHeader) -> dict[str, object]:
    fields: dict[str, object] = {"key": header.key}
    _put(fields, "value", header.value)
    return fields


def _put(fields: dict[str, object], name: str, value: bytes | None) -> None:
    if isinstance(value, JsonBytes):
        fields[name] = json.loads(value)
        return
    try:
        fields[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = b64encode(value or b"").decode()


def _field(letter: str) -> Render:
    if letter not in _RENDER_BY_LETTER:
        known = " ".join(f"%{known}" for known in _RENDER_BY_LETTER)
        raise WrongCallError(f"a format knows no %{letter}: there are {known}")
    return _RENDER_BY_LETTER[letter]


def _literal(content: bytes) -> Render:
    return lambda _record, _number: content
