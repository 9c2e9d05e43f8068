"""JSON values as columns of Arrow, and back.

| JSON Schema | Arrow |
| --- | --- |
| integer, number, boolean | int64, float64, bool |
| string; with an enum, or a format that is not below | string |
| string with format date-time, date | timestamp[us, UTC], date32 |
| array of T | list<T> |
| object with properties | struct |
| object with only additionalProperties of T | map<string, T> |
| T or null | nullable T |
| anything else, such as unions and recursive schemas | string with the JSON text |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError:
    raise ImportError("Arrow columns need pyarrow: pip install 'ottla[arrow]'") from None

from ottla.schemas.arrow import _json_decode_python
from ottla.schemas.arrow._json_decode_python import Buffers, Column, Kind
from ottla.schemas.arrow.arrow_codec import DecodedValues
from ottla.schemas.arrow.json_arrow_encoder import JsonArrowEncoder, json_text_of
from ottla.schemas.arrow.json_columns import ColumnMapping
from ottla.schemas.json_schema.json_values import JsonReader
from ottla.schemas.values import InvalidValueError

if TYPE_CHECKING:
    from ottla.schemas.json_schema.json_schema import JsonSchema

_compiled: Any
try:
    from ottla.schemas.arrow import _json_decode as _compiled  # type: ignore[attr-defined,no-redef]
except ImportError:
    _compiled = None

BATCH_BYTES_MAX: Final = (1 << 31) - 1
"""Payloads of one call: the offsets of Arrow's strings have 32 bits."""
MESSAGES_MAX: Final = 100
"""Rows with errors that get their own reason in one call; the plain parser is slow."""


def arrow_schema_of(schema: JsonSchema) -> pa.Schema:
    """Return the columns of a schema. A schema that is not a record has one column, `value`.

    ValueError if there are more than `COLUMNS_MAX` columns.
    """
    return ColumnMapping(schema).arrow_schema


class JsonArrowDecoder:
    """Decodes JSON payloads into the columns of the reader's schema.

    JSON names its fields: the writer's schema only matters for other types. Types are checked,
    limits and patterns only with `validate`, which costs a Python object for each value.
    """

    def __init__(
        self,
        reader: JsonSchema,
        writer: JsonSchema | None = None,
        *,
        validate: bool = False,
        compiled: bool = True,
    ) -> None:
        del writer
        self._mapping = ColumnMapping(reader)
        self._reader = JsonReader(reader) if validate else None
        self._decode = _compiled_decode if compiled and _compiled is not None else _plain_decode

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._mapping.arrow_schema

    def decode(self, values: pa.Array, skip: int = 0) -> DecodedValues:
        """Decode a BinaryArray or LargeBinaryArray, after `skip` bytes of each value.

        ValueError if the values have more than `BATCH_BYTES_MAX` bytes together.
        """
        large = values.cast(pa.large_binary())
        invalid = self._invalid(large, skip)
        if invalid:
            keep = pa.array([row not in invalid for row in range(len(large))])
            large = pc.if_else(keep, large, pa.scalar(None, pa.large_binary()))
        plan = self._mapping.plan
        buffers, refused = self._decode(plan, large, skip, self._mapping.is_record)
        struct = _array_of(plan, buffers, 0, pa.struct(list(self.schema)))
        batch = pa.RecordBatch.from_arrays(
            [struct.field(index) for index in range(len(self.schema))], schema=self.schema
        )
        errors = invalid | self._reasons(large, skip, refused)
        return DecodedValues(batch, dict(sorted(errors.items())))

    def _invalid(self, values: pa.Array, skip: int) -> dict[int, str]:
        """Return the reasons of the rows that the schema's validator refuses."""
        found: dict[int, str] = {}
        if self._reader is None:
            return found
        for row, value in enumerate(values.to_pylist()):
            try:
                _ = value is None or self._reader.read(value[skip:])
            except InvalidValueError as error:
                found[row] = str(error)
        return found

    def _reasons(self, values: pa.Array, skip: int, rows: list[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for row in rows:
            found[row] = "the value does not fit the schema, like others of the batch"
            payload = values[row].as_py()
            if len(payload) < skip:
                found[row] = f"the value has {len(payload)} bytes, less than its prefix of {skip}"
            elif len(found) <= MESSAGES_MAX:
                try:
                    plan = self._mapping.plan
                    _json_decode_python.decode_row(plan, payload[skip:], self._mapping.is_record)
                except InvalidValueError as error:
                    found[row] = str(error)
        return found


def _compiled_decode(
    plan: list[Column], values: pa.Array, skip: int, is_record: bool
) -> tuple[list[Buffers], list[int]]:
    assert _compiled is not None
    validity, ends, data = values.buffers()
    first = values.offset
    if ends is None or len(values) == 0:
        return _json_decode_python.decode(plan, [], is_record)
    view = memoryview(ends).cast("q")[first : first + len(values) + 1]
    if view[-1] - view[0] > BATCH_BYTES_MAX:
        raise ValueError(
            f"the values have {view[-1] - view[0]} bytes, and {BATCH_BYTES_MAX} are the most; "
            "decode them in slices"
        )
    found: tuple[list[Buffers], list[int]] = _compiled.decode(
        plan, view, _bytes_of(data), _bytes_of(validity), first, skip, is_record
    )
    return found


def _bytes_of(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _plain_decode(
    plan: list[Column], values: pa.Array, skip: int, is_record: bool
) -> tuple[list[Buffers], list[int]]:
    payloads = [None if one is None else one[skip:] for one in values.to_pylist()]
    return _json_decode_python.decode(plan, payloads, is_record)


def _array_of(plan: list[Column], buffers: list[Buffers], index: int, kind: pa.DataType) -> Any:
    count, nulls, validity, ends, data = buffers[index]
    children = plan[index].children
    parts = [None if part is None else pa.py_buffer(part) for part in (validity, ends, data)]
    match plan[index].kind:
        case Kind.STRUCT:
            arrays = [_array_of(plan, buffers, *pair) for pair in _zipped(children, kind)]
            return pa.Array.from_buffers(kind, count, parts[:1], nulls, 0, arrays)
        case Kind.LIST:
            arrays = [_array_of(plan, buffers, children[0], kind.value_type)]
            return pa.Array.from_buffers(kind, count, parts[:2], nulls, 0, arrays)
        case Kind.MAP:
            keys = _array_of(plan, buffers, children[0], pa.string())
            items = _array_of(plan, buffers, children[1], kind.item_type)
            entry = pa.struct([kind.key_field, kind.item_field])
            entries = pa.Array.from_buffers(entry, len(keys), [None], 0, 0, [keys, items])
            return pa.Array.from_buffers(kind, count, parts[:2], nulls, 0, [entries])
        case Kind.STRING | Kind.TEXT:
            return pa.Array.from_buffers(kind, count, parts, nulls)
        case _:
            return pa.Array.from_buffers(kind, count, [parts[0], parts[2]], nulls)


def _zipped(children: tuple[int, ...], kind: pa.StructType) -> list[tuple[int, pa.DataType]]:
    return [(child, one.type) for child, one in zip(children, kind, strict=True)]


__all__ = [
    "JsonArrowDecoder",
    "JsonArrowEncoder",
    "arrow_schema_of",
    "json_text_of",
]
