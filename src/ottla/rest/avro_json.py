"""Avro data as JSON in Avro's JSON encoding, and back, by the types of a schema.

A value of a union is null, or an object with the name of the branch: `{"string": "x"}`. Bytes and
fixed are strings of code points up to 255. Logical types have the JSON of their base types, as in
Confluent's proxy. Writing also takes the bare value of a union, if a branch fits it, and the
default of a field that is left out.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ottla.schemas.avro.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Fixed,
    Kind,
    Map,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.values import InvalidValueError

DEPTH_MAX: Final = 200
"""Levels of records, arrays, maps and unions in one value."""
ITEMS_MAX: Final = 1_000_000
"""Items of all arrays and maps of one value that is read: items of null have no bytes."""
TRIES_MAX: Final = 10_000
"""Branches of unions that are tried in one value that does not name them."""
_VARINT_BYTES_MAX: Final = 10
_LENGTH_BY_KIND: Final = {Kind.INT: 31, Kind.LONG: 63}
_FORMAT_BY_KIND: Final = {Kind.FLOAT: struct.Struct("<f"), Kind.DOUBLE: struct.Struct("<d")}
_WORD_BY_NUMBER: Final = {"NaN": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NUMBER_BY_WORD: Final = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}


class _TooManyTriesError(Exception):
    """Not an InvalidValueError: that would be taken for the failure of one branch."""


def avro_from_json(root: AvroType, value: Any) -> bytes:
    """Return the data of a JSON value; InvalidValueError names the path that does not fit."""
    writing = _Writing()
    try:
        writing.value(root, value, "", 0)
    except _TooManyTriesError:
        raise InvalidValueError(
            f"more than {TRIES_MAX} branches of unions were tried: name the branches, as in "
            '{"string": "x"}'
        ) from None
    return bytes(writing.out)


def json_from_avro(root: AvroType, payload: bytes | memoryview) -> Any:
    """Return the JSON value of data; InvalidValueError if the payload is not exactly one value."""
    reading = _Reading(bytes(payload))
    value = reading.value(root, 0)
    if reading.position != len(reading.data):
        raise InvalidValueError(f"{len(reading.data) - reading.position} bytes are left over")
    return value


def branch_name(branch: AvroType) -> str:
    """Return the name of a branch of a union in JSON."""
    match branch:
        case Primitive():
            return str(branch.kind.value)
        case Array():
            return "array"
        case Map():
            return "map"
        case Union():
            return "union"
        case _:
            return branch.full_name


# -- writing --------------------------------------------------------------------------------------


def _unfit(path: str, expected: str, value: Any) -> InvalidValueError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:80] + "…"
    return InvalidValueError(f"at {path or 'the root'}: expected {expected}, found {shown}")


class _Writing:
    """The data of one value, as far as it is written."""

    def __init__(self) -> None:
        self.out = bytearray()
        self._tries_left = TRIES_MAX

    def value(self, kind: AvroType, value: Any, path: str, depth: int) -> None:
        """Write a value."""
        if depth > DEPTH_MAX:
            raise InvalidValueError(f"the value has more than {DEPTH_MAX} levels")
        match kind:
            case Primitive():
                self._primitive(kind.kind, value, path)
            case Enum() | Fixed():
                self._named(kind, value, path)
            case Record():
                self._record(kind, value, path, depth)
            case Array():
                self._array(kind, value, path, depth)
            case Map():
                self._map(kind, value, path, depth)
            case Union():
                self._union(kind, value, path, depth)

    def _primitive(self, kind: Kind, value: Any, path: str) -> None:
        if kind in _LENGTH_BY_KIND:
            limit = 1 << _LENGTH_BY_KIND[kind]
            if type(value) is not int or not -limit <= value < limit:
                raise _unfit(path, f"a number of type {kind.value}", value)
            self.out += _zigzag(value)
        elif kind in _FORMAT_BY_KIND:
            self.out += _float_bytes(kind, value, path)
        elif kind is Kind.BYTES:
            self._chunk(_bytes_of(value, path))
        elif kind is Kind.STRING:
            if not isinstance(value, str):
                raise _unfit(path, "a string", value)
            self._chunk(_utf8(value, path))
        elif kind is Kind.BOOLEAN:
            if not isinstance(value, bool):
                raise _unfit(path, "true or false", value)
            self.out.append(value)
        elif value is not None:
            raise _unfit(path, "null", value)

    def _named(self, kind: Enum | Fixed, value: Any, path: str) -> None:
        if isinstance(kind, Enum):
            if not isinstance(value, str) or value not in kind.symbols:
                raise _unfit(path, f"a symbol of {kind.full_name}", value)
            self.out += _zigzag(kind.symbols.index(value))
            return
        data = _bytes_of(value, path)
        if len(data) != kind.size:
            raise _unfit(path, f"{kind.size} characters for {kind.full_name}", value)
        self.out += data

    def _chunk(self, data: bytes) -> None:
        self.out += _zigzag(len(data))
        self.out += data

    def _record(self, kind: Record, value: Any, path: str, depth: int) -> None:
        if not isinstance(value, dict):
            raise _unfit(path, f"an object for {kind.full_name}", value)
        for field in kind.fields:
            below = f"{path}/{field.name}"
            if field.name in value:
                self.value(field.type, value[field.name], below, depth + 1)
            elif field.default is not NO_DEFAULT:
                self.value(field.type, field.default, below, depth + 1)
            else:
                raise InvalidValueError(f"at {below}: the field is missing and has no default")
        unknown = value.keys() - {field.name for field in kind.fields}
        if unknown:
            raise InvalidValueError(f"at {path or 'the root'}: there is no field {min(unknown)!r}")

    def _array(self, kind: Array, value: Any, path: str, depth: int) -> None:
        if not isinstance(value, list):
            raise _unfit(path, "an array", value)
        if value:
            self.out += _zigzag(len(value))
            for index, item in enumerate(value):
                self.value(kind.items, item, f"{path}/{index}", depth + 1)
        self.out.append(0)

    def _map(self, kind: Map, value: Any, path: str, depth: int) -> None:
        if not isinstance(value, dict):
            raise _unfit(path, "an object", value)
        if value:
            self.out += _zigzag(len(value))
            for key, item in value.items():
                self._chunk(_utf8(key, path))
                self.value(kind.values, item, f"{path}/{key}", depth + 1)
        self.out.append(0)

    def _union(self, kind: Union, value: Any, path: str, depth: int) -> None:
        names = [branch_name(branch) for branch in kind.branches]
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
            index = _named_branch(names, name)
            if index is not None:
                self.out += _zigzag(index)
                self.value(kind.branches[index], inner, path, depth + 1)
                return
        start = len(self.out)
        for index, branch in _by_json_type(kind, value):
            # Unions inside of unions multiply the tries.
            self._tries_left -= 1
            if self._tries_left < 0:
                raise _TooManyTriesError
            self.out += _zigzag(index)
            try:
                self.value(branch, value, path, depth + 1)
            except InvalidValueError:
                del self.out[start:]
            else:
                return
        raise _unfit(path, f"null or an object with one of the names {', '.join(names)}", value)


def _float_bytes(kind: Kind, value: Any, path: str) -> bytes:
    number = _NUMBER_BY_WORD.get(value, value) if isinstance(value, str) else value
    if not isinstance(number, int | float) or isinstance(number, bool):
        raise _unfit(path, "a number", value)
    try:
        return _FORMAT_BY_KIND[kind].pack(number)
    except (OverflowError, struct.error):
        raise _unfit(path, f"a number of type {kind.value}", value) from None


def _utf8(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _unfit(path, "text without lone surrogates", text) from None


def _bytes_of(value: Any, path: str) -> bytes:
    if not isinstance(value, str):
        raise _unfit(path, "a string with one character for each byte", value)
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise _unfit(path, "characters up to U+00FF, one for each byte", value) from None


def _named_branch(names: list[str], name: str) -> int | None:
    """Return the branch with a full name, or the only branch with a name without namespace."""
    if name in names:
        return names.index(name)
    short = [index for index, full in enumerate(names) if full.rpartition(".")[2] == name]
    return short[0] if len(short) == 1 else None


def _by_json_type(kind: Union, value: Any) -> Iterator[tuple[int, AvroType]]:
    """Yield the branches that a value may be of; trying them costs no more than one level."""
    for index, branch in enumerate(kind.branches):
        is_container = isinstance(value, dict | list)
        if is_container is isinstance(branch, Record | Map | Array):
            yield index, branch


def _zigzag(number: int) -> bytes:
    rest, made = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    made.append(rest)
    return bytes(made)


# -- reading --------------------------------------------------------------------------------------


class _Reading:
    """One payload, read from its start."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self._items_left = ITEMS_MAX

    def value(self, kind: AvroType, depth: int) -> Any:
        """Read a value."""
        if depth > DEPTH_MAX:
            raise InvalidValueError(f"the value has more than {DEPTH_MAX} levels")
        match kind:
            case Primitive():
                return _READ_BY_KIND[kind.kind](self)
            case Record():
                return {field.name: self.value(field.type, depth + 1) for field in kind.fields}
            case Enum() | Fixed():
                return self._named(kind)
            case Array():
                return [self.value(kind.items, depth + 1) for _ in self._items()]
            case Map():
                return {self.text(): self.value(kind.values, depth + 1) for _ in self._items()}
            case Union():
                return self._union(kind, depth)

    def _named(self, kind: Enum | Fixed) -> str:
        if isinstance(kind, Fixed):
            return self._take(kind.size).decode("latin-1")
        return kind.symbols[self._index(len(kind.symbols), kind.full_name)]

    def _union(self, kind: Union, depth: int) -> Any:
        branch = kind.branches[self._index(len(kind.branches), "a union")]
        found = self.value(branch, depth + 1)
        is_null = isinstance(branch, Primitive) and branch.kind is Kind.NULL
        return None if is_null else {branch_name(branch): found}

    def number(self) -> int:
        """Read an int or a long."""
        shift = number = 0
        for _ in range(_VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)
            shift += 7
        raise InvalidValueError(f"at byte {self.position}: a number is too long")

    def boolean(self) -> bool:
        """Read a boolean."""
        return self._take(1) != b"\0"

    def floating(self, form: struct.Struct) -> float | str:
        """Read a float or a double; JSON has no numbers that are not finite."""
        (found,) = form.unpack(self._take(form.size))
        word = str(found)
        return _WORD_BY_NUMBER["NaN" if word == "nan" else word] if "n" in word else found

    def chunk(self) -> bytes:
        """Read bytes."""
        return self._take(self.number())

    def text(self) -> str:
        """Read a string."""
        try:
            return self.chunk().decode()
        except UnicodeDecodeError:
            raise InvalidValueError(f"at byte {self.position}: a string is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise InvalidValueError(f"at byte {self.position}: the data ends within a value")
        found = self.data[self.position : end]
        self.position = end
        return found

    def _index(self, count: int, name: str) -> int:
        index = self.number()
        if not 0 <= index < count:
            raise InvalidValueError(f"at byte {self.position}: {name} has no number {index}")
        return index

    def _items(self) -> Iterator[None]:
        while count := self.number():
            if count < 0:  # the size of the block in bytes follows
                count = -count
                self.number()
            self._items_left -= count
            if self._items_left < 0:
                raise InvalidValueError(f"the value has more than {ITEMS_MAX} items")
            for _ in range(count):
                yield


_READ_BY_KIND: Final[Mapping[Kind, Callable[[_Reading], Any]]] = {
    Kind.NULL: lambda _: None,
    Kind.BOOLEAN: _Reading.boolean,
    Kind.INT: _Reading.number,
    Kind.LONG: _Reading.number,
    Kind.FLOAT: lambda reading: reading.floating(_FORMAT_BY_KIND[Kind.FLOAT]),
    Kind.DOUBLE: lambda reading: reading.floating(_FORMAT_BY_KIND[Kind.DOUBLE]),
    Kind.BYTES: lambda reading: reading.chunk().decode("latin-1"),
    Kind.STRING: _Reading.text,
}
