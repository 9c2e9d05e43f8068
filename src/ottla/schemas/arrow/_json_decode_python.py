"""JSON payloads to the buffers of Arrow columns, in plain Python.

The contract for both this file and its compiled twin `_json_decode`. A plan is a list of columns;
column 0 is the struct of a row. `decode` returns the buffers of each column, and the numbers of
the rows that could not be decoded: they are null. `decode_row` raises the reason for such a row.

Missing properties are null. A null is an error unless the column is nullable, and so is a declared
property that an object has twice. Unknown properties are ignored, but must be JSON.
"""

import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final, TypeAlias

from ottla.schemas.values import InvalidValueError

DEPTH_MAX: Final = 128
NUMBER_CHARACTERS_MAX: Final = 1_000
CELLS_FLOOR: Final = 4_096
"""The most values of a row in all columns,"""
CELLS_PER_BYTE: Final = 64
"""and as many more for each byte: short objects of wide structs must not fill the memory."""
INTEGER_OF_FLOAT_MAX: Final = 1 << 53
"""Integers written like 1e3 are exact up to here."""


class Kind(IntEnum):
    """The kind of a column."""

    INT64 = 0
    FLOAT64 = 1
    BOOLEAN = 2
    STRING = 3
    TEXT = 4
    """A string with any JSON value, as it is written."""
    TIMESTAMP = 5
    DATE = 6
    LIST = 7
    MAP = 8
    STRUCT = 9


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a plan. Lists and maps have one child, structs have one for each name."""

    kind: Kind
    is_nullable: bool
    children: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


Buffers: TypeAlias = tuple[int, int, bytes | None, bytes | None, bytes | None]
"""Values, nulls, validity bits unless there is no null, ends, and data."""

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# Possessive: without a closing quote, backtracking would take exponential time.
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_LITERALS: Final = {"n": "null", "t": "true", "f": "false"}


@dataclass(slots=True)
class _Values:
    """The values of a column so far; None is null. A list or map has its ends."""

    items: list[Any] = field(default_factory=list)
    end: int = 0


def decode(
    plan: Sequence[Column], payloads: Sequence[bytes | None], is_record: bool
) -> tuple[list[Buffers], list[int]]:
    """Decode one payload per row. A record is an object; other values have one column, `value`."""
    values = [_Values() for _ in plan]
    errors: list[int] = []
    for row, payload in enumerate(payloads):
        is_fine = payload is not None and _append_row(plan, values, payload, is_record)
        if payload is not None and not is_fine:
            errors.append(row)
        if not is_fine:
            for child in plan[0].children:
                _append_null(plan, values, child)
            values[0].items.append(True)
    return [_buffers(column, one) for column, one in zip(plan, values, strict=True)], errors


def _append_row(
    plan: Sequence[Column], values: list[_Values], payload: bytes, is_record: bool
) -> bool:
    lengths = [(len(one.items), one.end) for one in values]
    try:
        _Row(plan, values, payload).decode(is_record)
    except InvalidValueError:
        for one, (length, end) in zip(values, lengths, strict=True):
            del one.items[length:]
            one.end = end
        return False
    return True


def decode_row(plan: Sequence[Column], payload: bytes, is_record: bool) -> None:
    """Raise InvalidValueError, with the path and the reason, if a payload cannot be decoded."""
    _Row(plan, [_Values() for _ in plan], payload).decode(is_record)


def _append_null(plan: Sequence[Column], values: list[_Values], index: int) -> None:
    values[index].items.append(None)
    if plan[index].kind is Kind.STRUCT:
        for child in plan[index].children:
            _append_null(plan, values, child)


class _Row:
    """The parser of one payload."""

    def __init__(self, plan: Sequence[Column], values: list[_Values], payload: bytes) -> None:
        self._plan = plan
        self._values = values
        self._path: list[str] = []
        self._depth = 0
        self._cells = CELLS_FLOOR + len(plan) + CELLS_PER_BYTE * len(payload)
        self._here = 0
        try:
            self._text = payload.decode()
        except UnicodeDecodeError as error:
            raise InvalidValueError(f"the payload is not UTF-8: {error}") from error

    def decode(self, is_record: bool) -> None:
        if is_record:
            if self._peek() != "{":
                raise self._error("the value is not an object")
            self._struct(0)
        else:
            self._value(self._plan[0].children[0])
            self._values[0].items.append(True)
        self._space()
        if self._here < len(self._text):
            raise self._error("the payload goes on after the value")

    def _error(self, reason: str) -> InvalidValueError:
        return InvalidValueError(f"at #/{'/'.join(self._path)}: {reason}")

    def _malformed(self) -> InvalidValueError:
        return self._error(f"the payload is not JSON at character {self._here}")

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._here)
        self._here = match.end() if match else self._here

    def _peek(self) -> str:
        self._space()
        return self._text[self._here : self._here + 1]

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._here += 1
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._text, self._here)
        if match is None:
            raise self._malformed()
        self._here = match.end()
        return match

    def _enter(self) -> None:
        self._here += 1
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(f"more than {DEPTH_MAX} objects and arrays inside each other")

    def _skip(self) -> None:
        """Read any value."""
        character = self._peek()
        if character == '"':
            self._match(_STRING)
        elif character in ("{", "["):
            self._skip_container(character)
        elif character in _LITERALS and character:
            self._literal(_LITERALS[character])
        else:
            self._match(_NUMBER)

    def _skip_container(self, opening: str) -> None:
        self._enter()
        closing = "}" if opening == "{" else "]"
        if not self._take(closing):
            while True:
                if opening == "{":
                    self._peek()
                    self._match(_STRING)
                    self._expect(":")
                self._skip()
                if not self._take(","):
                    break
            self._expect(closing)
        self._depth -= 1

    def _expect(self, character: str) -> None:
        if not self._take(character):
            raise self._malformed()

    def _literal(self, word: str) -> None:
        if not self._text.startswith(word, self._here):
            raise self._malformed()
        self._here += len(word)

    def _value(self, index: int) -> None:
        """Append one value to a column."""
        column = self._plan[index]
        character = self._peek()
        if character == "n":
            self._literal("null")
            if not column.is_nullable:
                raise self._error("the value is null")
            _append_null(self._plan, self._values, index)
        elif column.kind is Kind.STRUCT:
            self._opened("{", "an object")
            self._struct(index)
        elif column.kind is Kind.LIST:
            self._opened("[", "an array")
            self._list(index)
        elif column.kind is Kind.MAP:
            self._opened("{", "an object")
            self._map(index)
        else:
            self._values[index].items.append(self._scalar(column.kind))

    def _opened(self, character: str, name: str) -> None:
        if self._peek() != character:
            raise self._error(f"the value is not {name}")

    def _struct(self, index: int) -> None:
        column, count = self._plan[index], len(self._values[index].items)
        self._cells -= len(column.children)
        if self._cells < 0:
            raise self._error("the value has too many properties for its size")
        self._enter()
        if not self._take("}"):
            while True:
                self._property(column, count)
                if not self._take(","):
                    break
            self._expect("}")
        self._depth -= 1
        for child in column.children:
            if len(self._values[child].items) == count:
                _append_null(self._plan, self._values, child)
        self._values[index].items.append(True)

    def _property(self, column: Column, count: int) -> None:
        name = self._string()
        self._expect(":")
        if name not in column.names:
            self._skip()
            return
        child = column.children[column.names.index(name)]
        self._path.append(name)
        if len(self._values[child].items) > count:
            raise self._error("the object has the property twice")
        self._value(child)
        self._path.pop()

    def _list(self, index: int) -> None:
        self._enter()
        (child,) = self._plan[index].children
        if not self._take("]"):
            while True:
                self._path.append(str(len(self._values[child].items) - self._values[index].end))
                self._value(child)
                self._path.pop()
                if not self._take(","):
                    break
            self._expect("]")
        self._depth -= 1
        self._close(index, child)

    def _map(self, index: int) -> None:
        self._enter()
        keys, child = self._plan[index].children
        if not self._take("}"):
            while True:
                name = self._string()
                self._expect(":")
                self._path.append(name)
                self._values[keys].items.append(self._encoded(name))
                self._value(child)
                self._path.pop()
                if not self._take(","):
                    break
            self._expect("}")
        self._depth -= 1
        self._close(index, child)

    def _close(self, index: int, child: int) -> None:
        self._values[index].end = len(self._values[child].items)
        self._values[index].items.append(self._values[index].end)

    def _string(self) -> str:
        self._peek()
        start = self._here
        self._match(_STRING)
        text, _ = scanstring(self._text, start + 1, True)
        assert isinstance(text, str)
        return text

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise self._error("the string has half of a surrogate pair") from error

    def _scalar(self, kind: Kind) -> Any:
        match kind:
            case Kind.TEXT:
                start = self._here
                self._skip()
                return self._text[start : self._here].encode()
            case Kind.BOOLEAN:
                return self._boolean()
            case Kind.INT64 | Kind.FLOAT64:
                return self._number(kind)
            case _:
                if self._peek() != '"':
                    raise self._error("the value is not a string")
                text = self._string()
        encoded = self._encoded(text)
        if kind is Kind.STRING:
            return encoded
        return self._timestamp(text) if kind is Kind.TIMESTAMP else self._date(text)

    def _boolean(self) -> bool:
        character = self._peek()
        if character not in ("t", "f"):
            raise self._error("the value is not a boolean")
        self._literal(_LITERALS[character])
        return character == "t"

    def _number(self, kind: Kind) -> int | float:
        start = self._here
        if self._peek() not in set("-0123456789"):
            raise self._error("the value is not a number")
        match = self._match(_NUMBER)
        if self._here - start > NUMBER_CHARACTERS_MAX:
            raise self._error(f"the number has more than {NUMBER_CHARACTERS_MAX} characters")
        if kind is Kind.INT64 and match[1] is None and match[2] is None:
            integer = int(match[0])
            if not -(1 << 63) <= integer < 1 << 63:
                raise self._error("the integer does not fit 64 bits")
            return integer
        number = float(match[0])
        if math.isinf(number):
            raise self._error("the number is out of range")
        if kind is Kind.FLOAT64:
            return number
        if not number.is_integer() or abs(number) > INTEGER_OF_FLOAT_MAX:
            raise self._error("the number is not an integer that a float holds exactly")
        return int(number)

    def _timestamp(self, text: str) -> int:
        match = _TIMESTAMP.fullmatch(text)
        if match is None:
            raise self._error("the string is not a date-time such as 2026-01-31T12:00:00Z")
        days = self._date(match[1])
        hour, minute, second = int(match[2]), int(match[3]), int(match[4])
        offset_hours, offset_minutes = int(match[7] or 0), int(match[8] or 0)
        if max(minute, second, offset_minutes) > 59 or max(hour, offset_hours) > 23:
            raise self._error("the date-time has an hour, minute or second that does not exist")
        offset = (offset_hours * 60 + offset_minutes) * (-1 if match[6] == "-" else 1)
        seconds = days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second
        return seconds * 1_000_000 + int((match[5] or "")[:6].ljust(6, "0"))

    def _date(self, text: str) -> int:
        match = _DATE.fullmatch(text)
        if match is None:
            raise self._error("the string is not a date such as 2026-01-31")
        year, month, day = int(match[1]), int(match[2]), int(match[3])
        if not 1 <= month <= 12 or not 1 <= day <= _days_of(year, month):
            raise self._error("the date has a month or day that does not exist")
        return _days_since_1970(year, month, day)


def _days_of(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in {4, 6, 9, 11} else 31


def _days_since_1970(year: int, month: int, day: int) -> int:
    # The year begins in March here, so that the leap day is its last day.
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


def _buffers(column: Column, values: _Values) -> Buffers:
    items = values.items
    nulls = items.count(None)
    validity = _bits([item is not None for item in items]) if nulls else None
    ends: bytes | None = None
    data: bytes | None = None
    match column.kind:
        case Kind.STRING | Kind.TEXT:
            ends, data = (
                _ends_of([len(item or b"") for item in items]),
                b"".join(filter(None, items)),
            )
        case Kind.LIST | Kind.MAP:
            ends = _list_ends(items)
        case Kind.BOOLEAN:
            data = _bits([bool(item) for item in items])
        case Kind.FLOAT64:
            data = array("d", [0.0 if item is None else item for item in items]).tobytes()
        case Kind.DATE:
            data = array("i", [item or 0 for item in items]).tobytes()
        case Kind.INT64 | Kind.TIMESTAMP:
            data = array("q", [item or 0 for item in items]).tobytes()
        case Kind.STRUCT:
            pass
    return len(items), nulls, validity, ends, data


def _ends_of(sizes: list[int]) -> bytes:
    ends = array("i", [0])
    for size in sizes:
        ends.append(ends[-1] + size)
    return ends.tobytes()


def _list_ends(items: list[int | None]) -> bytes:
    ends = array("i", [0])
    for end in items:
        ends.append(ends[-1] if end is None else end)
    return ends.tobytes()


def _bits(flags: list[bool]) -> bytes:
    bits = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        bits[index >> 3] |= flag << (index & 7)
    return bytes(bits)
