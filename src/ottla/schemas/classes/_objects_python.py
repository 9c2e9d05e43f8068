"""Objects to Avro bytes and back by a plan, in plain Python: the twin of _objects.pyx.

The compiled loop leaves every failure to this module, which alone makes error texts.
"""

import datetime
import struct
import uuid
from decimal import Decimal
from typing import Any, Final

from ottla.schemas.classes.object_plan import DEPTH_MAX, Op, Step

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_DAY_MAX: Final = datetime.date.max.toordinal()
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_VARINT_BYTES_MAX: Final = 10
DAY_MICROS: Final = 86_400_000_000


class ObjectError(ValueError):
    """An object does not fit the schema, or bytes are not a value of it; the path is named."""

    def __init__(self, path: str, reason: object) -> None:
        super().__init__(f"{path}: {reason}" if path else str(reason))
        self.path = path
        self.reason = str(reason)


class Objects:
    """Encodes and decodes the objects of one plan."""

    def __init__(self, root: Step) -> None:
        self._root = root

    def encode(self, value: object, prefix: bytes = b"") -> bytes:
        """Return the bytes of an object after a prefix; ObjectError with the path of the field."""
        out = bytearray(prefix)
        _write(self._root, out, value, 0)
        return bytes(out)

    def decode(self, data: bytes, start: int = 0) -> Any:
        """Return the object after `start` bytes; ObjectError if the bytes are not one object."""
        cursor = _Cursor(bytes(data), start)
        value = _read(self._root, cursor, 0)
        if cursor.position != len(cursor.data):
            raise ObjectError("", f"{len(cursor.data) - cursor.position} bytes follow the value")
        return value


# -- writing --------------------------------------------------------------------------------------


