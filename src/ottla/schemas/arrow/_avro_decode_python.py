"""Avro to Arrow in plain Python: the fallback of _avro_decode.pyx."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.schemas.avro.avro_columns import Column, Layout
from ottla.schemas.avro.avro_resolution import (
    DEPTH_MAX,
    ZERO_SIZE_ITEMS_MAX,
    Fault,
    Operation,
    Program,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview
    ColumnBuffers = tuple[int, Buffer | None, Buffer | None, Buffer | None]
    """The rows, and the buffers of validity, offsets and values that the layout has."""
    Failure = tuple[int, int, int]
    """The row, the fault and the step that found it."""

OUTPUT_BYTES_MAX: Final = 4 << 30
"""Of all columns of one call."""
_OFFSET_MAX: Final = 2**31 - 1
_NUMBER_BYTES_MAX: Final = 32
_LONG: Final = range(-(2**63), 2**63)
_INT: Final = range(-(2**31), 2**31)


class ColumnFullError(ValueError):
    """The values of one call do not fit a column; no single value is to blame."""

    def __init__(self, program: Program, column: int) -> None:
        name = program.columns[max(column, 0)].name
        super().__init__(
            f"Column {name}: more than {_OFFSET_MAX} bytes or items, or more than"
            f" {OUTPUT_BYTES_MAX} bytes in all columns: decode fewer values at once"
        )


class Decoder:
    """Executes a program over the values of a binary array."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def decode(
        self,
        validity: Buffer | None,
        offsets: Buffer,
        data: Buffer,
        start: int,
        rows: int,
        offset_bytes: int,
        skip: int,
    ) -> tuple[list[ColumnBuffers], list[Failure]]:
        """Decode the values from `start` on, each after `skip` bytes of its own.

        Return the buffers of all columns of the program, and the failures. The row of a value that
        is null or malformed is null in the first column, the struct of all others. The buffers
        of an array begin where its offsets and validity bits begin, not at its slice.
        """
        run = _Run(self._program)
        ends = memoryview(offsets).cast("B").cast("i" if offset_bytes == 4 else "q")
        values = memoryview(data).cast("B")
        valid = None if validity is None else memoryview(validity).cast("B")
        for row in range(start, start + rows):
            if valid is not None and not valid[row >> 3] >> (row & 7) & 1:
                run.columns[0].append_null()
            else:
                run.read_row(row - start, values[ends[row] : ends[row + 1]], skip)
        return [column.buffers() for column in run.columns], run.failures


class _MalformedError(Exception):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault


class _Rows:
    """The rows of a column while it is built."""

    def __init__(self, column: Column, rows: list[_Rows]) -> None:
        self.column = column
        self.children = [rows[child.index] for child in column.children]
        self.is_nullable = column.is_nullable or column.index == 0
        self.rows = 0
        self.validity = bytearray()
        self.ends = array("i", [0])
        self.data = bytearray()

    def append(self, content: bytes | memoryview = b"") -> None:
        """Append a value; the children have theirs already."""
        if self.column.layout is Layout.BYTES:
            self._append_end(len(self.data) + len(content))
        elif self.column.layout in {Layout.LIST, Layout.MAP}:
            self._append_end(self.children[0].rows)
        self.data += content
        self._count(1)

    def append_null(self) -> None:
        """Append a null, or an empty value if the column has none."""
        if self.column.layout is Layout.STRUCT:
            for child in self.children:
                child.append_null()
        width = 1 if self.column.layout is Layout.BOOLEAN else self.column.width
        self.append(bytes(width if self.column.layout is not Layout.BYTES else 0))
        if self.is_nullable:
            self.validity[-1] = 0

    def cut(self, rows: int) -> None:
        """Remove the rows from this number on."""
        rows = min(rows, self.rows)
        self.rows = rows
        del self.validity[rows:]
        del self.ends[rows + 1 :]
        match self.column.layout:
            case Layout.BYTES:
                del self.data[self.ends[rows] :]
            case Layout.LIST | Layout.MAP:
                for child in self.children:
                    child.cut(self.ends[rows])
            case Layout.STRUCT:
                for child in self.children:
                    child.cut(rows)
            case Layout.BOOLEAN:
                del self.data[rows:]
            case _:
                del self.data[rows * self.column.width :]

    def buffers(self) -> ColumnBuffers:
        has_offsets = self.column.layout in {Layout.BYTES, Layout.LIST, Layout.MAP}
        validity = _bits(self.validity) if 0 in self.validity else None
        offsets = self.ends.tobytes() if has_offsets else None
        data: Buffer | None = None
        if self.column.layout is Layout.BOOLEAN:
            data = _bits(self.data)
        elif self.column.layout in {Layout.FIXED, Layout.BYTES}:
            data = self.data
        return self.rows, validity, offsets, data

    def _append_end(self, end: int) -> None:
        if end > _OFFSET_MAX:
            raise OverflowError
        self.ends.append(end)

    def _count(self, validity: int) -> None:
        self.rows += 1
        if self.is_nullable:
            self.validity.append(validity)


