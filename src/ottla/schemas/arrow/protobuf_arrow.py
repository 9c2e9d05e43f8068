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

from typing import TYPE_CHECKING, Any, Final

try:
    import pyarrow as pa
except ModuleNotFoundError:
    raise ImportError("Arrow columns need pyarrow: pip install 'ottla[arrow]'") from None

from google.protobuf.descriptor import FieldDescriptor

from ottla.schemas.arrow._protobuf_decode_python import ERRORS, Kind, Node
from ottla.schemas.arrow.arrow_codec import DecodedValues
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
WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
DECIMAL: Final = "confluent.type.Decimal"


def arrow_schema_of(schema: ProtobufSchema, message_name: str | None = None) -> pa.Schema:
    """Return the columns of a message, by default of the first one."""
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
                memoryview(b"" if content is None else content),
                memoryview(offsets),
                is_large,
                values.offset,
                len(values),
                memoryview(validity) if values.null_count else None,
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
    plan = _Plan()
    kind = plan.fill(0, schema.pool.FindMessageTypeByName(name), (), Node(Kind.MESSAGE))
    return tuple(plan.nodes), kind


class _Plan:
    """The nodes of a message; a place is reserved before it is filled."""

    def __init__(self) -> None:
        self.nodes: list[Node] = [Node(Kind.MESSAGE)]

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
        size = decimal_size(field) if name == DECIMAL else None
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


def decimal_size(field: Any) -> tuple[int, int] | None:
    """Return precision and scale of a field with Confluent's decimal type, if its options say so.

    The params are in the option confluent.field_meta; without a scale the field stays a struct.
    """
    options = field.GetOptions()
    for option, value in options.ListFields():
        if option.is_extension and option.full_name == "confluent.field_meta":
            params = value.params
            return _size(params.get("precision", str(DECIMAL_PRECISION_MAX)), params.get("scale"))
    return None


def _size(precision: str, scale: str | None) -> tuple[int, int] | None:
    try:
        found = int(precision), int(scale or "")
    except ValueError:
        return None
    is_valid = 0 < found[0] <= DECIMAL_PRECISION_MAX and 0 <= found[1] <= found[0]
    return found if is_valid else None
