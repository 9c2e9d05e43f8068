"""Protobuf messages as Arrow columns, and Arrow columns as Protobuf messages.

| Protobuf | Arrow |
| --- | --- |
| numbers, bool, string, bytes | the type of the same size; string, binary |
| enum | string: the value's name, or its number if it has none |
| message | struct; a message inside itself is binary: its bytes |
| repeated, map | list, map; an absent field is an empty list |
| google.protobuf.Timestamp, Duration | timestamp[us, UTC], duration[us]; nanoseconds are cut off |
| google.protobuf.Int32Value and the like | the wrapped type |
| confluent.type.Decimal with the params precision and scale in its field_meta | decimal128 |

A field without presence is never null: it has its default value. Fields with `optional`, messages
and members of a oneof are null if they are absent. A map keeps repeated keys as they were sent.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

try:
    import pyarrow as pa
except ModuleNotFoundError:
    raise ImportError("Arrow columns need pyarrow: pip install 'ottla[arrow]'") from None

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from ottla.schemas.arrow._protobuf_decode_python import ERRORS, Kind, Node
from ottla.schemas.arrow.arrow_codec import DecodedValues
from ottla.schemas.arrow.protobuf_row_program import DECIMAL, WRAPPERS, protobuf_row_program
from ottla.schemas.arrow.row_writer import row_writer
from ottla.schemas.protobuf.proto_names import is_repeated
from ottla.schemas.protobuf.protobuf_values import message_name_of

if TYPE_CHECKING:
    from ottla.schemas.arrow._protobuf_decode_python import Columns
    from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema
else:
    try:
        from ottla.schemas.arrow._protobuf_decode import Columns
    except ImportError:
        from ottla.schemas.arrow._protobuf_decode_python import Columns

NODES_MAX: Final = 10_000
"""Of fields, with the fields of messages inside messages counted at each place."""
DEPTH_MAX: Final = 64
"""Of messages inside messages; deeper ones are binary."""
DECIMAL_PRECISION_MAX: Final = 38

_SCALARS: Final = {
    FieldDescriptor.TYPE_DOUBLE: (Kind.FIXED64, pa.float64()),
    FieldDescriptor.TYPE_FLOAT: (Kind.FIXED32, pa.float32()),
    FieldDescriptor.TYPE_INT64: (Kind.INT64, pa.int64()),
    FieldDescriptor.TYPE_UINT64: (Kind.UINT64, pa.uint64()),
    FieldDescriptor.TYPE_INT32: (Kind.INT32, pa.int32()),
    FieldDescriptor.TYPE_FIXED64: (Kind.FIXED64, pa.uint64()),
    FieldDescriptor.TYPE_FIXED32: (Kind.FIXED32, pa.uint32()),
    FieldDescriptor.TYPE_BOOL: (Kind.BOOL, pa.bool_()),
    FieldDescriptor.TYPE_STRING: (Kind.STRING, pa.string()),
    FieldDescriptor.TYPE_BYTES: (Kind.BYTES, pa.binary()),
    FieldDescriptor.TYPE_UINT32: (Kind.UINT32, pa.uint32()),
    FieldDescriptor.TYPE_SFIXED32: (Kind.FIXED32, pa.int32()),
    FieldDescriptor.TYPE_SFIXED64: (Kind.FIXED64, pa.int64()),
    FieldDescriptor.TYPE_SINT32: (Kind.SINT32, pa.int32()),
    FieldDescriptor.TYPE_SINT64: (Kind.SINT64, pa.int64()),
}
_MOMENTS: Final = {
    "google.protobuf.Timestamp": (Kind.TIMESTAMP, pa.timestamp("us", tz="UTC")),
    "google.protobuf.Duration": (Kind.DURATION, pa.duration("us")),
}


def arrow_schema_of(schema: ProtobufSchema, message_name: str | None = None) -> pa.Schema:
    """Return the columns of a message; the default is the first message."""
    return pa.schema(list(_planned(schema, message_name)[1]))


class ProtobufArrowDecoder:
    """Decodes messages into the columns of the reader's schema."""

    def __init__(
        self, reader: ProtobufSchema, writer: ProtobufSchema, message_name: str | None = None
    ) -> None:
        # Fields carry their numbers, so the values tell all that the decoder needs.
        del writer
        self._plan, self._type = _planned(reader, message_name)
        self._schema = pa.schema(list(self._type))

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the order in which the message declares its fields."""
        return self._schema

    def decode(self, values: pa.Array, skip: int = 0) -> DecodedValues:
        """Decode a BinaryArray or LargeBinaryArray, after `skip` bytes of each value.

        With Confluent's prefix, all values must have message indexes of the same length.
        """
        columns = self._columns(values, skip)
        batch = pa.RecordBatch.from_struct_array(self._struct(columns))
        errors = {row: ERRORS[code] for row, code in columns.errors}
        return DecodedValues(batch.cast(self._schema), errors)

    def _columns(self, values: pa.Array, skip: int) -> Columns:
        columns = Columns(self._plan)
        if len(values):
            is_large = pa.types.is_large_binary(values.type)
            if not (is_large or pa.types.is_binary(values.type)):
                raise ValueError(f"values are {values.type}: expected binary or large_binary")
            validity, offsets, content = values.buffers()
            columns.decode(
                memoryview(b"" if content is None else content).cast("B"),
                memoryview(offsets).cast("B"),
                is_large,
                values.offset,
                len(values),
                memoryview(validity).cast("B") if values.null_count else None,
                skip,
            )
        return columns

    def _struct(self, columns: Columns) -> pa.Array:
        rows = columns.column(0)[0]
        root = self._plan[0]
        children = [
            self._array(columns, root.first + index, field.type)
            for index, field in enumerate(self._type)
        ]
        return pa.Array.from_buffers(self._type, rows, [None], 0, children=children)

    def _array(self, columns: Columns, index: int, kind: pa.DataType) -> pa.Array:
        node = self._plan[index]
        if node.kind == Kind.WRAPPER:
            return self._array(columns, node.first, kind)
        length, nulls, validity, data, offsets = columns.column(index)
        bits = None if validity is None else pa.py_buffer(validity)
        if node.kind == Kind.MESSAGE:
            children = [
                self._array(columns, node.first + place, field.type)
                for place, field in enumerate(kind)
            ]
            return pa.Array.from_buffers(kind, length, [bits], nulls, children=children)
        if node.kind == Kind.LIST:
            inner = _entry_type(kind) if pa.types.is_map(kind) else kind.value_type
            children = [self._array(columns, node.first, inner)]
            buffers = [bits, pa.py_buffer(offsets)]
            return pa.Array.from_buffers(kind, length, buffers, nulls, children=children)
        buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
        if not offsets:
            del buffers[1]
        return pa.Array.from_buffers(kind, length, buffers, nulls)


def _entry_type(kind: pa.DataType) -> pa.DataType:
    return pa.struct([kind.key_field, kind.item_field])


# --- the plan


def _planned(
    schema: ProtobufSchema, message_name: str | None
) -> tuple[tuple[Node, ...], pa.DataType]:
    name = message_name_of(schema, message_name)
    plan = _Plan(schema.pool)
    kind = plan.fill(0, schema.pool.FindMessageTypeByName(name), (), Node(Kind.MESSAGE))
    return tuple(plan.nodes), kind


class _Plan:
    """The nodes of a message; a place is reserved before it is filled."""

    def __init__(self, pool: Any) -> None:
        self.nodes: list[Node] = [Node(Kind.MESSAGE)]
        self._pool = pool

    def _reserve(self, count: int) -> int:
        first = len(self.nodes)
        if first + count > NODES_MAX:
            raise ValueError(f"the message has more than {NODES_MAX} columns")
        self.nodes.extend([Node(Kind.MESSAGE)] * count)
        return first

    def fill(
        self,
        index: int,
        message: Any,
        around: tuple[str, ...],
        node: Node,
        *,
        is_entry: bool = False,
    ) -> pa.DataType:
        """Make the node a message with its fields; return the struct's type."""
        fields = list(message.fields)
        first = self._reserve(len(fields))
        around = (*around, message.full_name)
        types = [
            pa.field(field.name, self._field(first + place, field, around, is_entry=is_entry))
            for place, field in enumerate(fields)
        ]
        self.nodes[index] = _with(node, Kind.MESSAGE, first, len(fields))
        return pa.struct(types)

    def _field(
        self, index: int, field: Any, around: tuple[str, ...], *, is_entry: bool
    ) -> pa.DataType:
        if not is_repeated(field):
            oneof = field.containing_oneof
            node = Node(
                Kind.MESSAGE,
                field.number,
                # An entry of a map always has a key and a value.
                has_presence=field.has_presence and not is_entry,
                is_group=field.type == FieldDescriptor.TYPE_GROUP,
                oneof=oneof.index if oneof is not None and len(oneof.fields) > 1 else -1,
            )
            return self._single(index, field, around, node)
        element = self._reserve(1)
        node = Node(Kind.MESSAGE, field.number, is_group=field.type == FieldDescriptor.TYPE_GROUP)
        self.nodes[index] = Node(Kind.LIST, field.number, first=element)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = self.fill(element, field.message_type, around, node, is_entry=True)
            return pa.map_(entry.field(0).type, entry.field(1).type)
        return pa.list_(pa.field("element", self._single(element, field, around, node)))

    def _single(self, index: int, field: Any, around: tuple[str, ...], node: Node) -> pa.DataType:
        if field.type in _SCALARS:
            kind, arrow_type = _SCALARS[field.type]
            self.nodes[index] = _with(node, kind)
            return arrow_type
        if field.enum_type is not None:
            self.nodes[index] = _enum_node(node, field.enum_type)
            return pa.string()
        return self._message(index, field, around, node)

    def _message(self, index: int, field: Any, around: tuple[str, ...], node: Node) -> pa.DataType:
        message, name = field.message_type, field.message_type.full_name
        if name in _MOMENTS:
            kind, arrow_type = _MOMENTS[name]
            first = self._slots((Kind.INT64, 1), (Kind.INT32, 2))
            self.nodes[index] = _with(node, kind, first, 2)
            return arrow_type
        if name in WRAPPERS:
            first = self._reserve(1)
            self.nodes[index] = _with(node, Kind.WRAPPER, first, 1)
            return self._single(first, message.fields_by_name["value"], around, Node(Kind.INT32, 1))
        size = _decimal_size(field, self._pool) if name == DECIMAL else None
        if size is not None:
            first = self._slots((Kind.BYTES, 1), (Kind.INT32, 3))
            self.nodes[index] = _with(node, Kind.DECIMAL, first, 2, *size)
            return pa.decimal128(*size)
        if name in around or len(around) > DEPTH_MAX:
            self.nodes[index] = _with(node, Kind.BYTES)
            return pa.binary()
        return self.fill(index, message, around, node)

    def _slots(self, *slots: tuple[Kind, int]) -> int:
        first = self._reserve(len(slots))
        for place, (kind, number) in enumerate(slots):
            self.nodes[first + place] = Node(kind, number)
        return first


