"""The fallback in plain Python of the loop that decodes Protobuf values into columns.

A plan is a list of nodes; node 0 is the message. A value is read in two steps: the fields of one
message go into the slots of its nodes, then each slot becomes one row of its column. The slots give
Protobuf's rules: the last of several scalars counts, several occurrences of one message are merged,
and the last member of a oneof clears the others. Elements of repeated fields go into their column
at once. A value that is not valid is taken back: every column is cut to its length before.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

INT32_MAX: Final = 2**31 - 1
CELLS_PER_VALUE_MAX: Final = 1 << 24
"""Of columns, for one value. Two bytes can be an element with thousands of absent fields."""
GROUP_DEPTH_MAX: Final = 100
SECONDS_MIN: Final = -62_135_596_800
SECONDS_MAX: Final = 253_402_300_799
DURATION_SECONDS_MAX: Final = 315_576_000_000
NANOS_MAX: Final = 999_999_999


class Kind(IntEnum):
    """How a field is encoded, and the column that it becomes."""

    INT32 = 0
    INT64 = 1
    UINT32 = 2
    UINT64 = 3
    SINT32 = 4
    SINT64 = 5
    BOOL = 6
    ENUM = 7
    CLOSED_ENUM = 8
    FIXED32 = 9
    FIXED64 = 10
    STRING = 11
    BYTES = 12
    MESSAGE = 13
    TIMESTAMP = 14
    DURATION = 15
    WRAPPER = 16
    DECIMAL = 17
    LIST = 18


FIRST_MESSAGE: Final = Kind.MESSAGE
ERRORS: Final = (
    "",
    "the value ends inside a field",
    "a varint has more than 64 bits",
    "a field has the number 0 or one above 536870911",
    "a wire type is not valid",
    "a group ends that did not start, or does not end",
    f"groups are nested more than {GROUP_DEPTH_MAX} deep",
    "a string is not UTF-8",
    "a timestamp is outside the years 1 to 9999",
    "a duration is outside 10,000 years",
    "a decimal does not fit the column's precision and scale",
    "the columns of this batch would have more than 2 GiB",
    f"the value has more than {CELLS_PER_VALUE_MAX} cells",
    "the machine has no memory left",
)
(
    TRUNCATED,
    LONG_VARINT,
    BAD_NUMBER,
    BAD_WIRE_TYPE,
    BAD_GROUP,
    DEEP_GROUP,
    NOT_UTF8,
    BAD_TIMESTAMP,
    BAD_DURATION,
    BAD_DECIMAL,
    LARGE_COLUMN,
    MANY_CELLS,
) = range(1, 13)

_VARINTS: Final = frozenset(range(Kind.INT32, Kind.CLOSED_ENUM + 1))
_WIDTHS: Final = {
    **dict.fromkeys((Kind.INT32, Kind.UINT32, Kind.SINT32, Kind.FIXED32), 4),
    **dict.fromkeys((Kind.INT64, Kind.UINT64, Kind.SINT64, Kind.FIXED64), 8),
    Kind.TIMESTAMP: 8,
    Kind.DURATION: 8,
    Kind.DECIMAL: 16,
    Kind.BOOL: 1,
}


@dataclass(frozen=True, slots=True)
class Node:
    """A field of a message, the element of a repeated field, or the message itself.

    `first` and `count` give the nodes of a message's fields, `first` alone a list's element.
    """

    kind: Kind
    number: int = 0
    has_presence: bool = False
    """An absent field is null; without presence it is its default value."""
    is_group: bool = False
    first: int = 0
    count: int = 0
    oneof: int = -1
    default_number: int = 0
    enum_names: tuple[tuple[int, str], ...] = ()
    """Numbers in order, without repetition."""
    precision: int = 0
    scale: int = 0


class DecodingError(Exception):
    """A value is not valid; the code is an index of ERRORS."""

    def __init__(self, code: int) -> None:
        super().__init__(ERRORS[code])
        self.code = code


class _Column:
    """The slot and the rows of one node."""

    __slots__ = (
        "data",
        "enum_names",
        "fields",
        "is_set",
        "node",
        "number",
        "offsets",
        "oneofs",
        "start",
        "valid",
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.fields: dict[int, _Column] = {}
        self.enum_names = dict(node.enum_names)
        self.valid = bytearray()
        self.data = bytearray()
        self.offsets = [0]
        self.oneofs: dict[int, _Column] = {}
        self.is_set, self.number, self.start = False, 0, b""


class Columns:
    """The columns of one batch."""

    def __init__(self, plan: tuple[Node, ...]) -> None:
        self._columns = [_Column(node) for node in plan]
        for column in self._columns:
            node = column.node
            if Kind.MESSAGE <= node.kind < Kind.LIST:
                children = self._columns[node.first : node.first + node.count]
                column.fields = {child.node.number: child for child in children}
        self._cells = 0
        self.errors: list[tuple[int, int]] = []

    def decode(
        self,
        content: memoryview,
        offsets: memoryview,
        is_large: bool,
        start: int,
        rows: int,
        validity: memoryview | None,
        skip: int,
    ) -> None:
        """Decode the values; `errors` gets the row and the code of each that is not valid."""
        ends = offsets.cast("q" if is_large else "i")
        root = self._columns[0]
        for row in range(rows):
            at = start + row
            if validity is not None and not validity[at >> 3] >> (at & 7) & 1:
                self._append_null(root)
                continue
            self._cells = 0
            try:
                self._append(root, 0, _after(bytes(content[ends[at] : ends[at + 1]]), skip))
            except DecodingError as error:
                self._truncate(root, row)
                self._append_null(root)
                self.errors.append((row, error.code))

    def column(self, index: int) -> tuple[int, int, bytes | None, bytes, bytes]:
        """Return length, null count, validity bits, values or bytes, and offsets of a column."""
        column = self._columns[index]
        nulls = column.valid.count(0)
        is_bool = column.node.kind == Kind.BOOL
        data = _bits(column.data) if is_bool else bytes(column.data)
        has_offsets = column.node.kind not in _WIDTHS
        offsets = struct.pack(f"={len(column.offsets)}i", *column.offsets) if has_offsets else b""
        return len(column.valid), nulls, _bits(column.valid) if nulls else None, data, offsets

    # --- reading

    def _parse(self, message: _Column, value: bytes) -> None:
        for child in message.fields.values():
            child.is_set = False
        message.oneofs.clear()
        at, end = 0, len(value)
        while at < end:
            tag, at = _varint(value, at)
            number, wire = tag >> 3, tag & 7
            if tag > 0xFFFFFFFF or number == 0:
                raise DecodingError(BAD_NUMBER)
            known = message.fields.get(number)
            after = -1 if known is None else self._take(known, message, wire, value, at)
            at = _skip(value, at, wire, number, 0) if after < 0 else after

    def _take(self, child: _Column, message: _Column, wire: int, value: bytes, at: int) -> int:
        """Read a field into its slot, or an element into its column; -1 if it is unknown."""
        node = child.node
        if node.kind == Kind.LIST:
            return self._take_element(self._columns[node.first], wire, value, at)
        if wire != _wire_type(node):
            return -1
        number, content, at = _read(node, value, at)
        if node.kind == Kind.CLOSED_ENUM and _signed(number, 32) not in child.enum_names:
            return at
        if node.oneof >= 0:
            before = message.oneofs.get(node.oneof)
            if before is not None and before is not child:
                before.is_set = False
            message.oneofs[node.oneof] = child
        is_merged = child.is_set and node.kind >= FIRST_MESSAGE
        child.start = child.start + content if is_merged else content
        child.is_set, child.number = True, number
        return at

    def _take_element(self, element: _Column, wire: int, value: bytes, at: int) -> int:
        node = element.node
        if wire == _wire_type(node):
            number, content, at = _read(node, value, at)
            self._append_element(element, number, content)
            return at
        if wire != 2 or node.kind > Kind.FIXED64:
            return -1
        _, packed, at = _read(Node(Kind.BYTES), value, at)
        inner = 0
        while inner < len(packed):
            number, _, inner = _read(node, packed, inner)
            self._append_element(element, number, b"")
        return at

    def _append_element(self, element: _Column, number: int, content: bytes) -> None:
        is_closed = element.node.kind == Kind.CLOSED_ENUM
        if is_closed and _signed(number, 32) not in element.enum_names:
            return
        self._append(element, number, content)
        if self._cells > CELLS_PER_VALUE_MAX:
            raise DecodingError(MANY_CELLS)
        if len(element.valid) > INT32_MAX:
            raise DecodingError(LARGE_COLUMN)

    # --- appending

    def _flush(self, message: _Column) -> None:
        node = message.node
        for child in self._columns[node.first : node.first + node.count]:
            if child.node.kind == Kind.LIST:
                self._cells += 1
                child.valid.append(1)
                child.offsets.append(self._rows(self._columns[child.node.first]))
            elif child.is_set:
                self._append(child, child.number, child.start)
            elif child.node.has_presence:
                self._append_null(child)
            else:
                self._append(child, child.node.default_number, b"")

    def _rows(self, column: _Column) -> int:
        while column.node.kind == Kind.WRAPPER:
            column = self._columns[column.node.first]
        return len(column.valid)

    def _append(self, column: _Column, number: int, content: bytes) -> None:
        kind = column.node.kind
        self._cells += 1
        if kind >= FIRST_MESSAGE:
            self._append_message(column, content)
            return
        if kind in {Kind.STRING, Kind.BYTES, Kind.ENUM, Kind.CLOSED_ENUM}:
            self._append_bytes(column, _text(column, number, content))
        elif kind == Kind.BOOL:
            column.data.append(number != 0)
        else:
            number = _zigzag(number) if kind in {Kind.SINT32, Kind.SINT64} else number
            width = _WIDTHS[kind]
            column.data += (number & (1 << 8 * width) - 1).to_bytes(width, "little")
        column.valid.append(1)

    @staticmethod
    def _append_bytes(column: _Column, content: bytes) -> None:
        if len(column.data) + len(content) > INT32_MAX:
            raise DecodingError(LARGE_COLUMN)
        column.data += content
        column.offsets.append(len(column.data))

    def _append_message(self, column: _Column, content: bytes) -> None:
        node = column.node
        self._parse(column, content)
        if node.kind == Kind.MESSAGE:
            column.valid.append(1)
            self._flush(column)
            return
        if node.kind == Kind.WRAPPER:
            inner = self._columns[node.first]
            self._append(inner, *((inner.number, inner.start) if inner.is_set else (0, b"")))
            return
        slots = self._columns[node.first : node.first + node.count]
        numbers = [_signed(slot.number, 64) if slot.is_set else 0 for slot in slots]
        if node.kind == Kind.DECIMAL:
            unscaled = slots[0].start if slots[0].is_set else b""
            scale = _signed(slots[1].number, 32) if slots[1].is_set else 0
            value = _decimal(int.from_bytes(unscaled, "big", signed=True), unscaled, scale, node)
            column.data += value.to_bytes(16, "little", signed=True)
        else:
            value = _moment(node.kind, numbers[0], _signed(numbers[1], 32))
            column.data += value.to_bytes(8, "little", signed=True)
        column.valid.append(1)

    def _append_null(self, column: _Column) -> None:
        node = column.node
        self._cells += 1
        if node.kind in {Kind.MESSAGE, Kind.WRAPPER}:
            for child in self._columns[node.first : node.first + node.count]:
                self._append_null(child)
        if node.kind == Kind.WRAPPER:
            return
        column.valid.append(0)
        column.data += bytes(_WIDTHS.get(node.kind, 0))
        column.offsets.append(column.offsets[-1])

    def _truncate(self, column: _Column, rows: int) -> None:
        node = column.node
        if node.kind == Kind.LIST:
            del column.offsets[rows + 1 :]
            self._truncate(self._columns[node.first], column.offsets[rows])
        elif node.kind in {Kind.MESSAGE, Kind.WRAPPER}:
            for child in self._columns[node.first : node.first + node.count]:
                self._truncate(child, rows)
        elif node.kind in {Kind.STRING, Kind.BYTES, Kind.ENUM, Kind.CLOSED_ENUM}:
            del column.offsets[rows + 1 :]
            del column.data[column.offsets[rows] :]
        else:
            del column.data[rows * _WIDTHS[node.kind] :]
        del column.valid[rows:]


def _after(value: bytes, skip: int) -> bytes:
    if len(value) < skip:
        raise DecodingError(TRUNCATED)
    return value[skip:]


def _wire_type(node: Node) -> int:
    if node.kind in _VARINTS:
        return 0
    if node.is_group:
        return 3
    return {Kind.FIXED32: 5, Kind.FIXED64: 1}.get(node.kind, 2)


def _read(node: Node, value: bytes, at: int) -> tuple[int, bytes, int]:
    """Read one value after its tag: its number, or its bytes."""
    wire = _wire_type(node)
    if wire == 0:
        number, at = _varint(value, at)
        return number, b"", at
    if wire == 3:
        end, after = _group(value, at, node.number, 1)
        return 0, value[at:end], after
    if wire == 2:
        size, at = _varint(value, at)
        if size > len(value) - at:
            raise DecodingError(TRUNCATED)
        return 0, value[at : at + size], at + size
    width = 4 if wire == 5 else 8
    if width > len(value) - at:
        raise DecodingError(TRUNCATED)
    return int.from_bytes(value[at : at + width], "little"), b"", at + width


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    for byte in value[at : at + 10]:
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            if number >= 1 << 64:
                raise DecodingError(LONG_VARINT)
            return number, at
        shift += 7
    raise DecodingError(LONG_VARINT if shift == 70 else TRUNCATED)


def _skip(value: bytes, at: int, wire: int, number: int, depth: int) -> int:
    if wire == 0:
        return _varint(value, at)[1]
    if wire == 2:
        return _read(Node(Kind.BYTES), value, at)[2]
    if wire in {1, 5}:
        return _read(Node(Kind.FIXED64 if wire == 1 else Kind.FIXED32), value, at)[2]
    if wire == 3:
        return _group(value, at, number, depth + 1)[1]
    raise DecodingError(BAD_GROUP if wire == 4 else BAD_WIRE_TYPE)


def _group(value: bytes, at: int, number: int, depth: int) -> tuple[int, int]:
    """Return where the content of a group ends, and where its end tag ends."""
    if depth > GROUP_DEPTH_MAX:
        raise DecodingError(DEEP_GROUP)
    while at < len(value):
        end = at
        tag, at = _varint(value, at)
        inner, wire = tag >> 3, tag & 7
        if tag > 0xFFFFFFFF or inner == 0:
            raise DecodingError(BAD_NUMBER)
        if wire == 4:
            if inner != number:
                raise DecodingError(BAD_GROUP)
            return end, at
        at = _skip(value, at, wire, inner, depth)
    raise DecodingError(BAD_GROUP)


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _zigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _text(column: _Column, number: int, content: bytes) -> bytes:
    if column.node.kind == Kind.BYTES:
        return content
    if column.node.kind == Kind.STRING:
        try:
            content.decode()
        except UnicodeDecodeError:
            raise DecodingError(NOT_UTF8) from None
        return content
    value = _signed(number, 32)
    return column.enum_names.get(value, str(value)).encode()


def _moment(kind: Kind, seconds: int, nanos: int) -> int:
    if kind == Kind.TIMESTAMP:
        if not (SECONDS_MIN <= seconds <= SECONDS_MAX and 0 <= nanos <= NANOS_MAX):
            raise DecodingError(BAD_TIMESTAMP)
    elif abs(seconds) > DURATION_SECONDS_MAX or abs(nanos) > NANOS_MAX:
        raise DecodingError(BAD_DURATION)
    return seconds * 1_000_000 + nanos // 1000


def _decimal(value: int, unscaled: bytes, scale: int, node: Node) -> int:
    """Return the unscaled value with the column's scale; the value must stay exact."""
    shift = node.scale - scale
    if len(unscaled) > 16 or (value and abs(shift) > 38):
        raise DecodingError(BAD_DECIMAL)
    if shift < 0 and value:
        value, rest = divmod(value, 10**-shift)
        if rest:
            raise DecodingError(BAD_DECIMAL)
    elif value:
        value *= 10**shift
    if abs(value) >= 10**node.precision:
        raise DecodingError(BAD_DECIMAL)
    return value


def _bits(flags: bytearray) -> bytes:
    found = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        if flag:
            found[index >> 3] |= 1 << (index & 7)
    return bytes(found)
