"""JSON texts of bounded depth and size, and their compact form as Confluent's registry has it."""

import json
import re
from decimal import Decimal
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | Decimal | bool | None

DEPTH_MAX: Final = 128
"""Objects and arrays inside each other, in schemas and in values."""

# Without a group, and so without a stack: a string of ten megabytes is one step.
_NESTING: Final = re.compile(r'"[^"]*"?|[\[\]{}]')
_ITEMS: Final = re.compile(r'"[^"]*"?|[\[{,]')
_ESCAPES: Final = {
    **{number: f"\\u{number:04X}" for number in range(32)},
    ord("\b"): "\\b",
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\f"): "\\f",
    ord("\r"): "\\r",
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


class TooDeepError(ValueError):
    """A text has more than `DEPTH_MAX` objects and arrays inside each other."""


class TooManyItemsError(ValueError):
    """A text has more objects, arrays and values in them than its reader takes."""


def check_depth(text: str) -> None:
    """Raise TooDeepError before a parser recurses into a text that is too deep."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = 0
    for match in _NESTING.finditer(_without_escapes(text)):
        character = match[0][0]
        if character in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise TooDeepError(f"more than {DEPTH_MAX} objects and arrays inside each other")
        elif character in "]}":
            depth -= 1


def check_items(text: str, items_max: int) -> None:
    """Raise TooManyItemsError before a parser makes an object of each item of a text.

    A parser holds the interpreter's lock until it has made all of them. This does not.
    """
    if text.count("[") + text.count("{") + text.count(",") <= items_max:
        return
    items = 0
    for match in _ITEMS.finditer(_without_escapes(text)):
        items += match[0][0] != '"'
        if items > items_max:
            raise TooManyItemsError(f"more than {items_max} objects, arrays and values")


def _without_escapes(text: str) -> str:
    """Return a text of the same structure: every quotation mark begins or ends a string."""
    return text.replace("\\\\", "").replace('\\"', "") if "\\" in text else text


def parse_json(text: str, *, exact: bool = False) -> Any:
    """Parse one JSON value; ValueError if the text is anything else.

    The last of equal keys counts. `exact` keeps the digits of numbers: they are Decimals.
    """
    check_depth(text)
    number = _exact_number if exact else _finite_float
    return json.loads(text, parse_float=number, parse_constant=_refuse_constant)


def compact_json(value: Json, *, sort_keys: bool = False) -> str:
    """Return the text without white space. Decimals keep their scale, and Unicode is not escaped.

    Keys are sorted as Java sorts strings: by UTF-16 code units.
    """
    if isinstance(value, dict):
        keys = sorted(value, key=_utf_16) if sort_keys else list(value)
        members = (
            f"{_quoted(key)}:{compact_json(value[key], sort_keys=sort_keys)}" for key in keys
        )
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(compact_json(item, sort_keys=sort_keys) for item in value) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def comparable(value: Json) -> Any:
    """Return a hashable key that is equal for equal JSON values: 1 is 1.0, and neither is true."""
    if isinstance(value, dict):
        return ("object", frozenset((key, comparable(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("array", tuple(comparable(item) for item in value))
    if isinstance(value, bool) or value is None:
        return ("literal", value)
    return value


def _utf_16(text: str) -> bytes:
    return text.encode("utf-16-be")


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _exact_number(text: str) -> Decimal:
    # Java's BigDecimal, which Confluent prints, has no negative zero.
    return abs(number) if (number := Decimal(text)) == 0 else number


def _finite_float(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(f"the number {text[:40]} is out of range")
    return number


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON value")