def _with(
    node: Node, kind: Kind, first: int = 0, count: int = 0, precision: int = 0, scale: int = 0
) -> Node:
    return Node(
        kind,
        node.number,
        has_presence=node.has_presence,
        is_group=node.is_group,
        first=first,
        count=count,
        oneof=node.oneof,
        precision=precision,
        scale=scale,
    )


def _enum_node(node: Node, enum: Any) -> Node:
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return Node(
        Kind.CLOSED_ENUM if enum.is_closed else Kind.ENUM,
        node.number,
        has_presence=node.has_presence,
        oneof=node.oneof,
        default_number=enum.values[0].number,
        enum_names=tuple(sorted(names.items())),
    )


def _decimal_size(field: Any, pool: Any) -> tuple[int, int] | None:
    """Return precision and scale of a field with Confluent's decimal type, if its options say so.

    The params are in the option confluent.field_meta; without a scale the field stays a struct.
    """
    try:
        extension = pool.FindExtensionByName("confluent.field_meta")
    except KeyError:
        return None
    # GetOptions() has the classes of the global pool, which do not know the extension.
    options = GetMessageClass(extension.containing_type)()
    options.ParseFromString(field.GetOptions().SerializeToString())
    params = options.Extensions[extension].params
    return _size(params.get("precision", str(DECIMAL_PRECISION_MAX)), params.get("scale"))


