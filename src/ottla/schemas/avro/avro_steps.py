"""The vocabulary of the loops that read and write Avro data: codes, limits, texts and errors.

A plan is a graph of steps; `_values.pyx` and its twin `_values_python.py` run it.
"""

from enum import IntEnum
from typing import Final, Self

DEPTH_MAX: Final = 200
"""The most levels of records, arrays and maps in one value."""
FREE_VALUES_MAX: Final = 1_000_000
"""The most values without bytes in one payload: items of type null, and defaults."""
FREE_VALUES_PER_BYTE: Final = 32
"""As many values without bytes are allowed on top for each byte of a payload."""


_PATH_SHOWN_MAX: Final = 200


class Code(IntEnum):
    """How a step reads or writes a value."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    FIXED = 8
    ENUM = 9
    ARRAY = 10
    MAP = 11
    RECORD = 12
    UNION = 13
    FAIL = 14


class InvalidValueError(ValueError):
    """A payload or value does not fit its Avro schema; `path` is the place, such as /items/3."""

    def __init__(self, reason: str, path: str = "") -> None:
        place = path if len(path) <= _PATH_SHOWN_MAX else f"{path[:_PATH_SHOWN_MAX]}…"
        super().__init__(f"{reason} (at {place})" if path else reason)
        self.reason = reason
        self.path = path

    def inside(self, token: object) -> Self:
        """Return the same error with the name of a field, a key or an index before its path."""
        return type(self)(self.reason, f"/{token}{self.path}")


CAUGHT: Final = (ValueError, ArithmeticError, TypeError)
"""The errors that a value may cause, also in conversions of logical types."""


def located(error: Exception, token: object) -> InvalidValueError:
    """Return an error of a value inside a record, array or map, with the place in its path."""
    if isinstance(error, InvalidValueError):
        return error.inside(token)
    return InvalidValueError(str(error), f"/{token}")


CUT: Final = "The payload ends before the value does"
NUMBER_WRONG: Final = "A number has more than ten bytes, or is too large for its type"
LENGTH_WRONG: Final = "A length is negative, or larger than the payload"
BOOLEAN_WRONG: Final = "A boolean is neither 0 nor 1"
COUNT_WRONG: Final = "The number of items in a block is out of range"
ENUM_WRONG: Final = "The number of an enum's symbol is out of range"
SYMBOL_UNKNOWN: Final = "The reader's enum has neither the symbol nor a default"
BRANCH_WRONG: Final = "The number of a union's branch is out of range"
TRAILING: Final = "The payload has bytes after the value; is it of another schema?"
TIMESTAMP_WRONG: Final = "A timestamp is not in the years 1 to 9999"
TOO_DEEP: Final = f"The value has more than {DEPTH_MAX} levels"
TOO_MANY_FREE: Final = "The payload has too many values without bytes"
BOOLEAN_NEEDED: Final = "The value must be a bool"
INT_NEEDED: Final = "The value must be an int of 32 bits"
LONG_NEEDED: Final = "The value must be an int of 64 bits"
FLOAT_NEEDED: Final = "The value must be a float that fits the type"
BYTES_NEEDED: Final = "The value must be bytes"
STRING_NEEDED: Final = "The value must be a str"
NULL_NEEDED: Final = "The value must be None"
SIZE_WRONG: Final = "The value must be bytes of the size of the fixed type"
SYMBOL_WRONG: Final = "The value is not a symbol of the enum"
LIST_NEEDED: Final = "The value must be a list or tuple"
DICT_NEEDED: Final = "The value must be a dict"
FIELD_MISSING: Final = "The field is missing and has no default"
