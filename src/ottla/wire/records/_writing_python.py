"""Writes records in plain Python: the fallback of _writing.pyx. _reading_python has the format."""

from collections.abc import Sequence
from typing import Self

from ottla.wire.records.batch import HEADER_BYTES, Buffer

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class RecordAccumulator:
    """Records encoded one after another, behind room for the header of their batch.

    Each record gets the next offset delta; its timestamp is kept as the distance from the first
    record's, which may be negative.
    """

    __slots__ = (
        "_buffer",
        "base_timestamp_ms",
        "max_timestamp_ms",
        "next_offset_delta",
        "record_count",
    )

    def __init__(self) -> None:
        self._buffer: bytearray | None = bytearray(HEADER_BYTES)
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.next_offset_delta = 0
        self.record_count = 0

    @classmethod
    def of_encoded(
        cls, records: bytearray, record_count: int, base_timestamp_ms: int, max_timestamp_ms: int
    ) -> Self:
        """Take over records without gaps that are encoded already, behind room for the header."""
        made = cls()
        made._buffer = records
        made.record_count = made.next_offset_delta = record_count
        made.base_timestamp_ms = base_timestamp_ms
        made.max_timestamp_ms = max_timestamp_ms
        return made

    @property
    def size_bytes(self) -> int:
        """The room and the records so far; 0 once they are taken."""
        return 0 if self._buffer is None else len(self._buffer)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> None:
        """Add one record. When this raises, nothing was added."""
        self._add(self._encoded(timestamp_ms, key, value, headers), timestamp_ms)

    def extend(
        self,
        timestamp_ms: int | Sequence[int],
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Sequence[tuple[str, Buffer | None]]] | None = None,
        *,
        start: int = 0,
        size_bytes_max: int = INT32_MAX,
    ) -> int:
        """Add values[start:] with keys and headers; return the index of the first value left out.

        The records share one timestamp, or each has its own. Adding stops at the first record that
        would exceed the limit of size_bytes; an empty batch always takes one record.
        """
        assert start >= 0
        assert keys is None or len(keys) == len(values)
        assert headers is None or len(headers) == len(values)
        assert isinstance(timestamp_ms, int) or len(timestamp_ms) == len(values)
        for index in range(start, len(values)):
            at_ms = timestamp_ms if isinstance(timestamp_ms, int) else timestamp_ms[index]
            key = None if keys is None else keys[index]
            own = () if headers is None else headers[index]
            encoded = self._encoded(at_ms, key, values[index], own)
            if self.record_count and self.size_bytes + len(encoded) > size_bytes_max:
                return index
            self._add(encoded, at_ms)
        return len(values)

    def leave_gap(self, offset_count: int) -> None:
        """Leave this many offsets without a record, as compaction does."""
        assert 0 <= offset_count <= INT32_MAX - self.next_offset_delta
        self.next_offset_delta += offset_count

    def take(self) -> bytearray:
        """Hand out the room and the records; nothing can be added any more."""
        assert self._buffer is not None, "the records are taken already"
        taken, self._buffer = self._buffer, None
        return taken

    def _encoded(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
    ) -> bytes:
        delta = timestamp_ms - self.base_timestamp_ms if self.record_count else 0
        assert -INT64_MAX - 1 <= delta <= INT64_MAX, delta
        body = [b"\0", _varint(delta), _varint(self.next_offset_delta), _span(key), _span(value)]
        body.append(_varint(len(headers)))
        for header_key, header_value in headers:
            body += _span(header_key.encode()), _span(header_value)
        record = b"".join(body)
        return _varint(len(record)) + record

    def _add(self, encoded: bytes, timestamp_ms: int) -> None:
        assert self._buffer is not None, "the records are taken already"
        assert len(self._buffer) + len(encoded) <= INT32_MAX, "a batch has at most 2**31 - 1 bytes"
        assert self.next_offset_delta <= INT32_MAX, "and as many offsets"
        self._buffer += encoded
        if self.record_count == 0:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        self.record_count += 1
        self.next_offset_delta += 1


def _span(data: Buffer | None) -> bytes:
    if data is None:
        return b"\1"
    return _varint(memoryview(data).nbytes) + bytes(data)


def _varint(number: int) -> bytes:
    number = number << 1 if number >= 0 else (~number << 1) | 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