def _size(precision: str, scale: str | None) -> tuple[int, int] | None:
    try:
        found = int(precision), int(scale or "")
    except ValueError:
        return None
    is_valid = 0 < found[0] <= DECIMAL_PRECISION_MAX and 0 <= found[1] <= found[0]
    return found if is_valid else None


# --- encoding


class ProtobufArrowEncoder:
    """Encodes columns as messages.

    Columns are matched to fields by name. A null is an absent field, or no element of a list. The
    compiled loop writes the rows of most types. For others, and for rows that do not fit, they are
    written through Protobuf's Python objects.
    """

    def __init__(
        self, schema: ProtobufSchema, arrow_schema: pa.Schema, message_name: str | None = None
    ) -> None:
        name = message_name_of(schema, message_name)
        self._class = schema.message_class(name)
        fields = self._class.DESCRIPTOR.fields_by_name
        unknown = [column for column in arrow_schema.names if column not in fields]
        if unknown:
            raise ValueError(f"message {name} has no field {unknown[0]!r} for the column")
        self._names = arrow_schema.names
        self._fields = [fields[column] for column in arrow_schema.names]
        descriptor = self._class.DESCRIPTOR
        self._rows = row_writer(
            lambda: protobuf_row_program(descriptor, arrow_schema), arrow_schema
        )

    def encode(self, batch: pa.RecordBatch, prefix: bytes = b"") -> pa.Array:
        """Return a BinaryArray with one message per row, each after the prefix.

        ValueError, with the column and row, if a value does not fit the schema.
        """
        if batch.schema.names != self._names:
            raise ValueError(f"columns {batch.schema.names}: expected {self._names}")
        written = None if self._rows is None else self._rows.encode(batch, prefix)
        return self._encode_objects(batch, prefix) if written is None else written

    def _encode_objects(self, batch: pa.RecordBatch, prefix: bytes) -> pa.Array:
        columns = [column.to_pylist() for column in batch.columns]
        found = [self._row(columns, row, prefix) for row in range(batch.num_rows)]
        return pa.array(found, pa.binary())

    def _row(self, columns: list[list[Any]], row: int, prefix: bytes) -> bytes:
        message = self._class()
        for field, column in zip(self._fields, columns, strict=True):
            try:
                _set_field(message, field, column[row])
            except (TypeError, ValueError, OverflowError, DecodeError, AttributeError) as error:
                raise ValueError(f"column {field.name!r}, row {row}: {error}") from None
        try:
            return prefix + bytes(message.SerializeToString())
        except EncodeError as error:
            raise ValueError(f"row {row}: {error}") from None


