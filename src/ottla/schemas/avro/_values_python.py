"""Reading and writing Avro data by steps, in plain Python: the fallback of `_values.pyx`.

Every length and count of a payload is held against its end before anything is allocated.
"""

# ruff: noqa: ARG001 - all functions of a table have the same parameters

import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ottla.schemas.avro import avro_steps as steps
from ottla.schemas.avro.avro_steps import CAUGHT, Code, InvalidValueError, located

if TYPE_CHECKING:
    from datetime import datetime

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


NOT_RECORDS: Final = frozenset((type(None), bool, int, float, str, bytes, bytearray, list, tuple))
"""The types of values without fields; all others are read by their attributes."""


class ReadStep:
    """How the value of one type of the writer becomes a value of the reader's type."""

    __slots__ = (
        "code", "convert", "cost", "defaults", "epoch", "inner", "labels", "names", "size",
        "steps", "symbols", "template", "text", "unit",
    )  # fmt: skip

    def __init__(self) -> None:
        self.code: int = Code.NULL
        self.convert: Callable[[Any], Any] | None = None
        """Applied to the value that was read."""
        self.epoch: datetime | None = None
        """Of a timestamp: the compiled loop adds the number of units to it instead."""
        self.unit: int = 0
        """Of a timestamp: microseconds."""
        self.steps: list[ReadStep] = []
        """The fields of the writer's record, or the branches of the writer's union."""
        self.names: list[str | None] = []
        """The reader's name of each of the writer's fields; None: the reader does not have it."""
        self.labels: list[str] = []
        """The writer's names of its fields, for errors."""
        self.template: dict[str, Any] = {}
        """The reader's record in the order of its fields, with the defaults."""
        self.defaults: list[tuple[str, Any]] = []
        """Defaults that are lists and dicts: every record gets its own copy."""
        self.cost: int = 0
        """How many values of a record come from defaults."""
        self.inner: ReadStep | None = None
        """Of the items of an array or the values of a map."""
        self.size: int = 0
        self.symbols: list[str | None] = []
        """The reader's value for each of the writer's symbols; None: there is none."""
        self.text: str = ""
        """The error of a step that fails."""


class WriteStep:
    """How a Python value becomes the bytes of a type."""

    __slots__ = (
        "by_type", "code", "convert", "defaults", "epoch", "inner", "names", "null_index", "pick",
        "size", "steps", "symbols", "unit",
    )  # fmt: skip

    def __init__(self) -> None:
        self.code: int = Code.NULL
        self.convert: Callable[[Any], Any] | None = None
        """Applied to the value before it is written."""
        self.epoch: datetime | None = None
        """Of a timestamp: the compiled loop takes it from datetimes with the same zone instead."""
        self.unit: int = 0
        """Of a timestamp: microseconds."""
        self.steps: list[WriteStep] = []
        """The fields of a record, or the branches of a union."""
        self.names: list[str] = []
        self.defaults: list[tuple[Any] | None] = []
        """The default of each field in a tuple; None: the field has none."""
        self.inner: WriteStep | None = None
        self.size: int = 0
        self.symbols: dict[str, int] = {}
        self.null_index: int = -1
        """The branch of a union that is null, or -1."""
        self.by_type: dict[type, int] = {}
        """The branch of a union for values of a type that only one branch takes."""
        self.pick: Callable[[Any], tuple[int, Any]] | None = None
        """Return the branch of a union and the value, for all other values."""


