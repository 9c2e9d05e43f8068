"""Arrow to Avro in plain Python: the fallback of _avro_encode.pyx."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.schemas.avro.avro_default_bytes import encoded_long
from ottla.schemas.avro.avro_encoding import WriteFault, WriteOperation, WriteProgram, WriteStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

VALUES_BYTES_MAX: Final = 2**31 - 1
"""Of one call: the limit of the offsets of a binary array."""
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


class StoredColumn(NamedTuple):
    """A column as numbers, bytes or offsets: the logical row n is at `offset` + n."""

    array: Any
    """The pyarrow array, for plain Python."""
    offset: int
    validity: Any
    """None if no row is null."""
    ends: Any
    """32-bit offsets of bytes or items, or None."""
    data: Any


class Unwritable(NamedTuple):
    """The first row that does not fit the schema."""

    row: int
    fault: int
    step: int


class Encoder:
    """Executes a program over the rows of columns."""

    def __init__(self, program: WriteProgram) -> None:
        self._program = program

    def encode(
        self, columns: Sequence[StoredColumn | None], rows: int, prefix: bytes
    ) -> tuple[Any, Any] | Unwritable:
        """Return the 32-bit offsets and the bytes of all values, each after the prefix.

        None stands for a column that is not there. OverflowError if the values do not fit one
        array.
        """
        run = _Run(self._program, columns)
        ends = array("i", [0])
        for row in range(rows):
            run.written += prefix
            try:
                run.write(0, row)
            except _UnwritableError as error:
                return Unwritable(row, error.fault, error.step)
            if len(run.written) > VALUES_BYTES_MAX:
                raise OverflowError
            ends.append(len(run.written))
        return ends.tobytes(), run.written


class _UnwritableError(Exception):
    def __init__(self, fault: WriteFault, step: int) -> None:
        self.fault = fault
        self.step = step


class _Run:
    def __init__(self, program: WriteProgram, columns: Sequence[StoredColumn | None]) -> None:
        self._program = program
        self._columns = columns
        self._cells: dict[int, list[Any]] = {}
        self.written = bytearray()

    def write(self, index: int, row: int) -> None:
        step = self._program.steps[index]
        if step.operation is WriteOperation.CONSTANT:
            self.written += self._program.constants[step.first : step.first + step.count]
        elif step.operation is WriteOperation.OPTIONAL:
            self._write_optional(index, step, row)
        elif step.operation is WriteOperation.UNION:
            self._write_union(index, step, row)
        elif step.operation is not WriteOperation.NULL:
            if self._is_null(step.column, row):
                raise _UnwritableError(WriteFault.NULL, index)
            _WRITERS[step.operation](self, index, step, row)

    def _is_null(self, column: int, row: int) -> bool:
        stored = self._columns[column]
        return stored is None or (stored.validity is not None and self._cell(column, row) is None)

    def _cell(self, column: int, row: int) -> Any:
        if column not in self._cells:
            stored = self._columns[column]
            assert stored is not None
            has_items = stored.data is None
            self._cells[column] = (
                [each.as_py() or None for each in stored.array.is_valid()]
                if has_items
                else stored.array.to_pylist()
            )
        return self._cells[column][row]

    def _write_long(self, number: int) -> None:
        self.written += encoded_long(number)

    def _write_optional(self, index: int, step: WriteStep, row: int) -> None:
        if self._is_null(step.column, row):
            if step.extra < 0:
                raise _UnwritableError(WriteFault.NULL, index)
            self._write_long(step.extra)
        else:
            self._write_long(step.count)
            self.write(step.first, row)

    def _write_union(self, index: int, step: WriteStep, row: int) -> None:
        if self._is_null(step.column, row):
            if step.extra < 0:
                raise _UnwritableError(WriteFault.NULL, index)
            self._write_long(step.extra)
            return
        links = self._program.links
        places = range(step.first, step.first + 2 * step.count, 2)
        children = self._program.columns[step.column].children
        found = [
            place
            for place, child in zip(places, children, strict=True)
            if not self._is_null(child.index, row)
        ]
        if len(found) != 1:
            raise _UnwritableError(WriteFault.MEMBERS if found else WriteFault.NO_MEMBER, index)
        self._write_long(links[found[0]])
        self.write(links[found[0] + 1], row)

    def write_boolean(self, index: int, step: WriteStep, row: int) -> None:
        del index
        self.written.append(self._cell(step.column, row))

    def write_integer(self, index: int, step: WriteStep, row: int) -> None:
        del index
        self._write_long(self._cell(step.column, row))

    def write_symbol(self, index: int, step: WriteStep, row: int) -> None:
        number = self._cell(step.column, row)
        if number < 0:
            raise _UnwritableError(WriteFault.SYMBOL, index)
        self._write_long(number)

    def write_fixed(self, index: int, step: WriteStep, row: int) -> None:
        del index
        cell = self._cell(step.column, row)
        if isinstance(cell, float):
            width = self._program.columns[step.column].width
            cell = struct.pack("<f" if width == 4 else "<d", cell)
        self.written += cell

    def write_bytes(self, index: int, step: WriteStep, row: int) -> None:
        del index
        cell = self._cell(step.column, row)
        self._write_long(len(cell))
        self.written += cell

    def write_decimal(self, index: int, step: WriteStep, row: int) -> None:
        number = _unscaled(self._cell(step.column, row))
        size = (number if number >= 0 else ~number).bit_length() // 8 + 1
        if step.first < 0:
            self._write_long(size)
        elif size > step.first:
            raise _UnwritableError(WriteFault.DECIMAL, index)
        else:
            size = step.first
        self.written += number.to_bytes(size, "big", signed=True)

    def write_uuid(self, index: int, step: WriteStep, row: int) -> None:
        cell = self._cell(step.column, row)
        digits = cell[:8] + cell[9:13] + cell[14:18] + cell[19:23] + cell[24:]
        dashes = cell[8:9] + cell[13:14] + cell[18:19] + cell[23:24]
        if len(cell) != 36 or dashes != b"----" or not _HEX.issuperset(digits):
            raise _UnwritableError(WriteFault.UUID, index)
        self.written += bytes.fromhex(digits.decode())

    def write_record(self, index: int, step: WriteStep, row: int) -> None:
        del index
        for link in self._program.links[step.first : step.first + step.count]:
            self.write(link, row)

    def write_list(self, index: int, step: WriteStep, row: int) -> None:
        del index
        stored = self._columns[step.column]
        assert stored is not None
        ends = memoryview(stored.ends).cast("B").cast("i")
        start, end = ends[stored.offset + row : stored.offset + row + 2]
        if start < end:
            self._write_long(end - start)
        is_map = step.operation is WriteOperation.MAP
        for item in range(start, end):
            if is_map:
                key = self._cell(self._program.columns[step.column].children[0].index, item)
                self._write_long(len(key))
                self.written += key
            self.write(step.first, item)
        self.written.append(0)


def _unscaled(number: Decimal) -> int:
    sign, digits, _ = number.as_tuple()
    magnitude = int("".join(map(str, digits)) or "0")
    return -magnitude if sign else magnitude


_WRITERS: Final[dict[WriteOperation, Callable[[_Run, int, WriteStep, int], None]]] = {
    WriteOperation.BOOLEAN: _Run.write_boolean,
    WriteOperation.INTEGER: _Run.write_integer,
    WriteOperation.SYMBOL: _Run.write_symbol,
    WriteOperation.FIXED: _Run.write_fixed,
    WriteOperation.BYTES: _Run.write_bytes,
    WriteOperation.DECIMAL: _Run.write_decimal,
    WriteOperation.UUID: _Run.write_uuid,
    WriteOperation.RECORD: _Run.write_record,
    WriteOperation.ARRAY: _Run.write_list,
    WriteOperation.MAP: _Run.write_list,
}
