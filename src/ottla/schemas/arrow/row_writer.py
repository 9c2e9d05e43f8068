"""Encodes batches of rows by the compiled loop, where it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.schemas.arrow.row_program import VALUES_BYTES_MAX, UnfitError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.schemas.arrow.row_program import RowProgram

    RowEncoder: Any
else:
    try:
        from ottla.schemas.arrow._row_encode import RowEncoder
    except ImportError:
        RowEncoder = None


class RowWriter:
    """Encodes batches of one schema by a program."""

    def __init__(self, program: RowProgram, arrow_schema: pa.Schema) -> None:
        self._program = program
        self._arrow_schema = arrow_schema
        self._encoder = RowEncoder(program)

    def encode(self, batch: pa.RecordBatch, prefix: bytes) -> pa.Array | None:
        """Return a BinaryArray, or None if a value may not fit: the encoder in Python decides.

        ValueError if the values do not fit one array.
        """
        if not batch.schema.equals(self._arrow_schema):
            return None
        try:
            stored = self._program.stored(batch)
        except (UnfitError, pa.ArrowInvalid):
            return None
        try:
            written = self._encoder.encode(stored, batch.num_rows, prefix)
        except OverflowError:
            raise ValueError(
                f"The values have more than {VALUES_BYTES_MAX} bytes: encode fewer rows at once"
            ) from None
        if written is None:
            return None
        ends, content = map(pa.py_buffer, written)
        return pa.Array.from_buffers(pa.binary(), batch.num_rows, [None, ends, content])


def row_writer(make: Callable[[], RowProgram], arrow_schema: pa.Schema) -> RowWriter | None:
    """Return the writer of a program; None without the compiled loop, or for other columns."""
    if RowEncoder is None:
        return None
    try:
        return RowWriter(make(), arrow_schema)
    except UnsupportedError:
        return None