class _Cursor:
    __slots__ = ("at", "depth", "end", "free_left", "payload")

    def __init__(self, payload: bytes, start: int) -> None:
        self.payload = payload
        self.at = start
        self.end = len(payload)
        self.depth = 0
        self.free_left = (
            steps.FREE_VALUES_MAX + max(self.end - start, 0) * steps.FREE_VALUES_PER_BYTE
        )

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.end - self.at:
            raise InvalidValueError(steps.LENGTH_WRONG)
        at = self.at
        self.at = at + size
        return self.payload[at : self.at]

    def take_long(self) -> int:
        number = shift = 0
        while True:
            if self.at >= self.end:
                raise InvalidValueError(steps.CUT)
            byte = self.payload[self.at]
            self.at += 1
            if shift == 63 and byte > 1:
                raise InvalidValueError(steps.NUMBER_WRONG)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7

    def take_int(self) -> int:
        number = self.take_long()
        if not -(1 << 31) <= number < 1 << 31:
            raise InvalidValueError(steps.NUMBER_WRONG)
        return number

    def take_count(self) -> int:
        """Return the number of items of a block; the size of a block in bytes is not needed."""
        count = self.take_long()
        if count >= 0:
            return count
        if count == -(1 << 63):
            raise InvalidValueError(steps.COUNT_WRONG)
        self.take_long()
        return -count

    def spend(self, count: int) -> None:
        self.free_left -= count
        if self.free_left < 0:
            raise InvalidValueError(steps.TOO_MANY_FREE)

    def enter(self) -> None:
        self.depth += 1
        if self.depth > steps.DEPTH_MAX:
            raise InvalidValueError(steps.TOO_DEEP)


def read_value(step: ReadStep, payload: bytes | bytearray | memoryview, start: int) -> Any:
    """Return the value of a payload from `start` to its end; one of CAUGHT if it is not valid."""
    cursor = _Cursor(bytes(payload), start)
    if not 0 <= start <= cursor.end:
        raise InvalidValueError(steps.CUT)
    value = _read(step, cursor)
    if cursor.at != cursor.end:
        raise InvalidValueError(steps.TRAILING)
    return value


def _read(step: ReadStep, cursor: _Cursor) -> Any:
    value = _READERS[step.code](step, cursor)
    return value if step.convert is None else step.convert(value)


def _read_null(step: ReadStep, cursor: _Cursor) -> None:
    return None


def _read_boolean(step: ReadStep, cursor: _Cursor) -> bool:
    byte = _fixed(cursor, 1)[0]
    if byte > 1:
        raise InvalidValueError(steps.BOOLEAN_WRONG)
    return byte == 1


def _read_int(step: ReadStep, cursor: _Cursor) -> int:
    return cursor.take_int()


def _read_long(step: ReadStep, cursor: _Cursor) -> int:
    return cursor.take_long()


def _read_float(step: ReadStep, cursor: _Cursor) -> Any:
    return _FLOAT.unpack(_fixed(cursor, 4))[0]


def _read_double(step: ReadStep, cursor: _Cursor) -> Any:
    return _DOUBLE.unpack(_fixed(cursor, 8))[0]


def _read_bytes(step: ReadStep, cursor: _Cursor) -> bytes:
    return cursor.take(cursor.take_long())


def _read_string(step: ReadStep, cursor: _Cursor) -> str:
    return cursor.take(cursor.take_long()).decode()


def _read_fixed(step: ReadStep, cursor: _Cursor) -> bytes:
    return _fixed(cursor, step.size)


def _fixed(cursor: _Cursor, size: int) -> bytes:
    if size > cursor.end - cursor.at:
        raise InvalidValueError(steps.CUT)
    return cursor.take(size)


def _read_enum(step: ReadStep, cursor: _Cursor) -> str:
    index = cursor.take_int()
    if not 0 <= index < len(step.symbols):
        raise InvalidValueError(steps.ENUM_WRONG)
    symbol = step.symbols[index]
    if symbol is None:
        raise InvalidValueError(steps.SYMBOL_UNKNOWN)
    return symbol


def _read_array(step: ReadStep, cursor: _Cursor) -> list[Any]:
    assert step.inner is not None
    cursor.enter()
    items: list[Any] = []
    count = cursor.take_count()
    while count > 0:
        _read_items(step.inner, cursor, count, items)
        count = cursor.take_count()
    cursor.depth -= 1
    return items


def _read_items(inner: ReadStep, cursor: _Cursor, count: int, items: list[Any]) -> None:
    try:
        for _ in range(count):
            at = cursor.at
            items.append(_read(inner, cursor))
            if cursor.at == at:
                cursor.spend(1)
    except CAUGHT as error:
        raise located(error, len(items)) from None