def _write(step: Step, out: bytearray, value: Any, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ObjectError("", f"objects are nested more than {DEPTH_MAX} deep")
    match step.op:
        case Op.RECORD:
            _write_record(step, out, value, depth)
        case Op.UNION:
            branch = _checked(step.branch_of, value)
            _write_long(out, branch)
            _write(step.children[branch], out, value, depth + 1)
        case Op.LIST:
            _write_list(step, out, value, depth)
        case Op.MAP:
            _write_map(step, out, value, depth)
        case _:
            _checked(_WRITERS[step.op], step, out, value)


def _checked(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ObjectError:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError, KeyError) as error:
        raise ObjectError("", error) from None


def _write_record(step: Step, out: bytearray, value: Any, depth: int) -> None:
    for child, attribute in zip(step.children, step.attributes, strict=True):
        try:
            member = value[attribute] if step.is_mapping else getattr(value, attribute)
        except (KeyError, TypeError, AttributeError):
            raise ObjectError(
                attribute, f"an object of type {type(value).__name__} has no such field"
            ) from None
        try:
            _write(child, out, member, depth + 1)
        except ObjectError as error:
            raise _inside(attribute, error) from None


def _inside(name: str, error: ObjectError) -> ObjectError:
    joint = "" if not error.path or error.path.startswith("[") else "."
    return ObjectError(f"{name}{joint}{error.path}", error.reason)


def _write_list(step: Step, out: bytearray, value: Any, depth: int) -> None:
    _require(isinstance(value, list | tuple | set | frozenset), value, "a list")
    if value:
        _write_long(out, len(value))
    for place, item in enumerate(value):
        try:
            _write(step.children[0], out, item, depth + 1)
        except ObjectError as error:
            raise _inside(f"[{place}]", error) from None
    out.append(0)


def _write_map(step: Step, out: bytearray, value: Any, depth: int) -> None:
    _require(isinstance(value, dict), value, "a dict")
    if value:
        _write_long(out, len(value))
    for key, item in value.items():
        _require(isinstance(key, str), key, "a str as key")
        _write_bytes(out, key.encode())
        try:
            _write(step.children[0], out, item, depth + 1)
        except ObjectError as error:
            raise _inside(f"[{key!r}]", error) from None
    out.append(0)


def _require(is_met: bool, value: object, wanted: str) -> None:
    if not is_met:
        raise ObjectError("", f"expected {wanted}, not {type(value).__name__}")


def _write_long(out: bytearray, number: int) -> None:
    rest = number << 1 ^ number >> 63
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _write_bytes(out: bytearray, data: bytes) -> None:
    _write_long(out, len(data))
    out += data


def _write_null(_: Step, __: bytearray, value: Any) -> None:
    _require(value is None, value, "None")


def _write_boolean(_: Step, out: bytearray, value: Any) -> None:
    _require(isinstance(value, bool), value, "a bool")
    out.append(value)


def _write_number(out: bytearray, value: Any, bits: int) -> None:
    _require(isinstance(value, int) and not isinstance(value, bool), value, "an int")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ObjectError("", f"{value} is outside of {bits} bits")
    _write_long(out, value)


def _write_float(step: Step, out: bytearray, value: Any) -> None:
    _require(isinstance(value, float | int) and not isinstance(value, bool), value, "a float")
    out += (_FLOAT if step.op is Op.FLOAT else _DOUBLE).pack(value)


def _write_string(_: Step, out: bytearray, value: Any) -> None:
    _require(isinstance(value, str), value, "a str")
    _write_bytes(out, value.encode())


def _write_raw(_: Step, out: bytearray, value: Any) -> None:
    _require(isinstance(value, bytes | bytearray | memoryview), value, "bytes")
    _write_bytes(out, bytes(value))


def micros_of(value: Any) -> int:
    """Return the microseconds since 1970; ValueError without a time zone."""
    _require(isinstance(value, datetime.datetime), value, "a datetime")
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone: make it with datetime.now(timezone.utc)")
    micros: int = (value - EPOCH) // _MICROSECOND
    return micros


def _write_datetime(_: Step, out: bytearray, value: Any) -> None:
    _write_long(out, micros_of(value))


def _write_date(_: Step, out: bytearray, value: Any) -> None:
    _require(type(value) is datetime.date, value, "a date")
    _write_long(out, value.toordinal() - EPOCH_DAY)


def _write_time(_: Step, out: bytearray, value: Any) -> None:
    _require(isinstance(value, datetime.time), value, "a time")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    _write_long(out, seconds * 1_000_000 + value.microsecond)


def _write_uuid(_: Step, out: bytearray, value: Any) -> None:
    _require(isinstance(value, uuid.UUID), value, "a UUID")
    _write_bytes(out, str(value).encode())


def decimal_bytes(value: Any, precision: int, scale: int) -> bytes:
    """Return the unscaled number as bytes; ValueError if it has too many digits."""
    _require(isinstance(value, Decimal), value, "a Decimal")
    sign, digits, exponent = value.as_tuple()
    if not value.is_finite():
        raise ValueError(f"{value} is not finite")
    assert isinstance(exponent, int)
    zeros = exponent + scale
    number = int("".join(map(str, digits)) or "0")
    if zeros < 0:
        number, rest = divmod(number, 10 ** min(-zeros, len(digits) + 1))
        if rest:
            raise ValueError(f"{value} has more than {scale} digits after the point")
    elif number and zeros + len(digits) > precision + len(digits):
        raise ValueError(f"{value} has more than {precision} digits")
    else:
        number *= 10**zeros if number else 1
    if len(str(number)) > precision:
        raise ValueError(f"{value} has more than {precision} digits")
    number = -number if sign else number
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


def decimal_of(data: bytes, scale: int) -> Decimal:
    """Return the Decimal of an unscaled number, without rounding."""
    number = int.from_bytes(data, "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _write_decimal(step: Step, out: bytearray, value: Any) -> None:
    _write_bytes(out, decimal_bytes(value, step.precision, step.scale))


def _write_enum(step: Step, out: bytearray, value: Any) -> None:
    if value not in step.index_by_member:
        raise ValueError(f"{value!r} is not one of {', '.join(map(str, step.members))}")
    _write_long(out, step.index_by_member[value])


_WRITERS: Final = {
    Op.NULL: _write_null,
    Op.BOOLEAN: _write_boolean,
    Op.INT: lambda _, out, value: _write_number(out, value, 32),
    Op.LONG: lambda _, out, value: _write_number(out, value, 64),
    Op.FLOAT: _write_float,
    Op.DOUBLE: _write_float,
    Op.STRING: _write_string,
    Op.BYTES: _write_raw,
    Op.DATETIME: _write_datetime,
    Op.DATE: _write_date,
    Op.TIME: _write_time,
    Op.UUID: _write_uuid,
    Op.DECIMAL: _write_decimal,
    Op.ENUM: _write_enum,
}


# -- reading --------------------------------------------------------------------------------------


class _Cursor:
    """A position in bytes; every read is checked against their end."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise ObjectError("", f"{count} bytes are missing at byte {self.position}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def long(self) -> int:
        number = 0
        for place in range(_VARINT_BYTES_MAX):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if number >= 1 << 64:
                    break
                return number >> 1 ^ -(number & 1)
        raise ObjectError("", f"the number before byte {self.position} is longer than 64 bits")


def _read(step: Step, cursor: _Cursor, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ObjectError("", f"objects are nested more than {DEPTH_MAX} deep")
    match step.op:
        case Op.RECORD:
            return _read_record(step, cursor, depth)
        case Op.UNION:
            branch = cursor.long()
            if not 0 <= branch < len(step.children):
                raise ObjectError("", f"the union has no branch {branch}")
            return _read(step.children[branch], cursor, depth + 1)
        case Op.LIST:
            return _read_list(step, cursor, depth)
        case Op.MAP:
            return _read_map(step, cursor, depth)
        case _:
            return _checked(_READERS[step.op], step, cursor)


def _read_record(step: Step, cursor: _Cursor, depth: int) -> Any:
    arguments = list(step.defaults)
    for child, target, name in zip(step.children, step.targets, step.attributes, strict=True):
        try:
            value = _read(child, cursor, depth + 1)
        except ObjectError as error:
            raise _inside(name, error) from None
        if target >= 0:
            arguments[target] = value
    if step.is_positional:
        return _checked(step.cls, *arguments)
    named = dict(zip(step.names, arguments, strict=True))
    return named if step.is_mapping else _checked(lambda: step.cls(**named))


def _blocks(cursor: _Cursor) -> Any:
    """Yield the number of items in each block, bounded by the bytes that are left."""
    while count := cursor.long():
        if count < 0:
            count = -count
            cursor.long()  # the block's size in bytes, for readers that skip it
        if count > len(cursor.data) - cursor.position:
            raise ObjectError("", f"{count} items do not fit into the remaining bytes")
        yield count


def _read_list(step: Step, cursor: _Cursor, depth: int) -> Any:
    items: list[Any] = []
    for count in _blocks(cursor):
        for _ in range(count):
            try:
                items.append(_read(step.children[0], cursor, depth + 1))
            except ObjectError as error:
                raise _inside(f"[{len(items)}]", error) from None
    return items if step.cls is None else _checked(step.cls, items)


def _read_map(step: Step, cursor: _Cursor, depth: int) -> Any:
    items: dict[str, Any] = {}
    for count in _blocks(cursor):
        for _ in range(count):
            key = _checked(_read_string, step, cursor)
            try:
                items[key] = _read(step.children[0], cursor, depth + 1)
            except ObjectError as error:
                raise _inside(f"[{key!r}]", error) from None
    return items


def _read_boolean(_: Step, cursor: _Cursor) -> bool:
    (byte,) = cursor.take(1)
    if byte > 1:
        raise ValueError(f"the byte {byte} is no boolean")
    return bool(byte)


def _read_int(_: Step, cursor: _Cursor) -> int:
    number = cursor.long()
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"{number} is outside of 32 bits")
    return number


def _read_string(_: Step, cursor: _Cursor) -> str:
    return cursor.take(cursor.long()).decode()


def _read_date(step: Step, cursor: _Cursor) -> datetime.date:
    day = _read_int(step, cursor) + EPOCH_DAY
    if not 1 <= day <= _DAY_MAX:
        raise ValueError("the date is outside of the years 1 to 9999")
    return datetime.date.fromordinal(day)


def datetime_of(micros: int) -> datetime.datetime:
    """Return the time of microseconds since 1970, in UTC; ValueError if no datetime has it."""
    try:
        return EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        raise ValueError("the time is outside of the years 1 to 9999") from None


def _read_time(_: Step, cursor: _Cursor) -> datetime.time:
    micros = cursor.long()
    if not 0 <= micros < DAY_MICROS:
        raise ValueError(f"{micros} microseconds are no time of a day")
    seconds, micros = divmod(micros, 1_000_000)
    return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)


def _read_enum(step: Step, cursor: _Cursor) -> Any:
    index = cursor.long()
    if not 0 <= index < len(step.members):
        raise ValueError(f"the enum has no symbol {index}")
    return step.members[index]


_READERS: Final = {
    Op.NULL: lambda _, __: None,
    Op.BOOLEAN: _read_boolean,
    Op.INT: _read_int,
    Op.LONG: lambda _, cursor: cursor.long(),
    Op.FLOAT: lambda _, cursor: _FLOAT.unpack(cursor.take(4))[0],
    Op.DOUBLE: lambda _, cursor: _DOUBLE.unpack(cursor.take(8))[0],
    Op.STRING: _read_string,
    Op.BYTES: lambda _, cursor: cursor.take(cursor.long()),
    Op.DATETIME: lambda _, cursor: datetime_of(cursor.long()),
    Op.DATE: _read_date,
    Op.TIME: _read_time,
    Op.UUID: lambda step, cursor: uuid.UUID(_read_string(step, cursor)),
    Op.DECIMAL: lambda step, cursor: decimal_of(cursor.take(cursor.long()), step.scale),
    Op.ENUM: _read_enum,
}