def _bits(flags: bytearray) -> bytes:
    text = bytes(flags[::-1]).translate(_DIGITS)
    return int(text or b"0", 2).to_bytes((len(flags) + 7) // 8, "little")


_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


class _Run:
    """The columns of one call, and the value that is being read."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.columns: list[_Rows] = [None] * len(program.columns)  # type: ignore[list-item]
        # Children come after their parents.
        for column in reversed(program.columns):
            self.columns[column.index] = _Rows(column, self.columns)
        self.failures: list[Failure] = []
        self._value = memoryview(b"")
        self._position = 0
        self._zero_size_items = 0
        self._fault_step = -1

    def read_row(self, row: int, value: memoryview, skip: int) -> None:
        self._value, self._position = value, skip
        self._zero_size_items = ZERO_SIZE_ITEMS_MAX
        self._fault_step = -1
        try:
            self._check_prefix(skip)
            self._run(0, 0)
        except _MalformedError as malformed:
            self.failures.append((row, malformed.fault, self._fault_step))
            self.columns[0].cut(row)
            self.columns[0].append_null()
        except OverflowError:
            raise ColumnFullError(
                self._program, self._program.steps[self._fault_step].column
            ) from None

    def _check_prefix(self, skip: int) -> None:
        if len(self._value) < skip:
            self._fault_step = 0
            raise _MalformedError(Fault.PREFIX)

    def _check_depth(self, depth: int) -> None:
        if depth >= DEPTH_MAX:
            raise _MalformedError(Fault.DEPTH)

    def _run(self, index: int, depth: int) -> None:
        step = self._program.steps[index]
        try:
            if step.operation in _NESTED:
                if step.operation is not Operation.UNION:
                    self._check_depth(depth)
                _NESTED[step.operation](self, step, depth)
            else:
                _SIMPLE[step.operation](self, step)
        except (_MalformedError, OverflowError):
            # The innermost step is the place of the fault.
            if self._fault_step < 0:
                self._fault_step = index
            raise

    # Bytes

    def _take(self, size: int) -> memoryview:
        if size > len(self._value) - self._position:
            raise _MalformedError(Fault.TRUNCATED)
        self._position += size
        return self._value[self._position - size : self._position]

    def _long(self) -> int:
        bits = shift = 0
        while True:
            byte = self._take(1)[0]
            if shift == 63 and byte > 1:
                raise _MalformedError(Fault.VARINT)
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                return bits >> 1 ^ -(bits & 1)
            shift += 7

    def _int(self) -> int:
        number = self._long()
        if number not in _INT:
            raise _MalformedError(Fault.INT_RANGE)
        return number

    def _sized(self) -> memoryview:
        size = self._long()
        if size < 0:
            raise _MalformedError(Fault.NEGATIVE_LENGTH)
        return self._take(size)

    def _block(self, *, can_be_empty: bool) -> int:
        count = self._long()
        if count == _LONG.start:
            raise _MalformedError(Fault.ITEMS)
        if count < 0:
            count = -count
            if self._long() < 0:
                raise _MalformedError(Fault.NEGATIVE_LENGTH)
        items_max = self._zero_size_items if can_be_empty else len(self._value) - self._position
        if count > items_max:
            raise _MalformedError(Fault.ITEMS)
        if can_be_empty:
            self._zero_size_items -= count
        return count

    # Steps without others inside

    def read_null(self, step: Step) -> None:
        self.columns[step.column].append()

    def read_boolean(self, step: Step) -> None:
        if self._position < len(self._value) and self._value[self._position] > 1:
            raise _MalformedError(Fault.BOOLEAN)
        self.columns[step.column].append(self._take(1))

    def read_int(self, step: Step) -> None:
        self.columns[step.column].append(struct.pack("<i", self._int()))

    def read_int_to_long(self, step: Step) -> None:
        self.columns[step.column].append(struct.pack("<q", self._int()))

    def read_long(self, step: Step) -> None:
        self.columns[step.column].append(struct.pack("<q", self._long()))

    def read_long_scaled(self, step: Step) -> None:
        self.columns[step.column].append(struct.pack("<q", self._scaled(step)))

    def read_time_of_day(self, step: Step) -> None:
        column = self.columns[step.column]
        number = self._scaled(step)
        if not 0 <= number < step.extra:
            raise _MalformedError(Fault.TIME_RANGE)
        column.append(number.to_bytes(column.column.width, "little"))

    def _scaled(self, step: Step) -> int:
        number = self._long() * step.first
        if number not in _LONG:
            raise _MalformedError(Fault.TIME_RANGE)
        return number // step.count

    def read_int_to_float(self, step: Step) -> None:
        self.columns[step.column].append(_single(self._int()))

    def read_long_to_float(self, step: Step) -> None:
        self.columns[step.column].append(_single(self._long()))

    def read_int_to_double(self, step: Step) -> None:
        self.columns[step.column].append(struct.pack("<d", self._int()))

    def read_long_to_double(self, step: Step) -> None:
        self.columns[step.column].append(struct.pack("<d", self._long()))

    def read_float(self, step: Step) -> None:
        self.columns[step.column].append(self._take(4))

    def read_float_to_double(self, step: Step) -> None:
        (number,) = struct.unpack("<f", self._take(4))
        self.columns[step.column].append(struct.pack("<d", number))

    def read_double(self, step: Step) -> None:
        self.columns[step.column].append(self._take(8))

    def read_bytes(self, step: Step) -> None:
        self.columns[step.column].append(self._sized())

    def read_text(self, step: Step) -> None:
        self.columns[step.column].append(_text(self._sized()))

    def read_fixed(self, step: Step) -> None:
        self.columns[step.column].append(self._take(step.first))

    def read_decimal(self, step: Step) -> None:
        column = self.columns[step.column]
        content = self._sized() if step.first < 0 else self._take(step.first)
        column.append(_decimal(content, step).to_bytes(column.column.width, "little", signed=True))

    def read_uuid(self, step: Step) -> None:
        text = str(UUID(bytes=bytes(self._take(16))))
        self.columns[step.column].append(text.encode())

    def read_enum(self, step: Step) -> None:
        symbol = self._symbol(step)
        start, size = self._program.links[step.first + 2 * symbol : step.first + 2 * symbol + 2]
        if start < 0:
            raise _MalformedError(Fault.ENUM_SYMBOL)
        self.columns[step.column].append(self._program.constants[start : start + size])

    def _symbol(self, step: Step) -> int:
        symbol = self._long()
        if not 0 <= symbol < step.count:
            raise _MalformedError(Fault.ENUM_INDEX)
        return symbol

    def append_null(self, step: Step) -> None:
        self.columns[step.column].append_null()

    def fail(self, step: Step) -> None:
        del step
        raise _MalformedError(Fault.BRANCH)

    def skip_long(self, step: Step) -> None:
        del step
        self._long()

    def skip_bytes(self, step: Step) -> None:
        del step
        self._sized()

    def skip_fixed(self, step: Step) -> None:
        self._take(step.first)

    def skip_enum(self, step: Step) -> None:
        self._symbol(step)

    # Steps with others inside

    def read_record(self, step: Step, depth: int) -> None:
        for link in self._program.links[step.first : step.first + step.count]:
            self._run(link, depth + 1)
        if step.column >= 0:
            self.columns[step.column].append()

    def read_array(self, step: Step, depth: int) -> None:
        while count := self._block(can_be_empty=step.count != 0):
            for _ in range(count):
                self._run(step.first, depth + 1)
        if step.column >= 0:
            self.columns[step.column].append()

    def read_map(self, step: Step, depth: int) -> None:
        while count := self._block(can_be_empty=False):
            for _ in range(count):
                key = self._sized()
                if step.column >= 0:
                    self.columns[step.column].children[0].append(_text(key))
                self._run(step.first, depth + 1)
        if step.column >= 0:
            self.columns[step.column].append()

    def read_union(self, step: Step, depth: int) -> None:
        branch = self._long()
        if not 0 <= branch < step.count:
            raise _MalformedError(Fault.UNION_INDEX)
        self._check_depth(depth)
        self._run(self._program.links[step.first + branch], depth + 1)

    def read_member(self, step: Step, depth: int) -> None:
        column = self.columns[step.column]
        for position, child in enumerate(column.children):
            if position != step.count:
                child.append_null()
        self._run(step.first, depth + 1)
        column.append()

    def read_constant(self, step: Step, depth: int) -> None:
        value, position = self._value, self._position
        constants = memoryview(self._program.constants)
        self._value, self._position = constants[step.extra : step.extra + step.count], 0
        self._run(step.first, depth + 1)
        self._value, self._position = value, position


def _single(number: int) -> bytes:
    return struct.pack("<f", float(number))


def _text(content: memoryview) -> memoryview:
    try:
        str(content, "utf-8")
    except UnicodeDecodeError:
        raise _MalformedError(Fault.UTF8) from None
    return content


def _decimal(content: memoryview, step: Step) -> int:
    number = int.from_bytes(content, "big", signed=True)
    if number.bit_length() >= 8 * _NUMBER_BYTES_MAX:
        raise _MalformedError(Fault.DECIMAL_RANGE)
    if step.count > 0:
        number *= 10**step.count
    elif step.count < 0:
        magnitude, remainder = divmod(abs(number), 10**-step.count)
        if remainder:
            raise _MalformedError(Fault.DECIMAL_INEXACT)
        number = magnitude if number > 0 else -magnitude
    if abs(number) >= 10**step.extra:
        raise _MalformedError(Fault.DECIMAL_RANGE)
    return number


_SIMPLE: Final[dict[Operation, Callable[[_Run, Step], None]]] = {
    Operation.NULL: _Run.read_null,
    Operation.BOOLEAN: _Run.read_boolean,
    Operation.INT: _Run.read_int,
    Operation.INT_TO_LONG: _Run.read_int_to_long,
    Operation.LONG: _Run.read_long,
    Operation.LONG_SCALED: _Run.read_long_scaled,
    Operation.TIME_OF_DAY: _Run.read_time_of_day,
    Operation.INT_TO_FLOAT: _Run.read_int_to_float,
    Operation.INT_TO_DOUBLE: _Run.read_int_to_double,
    Operation.LONG_TO_FLOAT: _Run.read_long_to_float,
    Operation.LONG_TO_DOUBLE: _Run.read_long_to_double,
    Operation.FLOAT: _Run.read_float,
    Operation.FLOAT_TO_DOUBLE: _Run.read_float_to_double,
    Operation.DOUBLE: _Run.read_double,
    Operation.BYTES: _Run.read_bytes,
    Operation.TEXT: _Run.read_text,
    Operation.FIXED: _Run.read_fixed,
    Operation.DECIMAL: _Run.read_decimal,
    Operation.UUID: _Run.read_uuid,
    Operation.ENUM: _Run.read_enum,
    Operation.APPEND_NULL: _Run.append_null,
    Operation.FAIL: _Run.fail,
    Operation.SKIP_LONG: _Run.skip_long,
    Operation.SKIP_BYTES: _Run.skip_bytes,
    Operation.SKIP_FIXED: _Run.skip_fixed,
    Operation.SKIP_ENUM: _Run.skip_enum,
}
_NESTED: Final[dict[Operation, Callable[[_Run, Step, int], None]]] = {
    Operation.RECORD: _Run.read_record,
    Operation.ARRAY: _Run.read_array,
    Operation.MAP: _Run.read_map,
    Operation.UNION: _Run.read_union,
    Operation.MEMBER: _Run.read_member,
    Operation.CONSTANT: _Run.read_constant,
}
