"""Tables of records as Arrow's streaming format, piece by piece."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.identifiers import TopicPartition
from ottla.wire.records import arrow

CONTENT_TYPE: Final = "application/vnd.apache.arrow.stream"


class ArrowStreamWriter:
    """Encodes tables with the columns of `ottla.wire.records.arrow`, headers included."""

    def __init__(self) -> None:
        self._schema = arrow.schema(include_headers=True)

    @property
    def columns(self) -> list[str]:
        """The columns of the tables to write."""
        return list(self._schema.names)

    def begin(self) -> bytes:
        """Return the schema's message."""
        return bytes(self._schema.serialize())

    def write(
        self,
        table: pa.Table,
        end_offsets: Mapping[TopicPartition, int] | None,
        rows_max: int | None,
    ) -> tuple[bytes, int]:
        """Return the messages of a table's rows before the end offsets, and their number."""
        if end_offsets is not None:
            table = table.filter(_is_before(table, end_offsets))
        if rows_max is not None:
            table = table.slice(0, rows_max)
        pieces = [bytes(batch.serialize()) for batch in table.to_batches() if batch.num_rows]
        return b"".join(pieces), table.num_rows

    @staticmethod
    def end() -> bytes:
        """Return the mark of the end."""
        return b"\xff\xff\xff\xff\x00\x00\x00\x00"


def _is_before(table: pa.Table, end_offsets: Mapping[TopicPartition, int]) -> pa.ChunkedArray:
    found = None
    for name, end_offset in end_offsets.items():
        is_here = pc.and_(
            pc.equal(table["partition"], name.partition), pc.less(table["offset"], end_offset)
        )
        found = is_here if found is None else pc.or_(found, is_here)
    return found