def _read_map(step: ReadStep, cursor: _Cursor) -> dict[str, Any]:
    assert step.inner is not None
    cursor.enter()
    items: dict[str, Any] = {}
    count = cursor.take_count()
    while count > 0:
        for _ in range(count):
            key = cursor.take(cursor.take_long()).decode()
            try:
                items[key] = _read(step.inner, cursor)
            except CAUGHT as error:
                raise located(error, key) from None
        count = cursor.take_count()
    cursor.depth -= 1
    return items


def _read_record(step: ReadStep, cursor: _Cursor) -> dict[str, Any]:
    cursor.enter()
    record = step.template.copy()
    if step.cost:
        cursor.spend(step.cost)
        for name, default in step.defaults:
            record[name] = copied(default)
    for index, field_step in enumerate(step.steps):
        try:
            value = _read(field_step, cursor)
        except CAUGHT as error:
            raise located(error, step.labels[index]) from None
        name_of_reader = step.names[index]
        if name_of_reader is not None:
            record[name_of_reader] = value
    cursor.depth -= 1
    return record


def _read_union(step: ReadStep, cursor: _Cursor) -> Any:
    index = cursor.take_int()
    if not 0 <= index < len(step.steps):
        raise InvalidValueError(steps.BRANCH_WRONG)
    return _read(step.steps[index], cursor)


def _read_fail(step: ReadStep, cursor: _Cursor) -> None:
    raise InvalidValueError(step.text)


def copied(value: Any) -> Any:
    """Return a copy of a default with new lists and dicts."""
    if isinstance(value, list):
        return [copied(item) for item in value]
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return value


_READERS: Final[list[Callable[[ReadStep, _Cursor], Any]]] = [
    _read_null,
    _read_boolean,
    _read_int,
    _read_long,
    _read_float,
    _read_double,
    _read_bytes,
    _read_string,
    _read_fixed,
    _read_enum,
    _read_array,
    _read_map,
    _read_record,
    _read_union,
    _read_fail,
]


class _Output:
    __slots__ = ("data", "depth")

    def __init__(self, prefix: bytes) -> None:
        self.data = bytearray(prefix)
        self.depth = 0

    def long(self, number: int) -> None:
        number = number << 1 ^ number >> 63
        while number > 0x7F:
            self.data.append(number & 0x7F | 0x80)
            number >>= 7
        self.data.append(number)

    def enter(self) -> None:
        self.depth += 1
        if self.depth > steps.DEPTH_MAX:
            raise InvalidValueError(steps.TOO_DEEP)


def write_value(step: WriteStep, value: Any, prefix: bytes) -> bytes:
    """Return the prefix and the bytes of a value; one of CAUGHT if it does not fit."""
    output = _Output(prefix)
    _write(step, value, output)
    return bytes(output.data)


def _write(step: WriteStep, value: Any, output: _Output) -> None:
    if step.convert is not None:
        value = step.convert(value)
    _WRITERS[step.code](step, value, output)


def _write_null(step: WriteStep, value: Any, output: _Output) -> None:
    if value is not None:
        raise InvalidValueError(steps.NULL_NEEDED)


def _write_boolean(step: WriteStep, value: Any, output: _Output) -> None:
    if not isinstance(value, bool):
        raise InvalidValueError(steps.BOOLEAN_NEEDED)
    output.data.append(value)


def _write_int(step: WriteStep, value: Any, output: _Output) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
        raise InvalidValueError(steps.INT_NEEDED)
    output.long(value)


def _write_long(step: WriteStep, value: Any, output: _Output) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise InvalidValueError(steps.LONG_NEEDED)
    output.long(value)


def _write_float(step: WriteStep, value: Any, output: _Output) -> None:
    try:
        output.data += _FLOAT.pack(_number(value))
    except OverflowError as error:
        raise InvalidValueError(steps.FLOAT_NEEDED) from error