def _set_field(message: Any, field: Any, value: Any) -> None:
    if value is None:
        return
    if not is_repeated(field):
        if field.message_type is not None:
            target = getattr(message, field.name)
            target.SetInParent()
            _fill_message(target, field.message_type, value)
        else:
            setattr(message, field.name, _scalar_of(field, value))
        return
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _set_map(target, field.message_type, value)
    elif field.message_type is not None:
        for element in value:
            if element is not None:
                _fill_message(target.add(), field.message_type, element)
    else:
        target.extend(_scalar_of(field, element) for element in value if element is not None)


def _set_map(target: Any, entry: Any, value: Any) -> None:
    key_field, value_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for key, element in value.items() if isinstance(value, dict) else value:
        number = _scalar_of(key_field, key)
        if value_field.message_type is not None:
            member = target[number]
            if element is not None:
                _fill_message(member, value_field.message_type, element)
        elif element is not None:
            target[number] = _scalar_of(value_field, element)


def _scalar_of(field: Any, value: Any) -> Any:
    if field.enum_type is None or isinstance(value, int):
        return value
    known = field.enum_type.values_by_name.get(value)
    if known is not None:
        return known.number
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is no value of {field.enum_type.full_name}") from None


def _fill_message(target: Any, kind: Any, value: Any) -> None:
    name = kind.full_name
    if isinstance(value, bytes) and name not in WRAPPERS:
        target.MergeFromString(value)
    elif name in WRAPPERS:
        target.value = value
    elif isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        target.FromDatetime(aware.astimezone(dt.UTC).replace(tzinfo=None))
    elif isinstance(value, dt.timedelta):
        target.FromTimedelta(value)
    elif isinstance(value, dt.date):
        target.year, target.month, target.day = value.year, value.month, value.day
    elif isinstance(value, Decimal):
        _fill_decimal(target, value)
    elif isinstance(value, dict):
        for member, element in value.items():
            if member not in kind.fields_by_name:
                raise ValueError(f"message {name} has no field {member!r}")
            _set_field(target, kind.fields_by_name[member], element)
    else:
        raise ValueError(f"{type(value).__name__} is no value of message {name}")


