r"""The format of records on stdin: fields and separators, or JSON.

'%v\n'        a value per line          '%k:%v\n'      a key, a colon, a value
'%k\t%h\t%v\n'  headers as a=b,c=d      '%p %v\n'      the partition, a value
json          an object per line, as `ottla consume -f json` writes it
"""

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.cli.support.exit_codes import WrongCallError
from ottla.cli.support.record_format import escaped

RECORD_BYTES_MAX: Final = 64 << 20
"""A longer record is an error: the format does not fit the input."""
_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|([^%\\]+)", re.DOTALL)
_FIELDS: Final = "tkvshpT"
_JSON_BYTES: Final = ("key", "key_base64", "value", "value_base64")
_JSON_FIELDS: Final = (*_JSON_BYTES, "headers", "topic", "partition", "timestamp", "offset")
"""The fields of a JSON record. `consume` writes the offset; here it is ignored."""
T = TypeVar("T")


class UnreadableInputError(ValueError):
    """Input that does not match the format; the message has the place."""


@dataclass(slots=True)
class InputRecord:
    """The parsed fields of one record; missing fields are None."""

    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class InputReader:
    """Cuts a stream of bytes into records. Performs no I/O."""

    def __init__(self, form: str, json_parts: frozenset[str] = frozenset()) -> None:
        """Read a format; the JSON parts of a JSON record are any JSON value, and stay JSON."""
        self._terminator = b"\n"
        self._parse: Callable[[bytes], InputRecord] = lambda line: _parse_json(line, json_parts)
        if form != "json":
            fields, separators = _compiled(form)
            self._terminator = separators.pop()
            self._parse = lambda line: _parse_fields(line, fields, separators)
        self._rest = b""
        self._number = 0

    def feed(self, data: bytes) -> Iterator[InputRecord]:
        """Yield the complete records; an UnreadableInputError names an invalid one."""
        *whole, self._rest = (self._rest + data).split(self._terminator)
        if len(self._rest) > RECORD_BYTES_MAX:
            raise UnreadableInputError(f"record {self._number + 1} does not end: see --format")
        for line in whole:
            yield self._read(line)

    def finish(self) -> Iterator[InputRecord]:
        """Yield the last record, if it has no terminator."""
        rest, self._rest = self._rest, b""
        if rest:
            yield self._read(rest)

    def _read(self, line: bytes) -> InputRecord:
        self._number += 1
        try:
            return self._parse(line)
        except (ValueError, TypeError, KeyError, Base64Error) as error:
            raise UnreadableInputError(f"record {self._number}: {error}") from None


def _compiled(form: str) -> tuple[list[str], list[bytes]]:
    """Split a format into its fields and the separators behind them."""
    fields: list[str] = []
    separators: list[bytes] = []
    for match in _TOKEN.finditer(form):
        letter, escape, literal = match[1], match[2], match[3]
        if match[0].startswith("%") and letter != "%":
            if letter not in _FIELDS or not letter or letter in fields:
                raise WrongCallError(
                    f"%{letter} cannot be read: a format has each of %k %v %h %t %p %T once"
                )
            fields.append("v" if letter == "s" else letter)
            separators.append(b"")
            continue
        text = b"%" if letter == "%" else literal.encode() if literal else escaped(escape)
        if not separators:
            raise WrongCallError(f"a format begins with a field, not with {literal or match[0]!r}")
        separators[-1] += text
    if "v" not in fields and "k" not in fields:
        raise WrongCallError("a format needs %v or %k: '%v\\n' reads a value per line")
    separators[-1] = separators[-1] or b"\n"
    if not all(separators):
        raise WrongCallError("two fields need something between them, as in '%k:%v\\n'")
    return fields, separators


def _parse_fields(line: bytes, fields: list[str], separators: list[bytes]) -> InputRecord:
    record = InputRecord()
    for field, separator in zip(fields, separators, strict=False):
        content, found, line = line.partition(separator)
        if not found:
            raise ValueError(f"%{field} is not followed by {separator.decode(errors='replace')!r}")
        _set(record, field, content)
    _set(record, fields[-1], line)
    return record


def _set(record: InputRecord, field: str, content: bytes) -> None:
    if field == "v":
        record.value = content
    elif field == "k":
        record.key = content
    elif field == "t":
        record.topic = content.decode()
    elif field == "p":
        record.partition = int(content)
    elif field == "T":
        record.timestamp_ms = int(content)
    else:
        words = [word for word in content.decode().split(",") if word]
        record.headers = tuple(parse_header(word, "=") for word in words)


def parse_header(word: str, separators: str) -> tuple[str, bytes]:
    """Split a header at the first of these characters; ValueError if it has none."""
    match = re.match(f"([^{separators}]+)[{separators}]", word)
    if not match:
        raise ValueError(f"{word!r} is no header: expected KEY{separators[0]}VALUE")
    return match[1], word[match.end() :].encode()


def _parse_json(line: bytes, json_parts: frozenset[str]) -> InputRecord:
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise TypeError("expected a JSON object")
    _check_names(fields, _JSON_FIELDS, "a record")
    for part in json_parts:
        if fields.get(part) is not None:
            fields[part] = json.dumps(fields[part], ensure_ascii=False)
    record = InputRecord(
        value=_bytes_in(fields, "value"),
        key=_bytes_in(fields, "key"),
        headers=_json_headers(fields.get("headers") or ()),
        topic=_typed(fields, "topic", str),
        partition=_typed(fields, "partition", int),
        timestamp_ms=_typed(fields, "timestamp", int),
    )
    if not any(name in fields for name in _JSON_BYTES):
        raise ValueError("it has neither a key nor a value")
    return record


def _check_names(fields: dict[str, Any], known: Sequence[str], owner: str) -> None:
    """Refuse unknown names: a misspelt `value` would otherwise become a tombstone."""
    unknown = next((name for name in fields if name not in known), None)
    if unknown is not None:
        raise ValueError(f"{owner} has no field {unknown!r}: there are {', '.join(known)}")


def _json_headers(headers: object) -> tuple[tuple[str, bytes | None], ...]:
    """Read `{"a": "b"}`, or `[{"key": "a", "value": "b"}]` as `ottla consume` writes it.

    Names in an object are taken as they are: only the list has `value_base64`.
    """
    if isinstance(headers, dict):
        return tuple((name, _as_bytes(value)) for name, value in headers.items())
    if not isinstance(headers, list | tuple):
        raise TypeError("headers are an object, or a list of objects with key and value")
    return tuple(map(_json_header, headers))


def _json_header(header: object) -> tuple[str, bytes | None]:
    if not isinstance(header, dict) or not isinstance(header.get("key"), str):
        raise TypeError("headers are an object, or a list of objects with key and value")
    _check_names(header, ("key", "value", "value_base64"), "a header")
    return header["key"], _bytes_in(header, "value")


def _typed(fields: dict[str, Any], name: str, kind: type[T]) -> T | None:
    value = fields.get(name)
    if value is None or isinstance(value, kind):
        return value
    raise TypeError(f"{name} is {value!r}, expected {kind.__name__}")


def _bytes_in(fields: dict[str, Any], name: str) -> bytes | None:
    """Return the bytes of a field, given as text or as base64."""
    encoded = f"{name}_base64"
    if encoded not in fields:
        return _as_bytes(fields.get(name))
    if name in fields:
        raise ValueError(f"{name} and {encoded} are both given: give only one")
    return b64decode(fields[encoded], validate=True)


def _as_bytes(value: object) -> bytes | None:
    """Return text as bytes; any other value as the bytes of its JSON."""
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False).encode()
