"""Reading records in plain Python: the fallback of _reading.pyx, with the same error messages.

    record := length varint, attributes int8, timestamp delta varlong, offset delta varint,
              key length varint, key, value length varint, value, header count varint, headers
    header := key length varint, key, value length varint, value

Numbers are zigzag varints; a length of -1 stands for null. The record's length does not count
itself. Positions are relative to the first byte of the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.wire.protocol_error import MalformedRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.wire.records.batch import Buffer, RecordBatch

    Reader = Callable[[str, bytes, tuple[Any, ...]], Any]

R = TypeVar("R")
H = TypeVar("H")

HEADER_BYTES_MIN = 2
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

NUMBER_CUT = "a number is cut off"
NUMBER_TOO_LARGE = "a number has too many bits"
LENGTH_WRONG = "a length of {} does not fit"
FIELDS_CUT = "there is no room for its fields"
FIELDS_OVER = "{} bytes are left over after its fields"
OFFSET_WRONG = "an offset delta of {} is out of order"
TIMESTAMP_WRONG = "a timestamp delta of {} leaves the range of timestamps"
HEADER_COUNT_WRONG = "{} headers do not fit"
HEADER_KEY_WRONG = "a header key is not UTF-8"
RECORDS_OVER = "{} bytes follow the last record"


def record_error(index: int, position: int, reason: str, number: int = 0) -> MalformedRecordError:
    """Return the error of the record with this index, at a byte position in the records."""
    return MalformedRecordError(index, f"record {index}, byte {position}: {reason.format(number)}")


def read_records(
    batch: RecordBatch,
    section: Buffer,
    record_type: Callable[[int, int, bytes | None, bytes | None, tuple[H, ...]], R],
    header_type: Callable[[str, bytes | None], H],
) -> list[R]:
    """Read all records of a batch from its uncompressed section.

    Offsets rise from record to record and stay within the batch. Bytes that break this or the
    format raise ProtocolError. The batch's last offset must fit 64 bits.
    """
    return list(each_record(batch, section, record_type, header_type))


def each_record(
    batch: RecordBatch,
    section: Buffer,
    record_type: Callable[[int, int, bytes | None, bytes | None, tuple[H, ...]], R],
    header_type: Callable[[str, bytes | None], H],
) -> Iterator[R]:
    """Yield the records one by one, so that a caller need not hold all of them."""
    cursor = _Cursor(section)
    fixed_ms = batch.max_timestamp_ms if batch.is_log_append_time else None
    previous = -1
    for _ in range(batch.record_count):
        cursor.enter_record()
        timestamp_ms = _timestamp(cursor, batch.base_timestamp_ms, fixed_ms)
        previous = cursor.read_offset_delta(previous, batch.last_offset_delta)
        key = cursor.read_bytes()
        value = cursor.read_bytes()
        headers = tuple(
            header_type(cursor.read_header_key(), cursor.read_bytes())
            for _ in range(cursor.read_header_count())
        )
        cursor.leave_record()
        yield record_type(batch.base_offset + previous, timestamp_ms, key, value, headers)
    cursor.finish()


def scan_records(section: Buffer, record_count: int) -> tuple[int, int, int]:
    """Check every record of an uncompressed section from a producer without keeping any.

    Return how many keys are null, and the least and the greatest timestamp delta (0 without
    records). Raise as read_records does, and for offset deltas that are not 0, 1, 2 and so on.
    The compiled version scans large sections without the interpreter's lock.
    """
    cursor = _Cursor(section)
    null_key_count = 0
    least, greatest = INT64_MAX, -INT64_MAX - 1
    for index in range(record_count):
        delta, is_key_null = cursor.read_start(index)
        least, greatest = min(least, delta), max(greatest, delta)
        null_key_count += is_key_null
        cursor.read_bytes()
        for _ in range(cursor.read_header_count()):
            cursor.read_header_key()
            cursor.read_bytes()
        cursor.leave_record()
    cursor.finish()
    if record_count == 0:
        least = greatest = 0
    return null_key_count, least, greatest


def rejected_records(
    section: Buffer,
    record_count: int,
    needs_keys: bool,
    least: int,
    greatest: int,
    exempt: int,
    count_max: int,
) -> list[tuple[int, int | None]]:
    """Find the first records that a topic refuses, at most `count_max`, in a scanned section.

    Return the index of each with its timestamp delta, which is neither `exempt` nor within the
    bounds, or with None for a null key where keys are needed.
    """
    cursor = _Cursor(section)
    rejected: list[tuple[int, int | None]] = []
    for index in range(record_count):
        if len(rejected) == count_max:
            break
        delta, is_key_null = cursor.read_start(index)
        cursor.skip_rest()
        if needs_keys and is_key_null:
            rejected.append((index, None))
        elif delta != exempt and not least <= delta <= greatest:
            rejected.append((index, delta))
    return rejected


def find_time(
    batch: RecordBatch, section: Buffer, timestamp_ms: int, start_offset: int, end_offset: int
) -> tuple[int, int] | None:
    """Find the first record in these bounds with at least this timestamp, else the latest record.

    Return its timestamp and offset, or None if no record lies in the bounds. Only timestamps and
    offsets are checked on the way; a fault in them raises as in read_records.
    """
    cursor = _Cursor(section)
    fixed_ms = batch.max_timestamp_ms if batch.is_log_append_time else None
    youngest: tuple[int, int] | None = None
    previous = -1
    for _ in range(batch.record_count):
        cursor.enter_record()
        found_ms = _timestamp(cursor, batch.base_timestamp_ms, fixed_ms)
        previous = cursor.read_offset_delta(previous, batch.last_offset_delta)
        cursor.skip_rest()
        offset = batch.base_offset + previous
        if offset >= end_offset:
            break
        if offset >= start_offset and (youngest is None or found_ms > youngest[0]):
            youngest = found_ms, offset
            if found_ms >= timestamp_ms:
                break
    return youngest


class ConsumedRecords:
    """The records of a batch from an offset on, for a consumer that takes them in portions.

    `place` is the topic and the partition of the records. `readers` deserialize keys and values,
    given the topic, the bytes and the headers; None leaves bytes, and nulls stay None. Errors come
    from read_records and from the readers. An error is raised once all records before it were
    returned, and again at every later call.
    """

    def __init__(
        self,
        batch: RecordBatch,
        section: Buffer,
        start_offset: int,
        place: tuple[str, int],
        readers: tuple[Reader | None, Reader | None],
        record_type: Callable[..., R],
        header_type: Callable[[str, bytes | None], H],
    ) -> None:
        self._batch = batch
        self._cursor = _Cursor(section)
        self._start_offset = start_offset
        self._place = place
        self._readers = readers
        self._record_type = record_type
        self._header_type = header_type
        self._fixed_ms = batch.max_timestamp_ms if batch.is_log_append_time else None
        self._previous = self._tried = -1
        self._left = batch.record_count
        self.is_over = False
        """Whether all records have been given out, and nothing follows them."""

    @property
    def next_offset(self) -> int:
        """The least offset that the next record can have."""
        return max(self._batch.base_offset + self._previous + 1, self._start_offset)

    @property
    def tried_offset(self) -> int:
        """After an error: the offset of the record that could not be read."""
        return max(self._batch.base_offset + self._tried, self.next_offset)

    def read(self, count: int) -> list[Any]:
        """Return the next records, at most this many; fewer at the end, or before an error."""
        records: list[Any] = []
        while True:
            held = self._cursor.position, self._cursor.index
            try:
                if not self._read_one(records, count):
                    return records
            except Exception:
                self._cursor.position, self._cursor.index = held
                if not records:
                    raise
                return records

    def _read_one(self, records: list[Any], count: int) -> bool:
        cursor, batch = self._cursor, self._batch
        if self._left == 0 and not self.is_over:
            cursor.finish()
            self.is_over = True
        if self._left == 0 or len(records) >= count:
            return False
        cursor.enter_record()
        timestamp_ms = _timestamp(cursor, batch.base_timestamp_ms, self._fixed_ms)
        delta = cursor.read_offset_delta(self._previous, batch.last_offset_delta)
        self._tried = delta
        key, value = cursor.read_bytes(), cursor.read_bytes()
        headers = tuple(
            self._header_type(cursor.read_header_key(), cursor.read_bytes())
            for _ in range(cursor.read_header_count())
        )
        cursor.leave_record()
        if batch.base_offset + delta >= self._start_offset:
            records.append(
                self._record_type(
                    *self._place,
                    batch.base_offset + delta,
                    timestamp_ms,
                    int(batch.is_log_append_time),
                    self._made(key, self._readers[0], headers),
                    self._made(value, self._readers[1], headers),
                    headers,
                    batch.partition_leader_epoch,
                )
            )
        self._previous = delta
        self._left -= 1
        return True

    def _made(self, data: bytes | None, reader: Reader | None, headers: tuple[Any, ...]) -> Any:
        return data if data is None or reader is None else reader(self._place[0], data, headers)


def _timestamp(cursor: _Cursor, base_ms: int, fixed_ms: int | None) -> int:
    start = cursor.position
    delta = cursor.read_varlong()
    if fixed_ms is not None:
        return fixed_ms
    if not -INT64_MAX - 1 <= base_ms + delta <= INT64_MAX:
        raise cursor.error(start, TIMESTAMP_WRONG, delta)
    return base_ms + delta


class _Cursor:
    """A place in the records: nothing is read past the record it is in, or past the end."""

    __slots__ = ("data", "end", "index", "position")

    def __init__(self, section: Buffer) -> None:
        self.data = bytes(section)
        self.end = len(self.data)
        self.position = 0
        self.index = -1

    def error(self, position: int, reason: str, number: int = 0) -> MalformedRecordError:
        return record_error(self.index, position, reason, number)

    def enter_record(self) -> None:
        self.index += 1
        self.end = len(self.data)
        start = self.position
        length = self.read_varint()
        if not 0 <= length <= self.end - self.position:
            raise self.error(start, LENGTH_WRONG, length)
        self.end = self.position + length
        if length == 0:
            raise self.error(self.position, FIELDS_CUT)
        self.position += 1  # the attributes, in which no bit has a meaning

    def skip_rest(self) -> None:
        self.position = self.end

    def leave_record(self) -> None:
        if self.position != self.end:
            raise self.error(self.position, FIELDS_OVER, self.end - self.position)

    def finish(self) -> None:
        self.index += 1
        if self.position != len(self.data):
            raise self.error(self.position, RECORDS_OVER, len(self.data) - self.position)

    def read_varint(self) -> int:
        return self._read_number(4, 0x0F)

    def read_varlong(self) -> int:
        return self._read_number(9, 0x01)

    def _read_number(self, full_bytes: int, top_byte_max: int) -> int:
        """Read a zigzag number: up to `full_bytes` bytes of seven bits, then a partial byte."""
        position = self.position
        number = shift = 0
        while position < self.end:
            byte = self.data[position]
            position += 1
            if shift == 7 * full_bytes and byte > top_byte_max:
                raise self.error(self.position, NUMBER_TOO_LARGE)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.position = position
                return (number >> 1) ^ -(number & 1)
        raise self.error(self.position, NUMBER_CUT)

    def read_offset_delta(self, previous: int, last: int) -> int:
        start = self.position
        delta = self.read_varint()
        if not previous < delta <= last:
            raise self.error(start, OFFSET_WRONG, delta)
        return delta

    def read_start(self, wanted_delta: int) -> tuple[int, bool]:
        """Read a record up to its key: its timestamp delta, and whether the key is null."""
        self.enter_record()
        timestamp_delta = self.read_varlong()
        start = self.position
        if (delta := self.read_varint()) != wanted_delta:
            raise self.error(start, OFFSET_WRONG, delta)
        return timestamp_delta, self.read_bytes() is None

    def read_bytes(self) -> bytes | None:
        start = self.position
        length = self.read_varint()
        if length == -1:
            return None
        return self._take(start, length)

    def read_header_count(self) -> int:
        start = self.position
        count = self.read_varint()
        if not 0 <= count <= (self.end - self.position) // HEADER_BYTES_MIN:
            raise self.error(start, HEADER_COUNT_WRONG, count)
        return count

    def read_header_key(self) -> str:
        start = self.position
        key = self._take(start, self.read_varint())
        try:
            return key.decode()
        except UnicodeDecodeError:
            raise self.error(start, HEADER_KEY_WRONG) from None

    def _take(self, start: int, length: int) -> bytes:
        if not 0 <= length <= self.end - self.position:
            raise self.error(start, LENGTH_WRONG, length)
        self.position += length
        return self.data[self.position - length : self.position]