def _fill_decimal(target: Any, value: Decimal) -> None:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)))
    number = -number if sign else number
    target.value = number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
    target.precision, target.scale = len(digits), -exponent


# --- a schema for columns

_TEXT_NAMES: Final = {
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint32",
    pa.uint16(): "uint32",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.bool_(): "bool",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.binary_view(): "bytes",
    pa.date32(): "google.type.Date",
}
_IMPORTS: Final = {
    "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
    "google.protobuf.Duration": "google/protobuf/duration.proto",
    "google.type.Date": "google/type/date.proto",
    DECIMAL: "confluent/type/decimal.proto",
}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAP_KEYS: Final = frozenset({"int32", "int64", "uint32", "uint64", "bool", "string"})


def protobuf_text_of(arrow_schema: pa.Schema, message_name: str) -> str:
    """Return a proto3 schema with these columns as one message; ValueError if a type has no form.

    The name may have a package: `shop.Order`. A nullable scalar becomes `optional`.
    """
    package, _, name = message_name.rpartition(".")
    writer = _TextWriter()
    body = writer.message(name, arrow_schema, "")
    lines = ['syntax = "proto3";']
    if package:
        lines.append(f"package {package};")
    lines += (
        ["", *(f'import "{path}";' for path in sorted(writer.imports))] if writer.imports else []
    )
    return "\n".join([*lines, "", *body, ""])


class _TextWriter:
    """Writes messages as lines, and collects the imports that they need."""

    def __init__(self) -> None:
        self.imports: set[str] = set()

    def message(self, name: str, fields: Any, path: str) -> list[str]:
        if not _IDENTIFIER.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a Protobuf message: rename it")
        lines, inner = [], []
        for number, field in enumerate(fields, 1):
            place = f"{path}{field.name}"
            if not _IDENTIFIER.fullmatch(field.name):
                raise ValueError(f"column {place!r} cannot be a Protobuf name: rename it")
            declared, nested = self._field(field, place)
            lines.append(f"  {declared} {field.name} = {number}{self._options(field.type)};")
            inner += [f"  {line}" for line in nested]
        return [f"message {name} {{", *inner, *lines, "}"]

    def _field(self, field: pa.Field, place: str) -> tuple[str, list[str]]:
        kind = field.type
        if pa.types.is_map(kind):
            key, _ = self._single(kind.key_field, f"{place}.key", "")
            if key not in _MAP_KEYS:
                raise ValueError(f"column {place!r}: a map's key cannot be {kind.key_type}")
            value, nested = self._single(kind.item_field, f"{place}.value", field.name)
            return f"map<{key}, {value}>", nested
        if _is_list(kind):
            element, nested = self._single(kind.value_field, f"{place}.element", field.name)
            return f"repeated {element}", nested
        name, nested = self._single(field, place, field.name)
        is_message = "." in name or bool(nested)
        return name if is_message or not field.nullable else f"optional {name}", nested

    def _single(self, field: pa.Field, place: str, name: str) -> tuple[str, list[str]]:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_struct(kind):
            nested = f"{name[:1].upper()}{name[1:]}Fields"
            return nested, self.message(nested, kind, f"{place}.")
        found = _TEXT_NAMES.get(kind)
        if pa.types.is_timestamp(kind):
            found = "google.protobuf.Timestamp"
        elif pa.types.is_duration(kind):
            found = "google.protobuf.Duration"
        elif pa.types.is_decimal(kind):
            found = DECIMAL
        elif pa.types.is_fixed_size_binary(kind):
            found = "bytes"
        if found is None:
            raise ValueError(f"column {place!r} is {kind}: Protobuf has no form for it, cast it")
        self.imports.update({_IMPORTS[found]} if found in _IMPORTS else ())
        return found, []

    def _options(self, kind: pa.DataType) -> str:
        if _is_list(kind):
            kind = kind.value_type
        if not pa.types.is_decimal(kind):
            return ""
        self.imports.add("confluent/meta.proto")
        params = [
            f'{{ key: "precision" value: "{kind.precision}" }}',
            f'{{ key: "scale" value: "{kind.scale}" }}',
        ]
        return f" [(confluent.field_meta) = {{ params: [{', '.join(params)}] }}]"


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
