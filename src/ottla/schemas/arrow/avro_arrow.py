"""Avro values as columns of Arrow, and back.

| Avro | Arrow |
| --- | --- |
| null, boolean, int, long, float, double | null, bool, int32, int64, float, double |
| bytes, string | binary, string |
| decimal | decimal128 up to 38 digits, decimal256 up to 76, else binary |
| uuid, of a string or of 16 bytes | string |
| date, time-millis, time-micros | date32, time32[ms], time64[us] |
| timestamp-millis, -micros, -nanos | timestamp[ms, us or ns, UTC] |
| local-timestamp-millis, -micros, -nanos | timestamp[ms, us or ns] |
| fixed, and duration | fixed_size_binary |
| enum | string |
| array, map, record | list, map, struct |
| union of null and one type | that type, nullable |
| any other union | struct of nullable fields member0, member1, … by branch, null left out |

Bytes after a value are ignored, as Avro's own readers do. Keys that a map has twice stay twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

try:
    import pyarrow as pa
except ModuleNotFoundError:
    raise ImportError("Arrow columns need pyarrow: pip install 'ottla[arrow]'") from None

from ottla.schemas.arrow._avro_encode_python import VALUES_BYTES_MAX, Unwritable
from ottla.schemas.arrow.arrow_codec import DecodedValues
from ottla.schemas.arrow.avro_arrow_columns import AlignedColumns, avro_text_of
from ottla.schemas.arrow.avro_arrow_types import arrow_field, arrow_type
from ottla.schemas.avro.avro_columns import Column, Layout, columns_of, root_record
from ottla.schemas.avro.avro_encoding import WRITE_FAULT_TEXTS, WriteFault, write_program
from ottla.schemas.avro.avro_resolution import FAULT_TEXTS, Fault, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.schemas.arrow._avro_decode_python import ColumnBuffers, Decoder
    from ottla.schemas.arrow._avro_encode_python import Encoder
    from ottla.schemas.avro.avro_schema import AvroSchema
else:
    try:
        from ottla.schemas.arrow._avro_decode import Decoder
        from ottla.schemas.arrow._avro_encode import Encoder
    except ImportError:
        from ottla.schemas.arrow._avro_decode_python import Decoder
        from ottla.schemas.arrow._avro_encode_python import Encoder

__all__ = ["AvroArrowDecoder", "AvroArrowEncoder", "arrow_schema_of", "avro_text_of"]


def arrow_schema_of(schema: AvroSchema) -> pa.Schema:
    """Return the columns of a schema; all of them are nullable.

    InvalidSchemaError if the schema is recursive: Arrow has no recursive types.
    """
    return _arrow_schema(columns_of(root_record(schema.root))[0])


class AvroArrowDecoder:
    """Decodes values of one writer's schema into the columns of one reader's schema.

    ResolutionError if no value of the writer can be read; InvalidSchemaError if the reader's schema
    is recursive or has too many columns. A decoder has no state of a call: threads may share it.
    """

    def __init__(self, reader: AvroSchema, writer: AvroSchema) -> None:
        self._program = resolve(writer.root, reader.root)
        self._decoder = Decoder(self._program)
        self._schema = _arrow_schema(self._program.columns[0])
        self._types = [arrow_type(column) for column in self._program.columns]

    @property
    def schema(self) -> pa.Schema:
        """The columns. A schema that is not a record has one column, `value`."""
        return self._schema

    def decode(self, values: pa.Array, skip: int = 0) -> DecodedValues:
        """Decode a BinaryArray or LargeBinaryArray, after `skip` bytes of each value.

        A null value, such as a tombstone, is a row of nulls and no error. ValueError if the rows
        do not fit one batch.
        """
        if skip < 0:
            raise ValueError(f"skip is {skip}, and must not be negative")
        validity, offsets, data = values.buffers()
        buffers, failures = self._decoder.decode(
            validity,
            offsets if offsets is not None and offsets.size else _NO_OFFSETS,
            data if data is not None else b"",
            values.offset,
            len(values),
            8 if pa.types.is_large_binary(_binary(values.type)) else 4,
            skip,
        )
        texts: dict[tuple[int, int], str] = {}
        errors = {
            row: texts.setdefault((fault, step), self._reason(fault, step))
            for row, fault, step in failures
        }
        return DecodedValues(self._batch(buffers), errors)

    def _reason(self, fault: int, step: int) -> str:
        if fault == Fault.BRANCH and step in self._program.reasons:
            return self._program.reasons[step]
        text = FAULT_TEXTS[Fault(fault)]
        place = self._program.places[step]
        return f"{place}: {text}" if place else text

    def _batch(self, buffers: Sequence[ColumnBuffers]) -> pa.RecordBatch:
        root = self._program.columns[0]
        rows, validity, _, _ = buffers[0]
        valid = None if validity is None else pa.py_buffer(validity)
        if not root.children:
            struct = pa.Array.from_buffers(pa.struct([]), rows, [valid], children=[])
            return pa.RecordBatch.from_struct_array(struct)
        arrays = [self._array(child, buffers, valid) for child in root.children]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(
        self, column: Column, buffers: Sequence[ColumnBuffers], row_validity: pa.Buffer | None
    ) -> pa.Array:
        """Make an array of a column; one without nulls of its own has the nulls of its rows."""
        rows, validity, offsets, data = buffers[column.index]
        valid = row_validity if not column.is_nullable else _buffer(validity)
        kind = self._types[column.index]
        match column.layout:
            case Layout.NULL:
                return pa.nulls(rows)
            case Layout.STRUCT:
                children = [self._array(child, buffers, None) for child in column.children]
                return pa.Array.from_buffers(kind, rows, [valid], children=children)
            case Layout.LIST | Layout.MAP:
                items = self._items(column, buffers)
                ends = [valid, _buffer(offsets)]
                return pa.Array.from_buffers(kind, rows, ends, children=[items])
            case Layout.BYTES:
                return pa.Array.from_buffers(kind, rows, [valid, _buffer(offsets), _buffer(data)])
            case _:
                return pa.Array.from_buffers(kind, rows, [valid, _buffer(data)])

    def _items(self, column: Column, buffers: Sequence[ColumnBuffers]) -> pa.Array:
        children = [self._array(child, buffers, None) for child in column.children]
        if column.layout is Layout.LIST:
            return children[0]
        kind = pa.struct([arrow_field(child) for child in column.children])
        return pa.Array.from_buffers(kind, len(children[0]), [None], children=children)


class AvroArrowEncoder:
    """Encodes columns as values of one schema.

    Columns and fields of structs are found by name. A column may have another type of the same
    family, such as int64 for an int or dictionary for a string, if its values fit. A field of the
    schema that has no column is written as its default, or as null.
    """

    def __init__(self, schema: AvroSchema, arrow_schema: pa.Schema) -> None:
        root = root_record(schema.root)
        columns = columns_of(root)
        self._arrow_schema = arrow_schema
        self._aligned = AlignedColumns(columns, arrow_schema)
        self._program = write_program(root, columns, self._aligned.present)
        self._encoder = Encoder(self._program)

    def encode(self, batch: pa.RecordBatch, prefix: bytes = b"") -> pa.Array:
        """Return a BinaryArray with one value per row, each after the prefix.

        ValueError, with the column and row, if a value does not fit the schema, or if the values
        do not fit one array.
        """
        if not batch.schema.equals(self._arrow_schema):
            raise ValueError(f"The batch has other columns than the encoder: {batch.schema}")
        try:
            written = self._encoder.encode(self._aligned.stored(batch), batch.num_rows, prefix)
        except OverflowError:
            raise ValueError(
                f"The values have more than {VALUES_BYTES_MAX} bytes: encode fewer rows at once"
            ) from None
        if isinstance(written, Unwritable):
            place = self._program.places[written.step]
            reason = WRITE_FAULT_TEXTS[WriteFault(written.fault)]
            raise ValueError(f"Row {written.row}, column {place}: {reason}")  # noqa: TRY004
        ends, content = map(pa.py_buffer, written)
        return pa.Array.from_buffers(pa.binary(), batch.num_rows, [None, ends, content])


_NO_OFFSETS: Final = bytes(8)


def _binary(kind: pa.DataType) -> pa.DataType:
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise TypeError(f"Avro values are a BinaryArray or a LargeBinaryArray, not {kind}")
    return kind


def _buffer(content: object) -> pa.Buffer | None:
    return None if content is None else pa.py_buffer(content)


def _arrow_schema(root: Column) -> pa.Schema:
    return pa.schema([arrow_field(child).with_nullable(True) for child in root.children])