def _write_double(step: WriteStep, value: Any, output: _Output) -> None:
    output.data += _DOUBLE.pack(_number(value))


def _number(value: Any) -> float:
    if not isinstance(value, float | int) or isinstance(value, bool):
        raise InvalidValueError(steps.FLOAT_NEEDED)
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidValueError(steps.FLOAT_NEEDED) from error


def _write_bytes(step: WriteStep, value: Any, output: _Output) -> None:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidValueError(steps.BYTES_NEEDED)
    encoded = bytes(value)
    output.long(len(encoded))
    output.data += encoded


def _write_string(step: WriteStep, value: Any, output: _Output) -> None:
    if not isinstance(value, str):
        raise InvalidValueError(steps.STRING_NEEDED)
    encoded = value.encode()
    output.long(len(encoded))
    output.data += encoded


def _write_fixed(step: WriteStep, value: Any, output: _Output) -> None:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidValueError(steps.BYTES_NEEDED)
    encoded = bytes(value)
    if len(encoded) != step.size:
        raise InvalidValueError(steps.SIZE_WRONG)
    output.data += encoded


def _write_enum(step: WriteStep, value: Any, output: _Output) -> None:
    output.long(symbol_index(step.symbols, value))


def symbol_index(symbols: Mapping[str, int], value: Any) -> int:
    """Return the number of a symbol; members of Python enums are symbols by value or name."""
    texts = (value.value, value.name) if isinstance(value, Enum) else (value,)
    for text in texts:
        if isinstance(text, str) and text in symbols:
            return symbols[text]
    raise InvalidValueError(steps.SYMBOL_WRONG)


def _write_array(step: WriteStep, value: Any, output: _Output) -> None:
    assert step.inner is not None
    if not isinstance(value, list | tuple):
        raise InvalidValueError(steps.LIST_NEEDED)
    output.enter()
    if value:
        output.long(len(value))
        for index, item in enumerate(value):
            try:
                _write(step.inner, item, output)
            except CAUGHT as error:
                raise located(error, index) from None
    output.data.append(0)
    output.depth -= 1


def _write_map(step: WriteStep, value: Any, output: _Output) -> None:
    assert step.inner is not None
    if not isinstance(value, Mapping):
        raise InvalidValueError(steps.DICT_NEEDED)
    output.enter()
    if value:
        output.long(len(value))
        for key, item in value.items():
            _write_string(step, key, output)
            try:
                _write(step.inner, item, output)
            except CAUGHT as error:
                raise located(error, key) from None
    output.data.append(0)
    output.depth -= 1


def _write_record(step: WriteStep, value: Any, output: _Output) -> None:
    output.enter()
    if type(value) in NOT_RECORDS:
        raise InvalidValueError(steps.DICT_NEEDED)
    for index, name in enumerate(step.names):
        try:
            _write(step.steps[index], field_value(step, value, index), output)
        except CAUGHT as error:
            raise located(error, name) from None
    output.depth -= 1


def field_value(step: WriteStep, value: Any, index: int) -> Any:
    """Return a field of a mapping or an object, or its default."""
    name = step.names[index]
    if isinstance(value, Mapping):
        if name in value:
            return value[name]
    elif hasattr(value, name):
        return getattr(value, name)
    default = step.defaults[index]
    if default is None:
        raise InvalidValueError(steps.FIELD_MISSING)
    return default[0]


def _write_union(step: WriteStep, value: Any, output: _Output) -> None:
    index = step.null_index if value is None else step.by_type.get(type(value), -1)
    if index < 0:
        assert step.pick is not None
        index, value = step.pick(value)
    output.long(index)
    _write(step.steps[index], value, output)


_WRITERS: Final[list[Callable[[WriteStep, Any, _Output], None]]] = [
    _write_null,
    _write_boolean,
    _write_int,
    _write_long,
    _write_float,
    _write_double,
    _write_bytes,
    _write_string,
    _write_fixed,
    _write_enum,
    _write_array,
    _write_map,
    _write_record,
    _write_union,
]
