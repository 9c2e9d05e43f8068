"""Records to Arrow in plain Python: the fallback of _arrow.pyx."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from ottla.wire.records._reading_python import read_records
from ottla.wire.records.record import Record, RecordHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ottla.wire.records.batch import Buffer, RecordBatch

    ColumnBuffers = tuple[int, int, list[bytes | bytearray | array[int] | None]]

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000


class Columns:
    """The rows of one Arrow record batch while it is built.

    Only the named columns are kept, and only records with offsets in the range. All payloads
    together may have at most 2**31 - 1 bytes, the limit of Arrow's offsets within a column.
    `allocate` serves the compiled loop: it returns a buffer of a given size, with a method
    resize(size, shrink_to_fit), in memory that is faster to get than Python's own.
    """

    def __init__(
        self,
        names: Collection[str],
        start_offset: int,
        last_offset: int,
        allocate: Callable[[int], object],
    ) -> None:
        del allocate
        self.rows = 0
        self.payload_bytes = 0
        self._names = names
        self._start_offset = start_offset
        self._last_offset = last_offset
        self._keys = _Strings()
        self._values = _Strings()
        self._offsets = array("q")
        self._timestamps = _Timestamps()
        self._timestamp_types = array("i")
        self._headers = _Headers()

    def add_run(self, data: Buffer, position: int, payload_bytes_max: int, check_crcs: bool) -> int:
        """Add batches from this position on, and return the position of the first not added.

        Added are batches that are whole, right and not compressed, as long as all payloads so
        far stay below the limit. Control batches and those out of the range are passed over.
        Everything else is left for the caller to look at; in plain Python, everything is.
        """
        del data, payload_bytes_max, check_crcs
        return position

    def add_batch(self, batch: RecordBatch, payload: Buffer) -> None:
        """Add the records of a batch; the payload is uncompressed.

        ProtocolError if the payload does not match the batch's header.
        """
        records = [
            record
            for record in read_records(batch, payload, Record, RecordHeader)
            if self._start_offset <= record.offset <= self._last_offset
        ]
        self.rows += len(records)
        self.payload_bytes += len(payload)
        if "key" in self._names:
            self._keys.extend([record.key for record in records])
        if "value" in self._names:
            self._values.extend([record.value for record in records])
        if "offset" in self._names:
            self._offsets.extend(record.offset for record in records)
        if "timestamp" in self._names:
            self._timestamps.extend(record.timestamp_ms for record in records)
        if "timestampType" in self._names:
            self._timestamp_types.extend([int(batch.is_log_append_time)] * len(records))
        if "headers" in self._names:
            self._headers.extend([record.headers for record in records])

    def finish(self, topic: bytes, partition: int) -> dict[str, ColumnBuffers]:
        """Return length, null count and Arrow buffers by column name; then nothing can be added.

        Headers come as three columns: headers, headers.key and headers.value.
        """
        found: dict[str, ColumnBuffers] = {
            "key": self._keys.finish(),
            "value": self._values.finish(),
            "partition": (self.rows, 0, [None, array("i", [partition]) * self.rows]),
            "offset": (self.rows, 0, [None, self._offsets]),
            "timestamp": self._timestamps.finish(),
            "timestampType": (self.rows, 0, [None, self._timestamp_types]),
            **self._headers.finish(),
        }
        if "topic" in self._names:
            ends = array("i", range(0, len(topic) * self.rows + 1, len(topic)))
            found["topic"] = (self.rows, 0, [None, ends, topic * self.rows])
        return found


class _Validity:
    """For each row whether it is there or null, as binary digits until they become bits."""

    def __init__(self) -> None:
        self._digits = bytearray()
        self.nulls = 0

    def extend(self, cells: Sequence[object]) -> None:
        nulls = cells.count(None)
        self.nulls += nulls
        if nulls:
            self._digits += b"".join(b"0" if cell is None else b"1" for cell in cells)
        else:
            self._digits += b"1" * len(cells)

    def finish(self) -> bytes | None:
        if not self.nulls:
            return None
        self._digits.reverse()
        return int(self._digits, 2).to_bytes((len(self._digits) + 7) // 8, "little")


class _Strings:
    """A column of Arrow's binary layout."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._ends = array("i", [0])
        self._validity = _Validity()

    def extend(self, cells: Sequence[bytes | None]) -> None:
        sizes = [0 if cell is None else len(cell) for cell in cells]
        self._ends.extend(accumulate(sizes, initial=self._ends.pop()))
        self._content += b"".join(filter(None, cells))
        self._validity.extend(cells)

    def finish(self) -> ColumnBuffers:
        buffers = [self._validity.finish(), self._ends, self._content]
        return len(self._ends) - 1, self._validity.nulls, buffers


class _Timestamps:
    """A column of microseconds, null for a time that is too far away to be counted in them."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._validity = _Validity()

    def extend(self, timestamps_ms: Iterable[int]) -> None:
        cells = [
            timestamp_ms * 1000 if -TIMESTAMP_MS_MAX <= timestamp_ms <= TIMESTAMP_MS_MAX else None
            for timestamp_ms in timestamps_ms
        ]
        self._numbers.extend(cell or 0 for cell in cells)
        self._validity.extend(cells)

    def finish(self) -> ColumnBuffers:
        return len(self._numbers), self._validity.nulls, [self._validity.finish(), self._numbers]


class _Headers:
    """A column of lists of keys and values, null for a record that has none."""

    def __init__(self) -> None:
        self._ends = array("i", [0])
        self._validity = _Validity()
        self._keys = _Strings()
        self._values = _Strings()

    def extend(self, cells: Sequence[tuple[RecordHeader, ...]]) -> None:
        self._ends.extend(accumulate(map(len, cells), initial=self._ends.pop()))
        self._validity.extend([cell or None for cell in cells])
        self._keys.extend([header.key.encode() for cell in cells for header in cell])
        self._values.extend([header.value for cell in cells for header in cell])

    def finish(self) -> dict[str, ColumnBuffers]:
        return {
            "headers": (
                len(self._ends) - 1,
                self._validity.nulls,
                [self._validity.finish(), self._ends],
            ),
            "headers.key": self._keys.finish(),
            "headers.value": self._values.finish(),
        }
