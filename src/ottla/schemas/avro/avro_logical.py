"""Logical types as Python values: datetime, date, time, Decimal and UUID.

A datetime without a time zone is in UTC. Nanoseconds and durations have no Python type: they stay
int and bytes. Numbers, texts and bytes are written as they are, without conversion.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

from ottla.schemas.avro.avro_steps import TIMESTAMP_WRONG, InvalidValueError
from ottla.schemas.avro.avro_types import Fixed, LogicalType, Primitive

DECIMAL_BYTES_MAX: Final = 4096
"""The most bytes of a decimal of any precision."""

Conversion = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock has no zone
_EPOCHS: Final = {"timestamp-": _EPOCH, "local-timestamp-": _LOCAL_EPOCH}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_MICROSECONDS: Final = 86_400_000_000
_EXACT: Final = Context(prec=DECIMAL_BYTES_MAX * 3, Emax=10**9, Emin=-(10**9))

_MICROSECONDS: Final = {"millis": 1000, "micros": 1}
_NANOSECONDS: Final = {"millis": 1_000_000, "micros": 1000, "nanos": 1}


def reading_conversion(writer: Primitive | Fixed, reader: Primitive | Fixed) -> Conversion | None:
    """Return the conversion of a raw value of the writer's type to the reader's Python value.

    The writer's unit and scale count where both types have them: the value stays the same.
    """
    if reader.logical is None:
        return None
    logical = reader.logical
    if writer.logical and _family(writer.logical) == _family(reader.logical):
        logical = writer.logical
    if reader.logical.name.endswith("-nanos"):
        return _scaled(_NANOSECONDS[_unit(logical)])
    return _reading(logical, reader)


def timestamp_epoch(of_type: Primitive) -> tuple[datetime | None, int]:
    """Return the epoch and the microseconds of a unit; no epoch for other types and nanoseconds.

    With them the compiled loop converts without a call of Python code.
    """
    if of_type.logical is None:
        return None, 0
    unit = _MICROSECONDS.get(_unit(of_type.logical), 0)
    return (_EPOCHS.get(_family(of_type.logical)) if unit else None), unit


def own_conversion(of_type: Primitive | Fixed) -> Conversion | None:
    """Return the conversion of a raw value of a type to its Python value."""
    return reading_conversion(of_type, of_type)


def _family(logical: LogicalType) -> str:
    unit = _unit(logical)
    return logical.name.removesuffix(unit) if unit in _NANOSECONDS else logical.name


def _unit(logical: LogicalType) -> str:
    return logical.name.rpartition("-")[2]


def _scaled(factor: int) -> Conversion | None:
    return None if factor == 1 else lambda raw: raw * factor


def _reading(logical: LogicalType, reader: Primitive | Fixed) -> Conversion | None:
    family = _family(logical)
    if family in _EPOCHS:
        return _reading_timestamp(_unit(logical), _EPOCHS[family])
    match family:
        case "date":
            return _read_date
        case "time-":
            return _reading_time(_MICROSECONDS[_unit(logical)])
        case "uuid":
            return UUID if isinstance(reader, Primitive) else lambda raw: UUID(bytes=raw)
        case "decimal":
            return _reading_decimal(logical)
        case _:
            return None


def _read_date(days: int) -> date:
    try:
        return date.fromordinal(_EPOCH_DAY + days)
    except (ValueError, OverflowError) as error:
        raise InvalidValueError("A date is not in the years 1 to 9999") from error


def _reading_timestamp(unit: str, epoch: datetime) -> Conversion:
    factor, divisor = _MICROSECONDS.get(unit, 1), 1000 if unit == "nanos" else 1

    def convert(raw: int) -> datetime:
        try:
            return epoch + timedelta(0, 0, raw * factor // divisor)
        except OverflowError as error:
            raise InvalidValueError(TIMESTAMP_WRONG) from error

    return convert


def _reading_time(factor: int) -> Conversion:
    def convert(raw: int) -> time:
        microseconds = raw * factor
        if not 0 <= microseconds < _DAY_MICROSECONDS:
            raise InvalidValueError("A time is not within a day")
        seconds, microsecond = divmod(microseconds, 1_000_000)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return time(hour, minute, second, microsecond)

    return convert


def _reading_decimal(logical: LogicalType) -> Conversion:
    # log2(10) is 3.33 bits a digit; bytes that only repeat the sign are allowed up to 16.
    bytes_max = min(logical.precision * 10 // 24 + 17, DECIMAL_BYTES_MAX)
    exponent = -logical.scale

    def convert(raw: bytes) -> Decimal:
        if len(raw) > bytes_max:
            raise InvalidValueError(f"A decimal has {len(raw)} bytes; the limit is {bytes_max}")
        return Decimal(int.from_bytes(raw, signed=True)).scaleb(exponent, _EXACT)

    return convert


def writing_conversion(of_type: Primitive | Fixed) -> Conversion | None:
    """Return the conversion of a Python value to the raw value of a type."""
    if of_type.logical is None:
        return None
    size = of_type.size if isinstance(of_type, Fixed) else None
    return _writing(of_type.logical, size)


def _writing(logical: LogicalType, size: int | None) -> Conversion | None:
    family = _family(logical)
    if family in _EPOCHS:
        return _writing_timestamp(_unit(logical), is_local=family.startswith("local"))
    match family:
        case "date":
            return _days
        case "time-":
            return _writing_time(_MICROSECONDS[_unit(logical)])
        case "uuid":
            return _uuid_text if size is None else _uuid_bytes
        case "decimal":
            return _writing_decimal(logical, size)
        case _:
            return None


def _days(value: Any) -> Any:
    return value.toordinal() - _EPOCH_DAY if isinstance(value, date) else value


def _writing_time(factor: int) -> Conversion:
    def convert(value: Any) -> Any:
        if not isinstance(value, time):
            return value
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) // factor

    return convert


def _writing_timestamp(unit: str, *, is_local: bool) -> Conversion:
    factor = _NANOSECONDS[unit]

    def convert(value: Any) -> Any:
        if not isinstance(value, datetime):
            return value
        if is_local or value.tzinfo is None:
            delta = value.replace(tzinfo=None) - _LOCAL_EPOCH
        else:
            delta = value - _EPOCH
        microseconds = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
        return microseconds * 1000 // factor

    return convert


def _uuid_text(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def _uuid_bytes(value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value


def _writing_decimal(logical: LogicalType, size: int | None) -> Conversion:
    precision, scale = logical.precision, logical.scale

    def convert(value: Any) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            return value
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise InvalidValueError("The value must be a Decimal")
        number = value if isinstance(value, Decimal) else Decimal(value)
        unscaled = _unscaled(number, precision, scale)
        length = size if size is not None else (unscaled.bit_length() + 8) // 8
        return unscaled.to_bytes(length, signed=True)

    return convert


def _unscaled(value: Decimal, precision: int, scale: int) -> int:
    if not value.is_finite():
        raise InvalidValueError(f"The value {value} is not a number")
    if value and value.adjusted() + scale + 1 > min(precision, _EXACT.prec):
        raise InvalidValueError(
            f"The value {value:.20g} has more digits than the precision {precision} "
            f"with the scale {scale}"
        )
    scaled = value.scaleb(scale, _EXACT)
    unscaled = int(scaled)
    if unscaled != scaled:
        raise InvalidValueError(f"The value {value:.20g} has more than {scale} decimal places")
    return unscaled
