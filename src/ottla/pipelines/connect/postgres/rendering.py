"""Values of PostgreSQL as JSON: from the text that pgoutput sends, and by SQL for a snapshot.

Both ways give the same JSON. Whole numbers, floats, booleans, json and arrays have exact
counterparts. `numeric` is a string, so that no digit is lost. `bytea` is base64. Times are ISO
8601, in UTC if they have a time zone. All other types are their text, as printed in a session with
SESSION_SETTINGS.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from json.encoder import encode_basestring
from typing import Final, Self

SESSION_SETTINGS: Final = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
}

Renderer = Callable[[bytes], str]


class Kind(Enum):
    """The JSON form of a type."""

    NUMBER = auto()
    FLOAT = auto()
    BOOLEAN = auto()
    JSON = auto()
    BYTES = auto()
    TIMESTAMP = auto()
    TIMESTAMP_UTC = auto()
    TEXT = auto()


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The content of a column: one value of a kind, or an array of them."""

    kind: Kind
    is_array: bool = False


_KIND_BY_OID: Final = {
    16: Kind.BOOLEAN,
    17: Kind.BYTES,
    20: Kind.NUMBER,
    21: Kind.NUMBER,
    23: Kind.NUMBER,
    26: Kind.NUMBER,
    114: Kind.JSON,
    700: Kind.FLOAT,
    701: Kind.FLOAT,
    1114: Kind.TIMESTAMP,
    1184: Kind.TIMESTAMP_UTC,
    3802: Kind.JSON,
}
_ELEMENT_BY_ARRAY_OID: Final = {
    1000: 16,
    1001: 17,
    1005: 21,
    1007: 23,
    1009: 25,
    1014: 1042,
    1015: 1043,
    1016: 20,
    1021: 700,
    1022: 701,
    1028: 26,
    1115: 1114,
    1182: 1082,
    1183: 1083,
    1185: 1184,
    1187: 1186,
    1231: 1700,
    199: 114,
    2951: 2950,
    3807: 3802,
}


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of a table, in the order of its rows in events, and the names of its key."""

    topic: str
    columns: tuple[tuple[str, ColumnType], ...]
    key: tuple[str, ...]

    def to_json(self) -> str:
        """Return a text for `from_json`."""
        columns = [[name, of.kind.name, of.is_array] for name, of in self.columns]
        return json.dumps({"topic": self.topic, "columns": columns, "key": self.key})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the shape of a text."""
        given = json.loads(text)
        columns = [(name, ColumnType(Kind[kind], array)) for name, kind, array in given["columns"]]
        return cls(given["topic"], tuple(columns), tuple(given["key"]))


def column_type(oid: int) -> ColumnType:
    """Return the kind of a built-in type; unknown types are text."""
    element = _ELEMENT_BY_ARRAY_OID.get(oid)
    if element is not None:
        return array_of(column_type(element))
    return ColumnType(_KIND_BY_OID.get(oid, Kind.TEXT))


def array_of(element: ColumnType) -> ColumnType:
    """Return the type of arrays; `bytea` in them stays PostgreSQL's hexadecimal text."""
    kind = Kind.TEXT if element.kind is Kind.BYTES else element.kind
    return ColumnType(kind, is_array=True)


def renderer(of: ColumnType) -> Renderer:
    """Return the function that turns a value's text into JSON."""
    render = _RENDERER_BY_KIND[of.kind]
    return (lambda text: _array(text, render)) if of.is_array else render


def _number(text: bytes) -> str:
    return text.decode()


def _float(text: bytes) -> str:
    return _text(text) if text[-1:].isalpha() else text.decode()


def _boolean(text: bytes) -> str:
    return "true" if text[:1] == b"t" else "false"


def _bytes(text: bytes) -> str:
    return f'"{b64encode(bytes.fromhex(text[2:].decode())).decode()}"'


def _timestamp(text: bytes) -> str:
    return _text(text.replace(b" ", b"T", 1))


def _timestamp_utc(text: bytes) -> str:
    return _timestamp(text.removesuffix(b"+00") + b"Z" if text.endswith(b"+00") else text)


def _text(text: bytes) -> str:
    return encode_basestring(text.decode())


_RENDERER_BY_KIND: Final[dict[Kind, Renderer]] = {
    Kind.NUMBER: _number,
    Kind.FLOAT: _float,
    Kind.BOOLEAN: _boolean,
    Kind.JSON: _number,
    Kind.BYTES: _bytes,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_UTC: _timestamp_utc,
    Kind.TEXT: _text,
}

_TOKEN: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^{},"]+)|([{},])', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)


def _array(text: bytes, render: Renderer) -> str:
    # `[0:1]={…}` gives the index bounds, which JSON cannot express.
    body = text[text.index(b"=") + 1 :] if text.startswith(b"[") else text
    return "".join(_array_pieces(body, render))


def _array_pieces(body: bytes, render: Renderer) -> Iterator[str]:
    for token in _TOKEN.finditer(body):
        quoted, bare, mark = token.groups()
        if mark is not None:
            yield _MARKS[mark]
        elif bare is not None:
            yield "null" if bare == b"NULL" else render(bare)
        else:
            yield render(_ESCAPE.sub(rb"\1", quoted))


_MARKS: Final = {b"{": "[", b"}": "]", b",": ","}


def sql_json(column: str, of: ColumnType) -> str:
    """Return the SQL expression that is the JSON of a (quoted) column."""
    if of.is_array:
        return _SQL_BY_ARRAY_KIND.get(of.kind, "to_json({0})").format(column)
    return _SQL_BY_KIND.get(of.kind, "to_json({0})").format(column)


_SQL_BY_KIND: Final = {
    Kind.BYTES: "to_json(translate(encode({0}, 'base64'), E'\\n', ''))",
    Kind.TIMESTAMP: "to_json(regexp_replace({0}::text, ' ', 'T'))",
    Kind.TIMESTAMP_UTC: (
        "to_json(regexp_replace(regexp_replace({0}::text, ' ', 'T'), '\\+00$', 'Z'))"
    ),
    Kind.TEXT: "to_json({0}::text)",
}
_SQL_BY_ARRAY_KIND: Final = {
    Kind.TIMESTAMP: (
        "regexp_replace(to_json({0}::text[])::text, '(\\d) (\\d)', '\\1T\\2', 'g')::json"
    ),
    Kind.TIMESTAMP_UTC: (
        "regexp_replace(regexp_replace(to_json({0}::text[])::text,"
        " '(\\d) (\\d)', '\\1T\\2', 'g'), '\\+00\"', 'Z\"', 'g')::json"
    ),
    Kind.TEXT: "to_json({0}::text[])",
}
