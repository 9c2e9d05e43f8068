"""Arrow to records in plain Python: the fallback of _arrow_rows.pyx."""

from __future__ import annotations

from itertools import pairwise
from struct import calcsize
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.records._writing_python import RecordAccumulator
from ottla.wire.records.batch import HEADER, LOG_OVERHEAD_BYTES, MAGIC, NO_SEQUENCE, write_crc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    Cell = memoryview | None
    _Code = Literal["i", "q"]

INT32_MAX = 2**31 - 1
NO_EPOCH = -1
_SEQUENCE_MODULUS = 2**31

BUFFER_WRONG = "an Arrow buffer is too short, or its offsets are out of order"
ROW_TOO_LARGE = "row {} is too large for a record"


class StringBuffers(NamedTuple):
    """The buffers of an Arrow column of strings; is_large if its offsets have 64 bits."""

    validity: memoryview | None
    ends: memoryview
    content: memoryview
    first: int
    is_large: bool


class TimestampBuffers(NamedTuple):
    """The buffers of an Arrow column of timestamps; `divisor` of its units are a millisecond."""

    validity: memoryview | None
    numbers: memoryview
    first: int
    divisor: int


class HeaderBuffers(NamedTuple):
    """The buffers of an Arrow column of lists of headers; no key may be null."""

    validity: memoryview | None
    ends: memoryview
    first: int
    header_count: int
    keys: StringBuffers
    values: StringBuffers


class EncodedRows(NamedTuple):
    """Records, behind room for the header of their batch."""

    buffer: bytearray
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int


class Producer(NamedTuple):
    """The header fields that all batches of one writer share."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int

    def sign(self, batch: bytearray, encoded: EncodedRows, start: int) -> None:
        """Write the header of a batch of these records, of which row `start` is the first."""
        sequence = self.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = (sequence + start) % _SEQUENCE_MODULUS
        HEADER.pack_into(
            batch,
            0,
            0,
            len(batch) - LOG_OVERHEAD_BYTES,
            NO_EPOCH,
            MAGIC,
            0,  # the checksum, which comes last
            self.attributes,
            encoded.record_count - 1,
            encoded.base_timestamp_ms,
            encoded.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            sequence,
            encoded.record_count,
        )
        write_crc(memoryview(batch))


class Rows:
    """Arrow columns of `count` rows, to be written as records; each column but values may be None.

    Rows without a timestamp get timestamp_ms. Buffers that cannot be right raise ValueError.
    """

    def __init__(
        self,
        count: int,
        values: StringBuffers,
        keys: StringBuffers | None,
        headers: HeaderBuffers | None,
        timestamps: TimestampBuffers | None,
        timestamp_ms: int,
    ) -> None:
        self._count = count
        self._values = strings(values, count)
        self._keys = [None] * count if keys is None else strings(keys, count)
        self._headers = [()] * count if headers is None else _headers(headers, count)
        self._timestamps_ms = (
            [timestamp_ms] * count
            if timestamps is None
            else _timestamps(timestamps, count, timestamp_ms)
        )

    def encode(
        self, start: int, size_bytes_max: int, order: memoryview | None = None
    ) -> EncodedRows:
        """Encode the rows from `start` on that fit into a batch of this size, but at least one.

        `order`, if given, holds 32-bit row numbers: the rows are those numbers, counted from
        `start`. A row also does not fit if its timestamp is too far from the first for a delta of
        64 bits. ValueError if a row is too large to be a record at all.
        """
        rows = range(self._count) if order is None else order.tolist()
        assert 0 <= start < len(rows)
        assert size_bytes_max <= INT32_MAX
        assert all(0 <= row < self._count for row in rows), "there is no such row"
        batch = RecordAccumulator()
        for index in range(start, len(rows)):
            row = rows[index]
            timestamp_ms = self._timestamps_ms[row]
            delta_ms = timestamp_ms - self._timestamps_ms[rows[start]]
            key, value, headers = self._keys[row], self._values[row], self._headers[row]
            size = batch.size_bytes + _record_bytes(delta_ms, index - start, key, value, headers)
            if index > start and (size > size_bytes_max or not -(2**63) <= delta_ms < 2**63):
                break
            if size > INT32_MAX:
                raise ValueError(ROW_TOO_LARGE.format(row))
            batch.append(timestamp_ms, key, value, headers)
        return EncodedRows(
            batch.take(), batch.record_count, batch.base_timestamp_ms, batch.max_timestamp_ms
        )


def strings(column: StringBuffers, count: int) -> list[Cell]:
    """Return the cells of a column; ValueError if its buffers cannot be right."""
    ends = _numbers(column.ends, "q" if column.is_large else "i", column.first, count + 1)
    _check_ends(ends, len(column.content))
    return [
        column.content[ends[row] : ends[row + 1]] if is_valid else None
        for row, is_valid in enumerate(_validity(column.validity, column.first, count))
    ]


def _headers(column: HeaderBuffers, count: int) -> list[list[tuple[str, Cell]]]:
    keys = strings(column.keys, column.header_count)
    values = strings(column.values, column.header_count)
    entries = [(str(key or b"", "utf-8"), value) for key, value in zip(keys, values, strict=True)]
    ends = _numbers(column.ends, "i", column.first, count + 1)
    _check_ends(ends, len(entries))
    return [
        entries[ends[row] : ends[row + 1]] if is_valid else []
        for row, is_valid in enumerate(_validity(column.validity, column.first, count))
    ]


def _timestamps(column: TimestampBuffers, count: int, timestamp_ms: int) -> list[int]:
    numbers = _numbers(column.numbers, "q", column.first, count)
    return [
        number // column.divisor if is_valid else timestamp_ms
        for number, is_valid in zip(
            numbers, _validity(column.validity, column.first, count), strict=True
        )
    ]


def _validity(bits: memoryview | None, first: int, count: int) -> list[bool]:
    if bits is None:
        return [True] * count
    if len(bits) < (first + count + 7) // 8:
        raise ValueError(BUFFER_WRONG)
    return [bool(bits[bit >> 3] >> (bit & 7) & 1) for bit in range(first, first + count)]


def _numbers(buffer: memoryview, code: _Code, first: int, count: int) -> list[int]:
    size = calcsize(code)
    wanted = buffer[first * size : (first + count) * size]
    if len(wanted) < count * size:
        raise ValueError(BUFFER_WRONG)
    return wanted.cast(code).tolist()


def _check_ends(ends: Sequence[int], size: int) -> None:
    if ends[0] < 0 or ends[-1] > size or any(start > end for start, end in pairwise(ends)):
        raise ValueError(BUFFER_WRONG)


def _record_bytes(
    delta_ms: int, offset_delta: int, key: Cell, value: Cell, headers: Sequence[tuple[str, Cell]]
) -> int:
    size = 1 + _varint_bytes(delta_ms) + _varint_bytes(offset_delta)
    size += _span_bytes(key) + _span_bytes(value) + _varint_bytes(len(headers))
    for header_key, header_value in headers:
        size += _span_bytes(header_key.encode()) + _span_bytes(header_value)
    return _varint_bytes(size) + size


def _span_bytes(cell: memoryview | bytes | None) -> int:
    return 1 if cell is None else _varint_bytes(len(cell)) + len(cell)


def _varint_bytes(number: int) -> int:
    return max(1, ((number if number >= 0 else ~number).bit_length() + 7) // 7)
