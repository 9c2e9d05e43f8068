"""The per-record work of compaction, in plain Python: the fallback of _compaction.pyx.

A record is read up to its value; its headers are neither read nor checked, only kept. Truncated
records, and offsets that do not increase, are a ProtocolError that names the first such record.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.wire.records.batch import Buffer, RecordBatch

ENTRY_BYTES = 24
DIGEST_BYTES = 16

_ENTRY = Struct("=16sq")
_INT64_MODULUS = 2**64


def malformed(index: int) -> ProtocolError:
    """Say which record of a batch cannot be read."""
    return ProtocolError(f"record {index} is malformed", code=ErrorCode.INVALID_RECORD)


def key_digest(key: bytes) -> bytes:
    """Return the digest of a key: collisions cannot be found, not even on purpose."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class OffsetMap:
    """The last offset of each key, in a table of fixed size.

    An entry is the digest of a key and its offset plus one. A lookup begins at a place that the
    digest determines, and goes on until it finds the key or a free place.
    """

    __slots__ = ("_slots", "_table", "entries_max", "entry_count")

    def __init__(self, entries_max: int, slots: int) -> None:
        assert 0 < entries_max < slots < 2**32, f"{entries_max} entries in {slots} places"
        self.entries_max = entries_max
        self.entry_count = 0
        self._slots = slots
        self._table = bytearray(slots * ENTRY_BYTES)

    def get(self, key: bytes) -> int:
        """Return the offset of a key, or -1."""
        return self._find(key_digest(key))[1] - 1

    def add_keys(self, batch: RecordBatch, section: Buffer, start_offset: int) -> int:
        """Note the offsets of a batch's records, uncompressed in `section`, from start_offset on.

        Records without a key are passed over. Returns -1, or if the map is full the offset of the
        first record that it has no place for: from there on nothing has been noted.
        """
        for record in _records(batch, section):
            offset = batch.base_offset + record.offset_delta
            if record.key is None or offset < start_offset:
                continue
            digest = key_digest(record.key)
            position, known = self._find(digest)
            if known == 0:
                if self.entry_count >= self.entries_max:
                    return offset
                self.entry_count += 1
            _ENTRY.pack_into(self._table, position, digest, offset + 1)
        return -1

    def filter_records(
        self, batch: RecordBatch, section: Buffer, end_offset: int, *, with_tombstones: bool
    ) -> tuple[bytes | None, int, int, int, int]:
        """Keep of each key only the record that no later one replaces.

        From end_offset on everything is kept; before it, records without a key are not, nor,
        unless with_tombstones, those without a value. Returns the kept records as one section,
        or None if that is all of them; how many they are; how many of those have no value; and
        their least and greatest timestamp delta (0 without records).
        """
        kept: list[_Fields] = []
        for record in _records(batch, section):
            offset = batch.base_offset + record.offset_delta
            is_last = record.key is not None and self.get(record.key) <= offset
            if offset >= end_offset or (is_last and (record.has_value or with_tombstones)):
                kept.append(record)
        deltas = [record.timestamp_delta for record in kept] or [0]
        data = memoryview(section)
        is_all = len(kept) == batch.record_count
        return (
            None if is_all else b"".join(data[record.start : record.end] for record in kept),
            len(kept),
            sum(not record.has_value for record in kept),
            min(deltas),
            max(deltas),
        )

    def _find(self, digest: bytes) -> tuple[int, int]:
        """Return where a key is, or where it would be, and its offset plus one, or 0."""
        slot = (int.from_bytes(digest[:8], "little") >> 32) * self._slots >> 32
        while True:
            position = slot * ENTRY_BYTES
            stored, known = _ENTRY.unpack_from(self._table, position)
            if known == 0 or stored == digest:
                return position, known
            slot += 1
            if slot == self._slots:
                slot = 0


def shift_timestamps(batch: RecordBatch, section: Buffer, record_count: int, shift: int) -> bytes:
    """Add to the timestamp deltas of all records, which are some or all of a batch's.

    Every sum must fit 64 bits. Everything else stays, the offset deltas in particular.
    """
    data = memoryview(section)
    shifted = bytearray()
    for record in _read(section, record_count, batch.last_offset_delta):
        delta = record.timestamp_delta + shift
        body = bytes(data[record.body : record.body + 1]) + _varint(delta)
        body += data[record.timestamp_end : record.end]
        shifted += _varint(len(body)) + body
    return bytes(shifted)


class _Fields(NamedTuple):
    """A record's place, and the fields that compaction reads. The body begins behind its length."""

    start: int
    body: int
    timestamp_end: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def _records(batch: RecordBatch, section: Buffer) -> Iterator[_Fields]:
    return _read(section, batch.record_count, batch.last_offset_delta)


def _read(section: Buffer, record_count: int, last_offset_delta: int) -> Iterator[_Fields]:
    data = bytes(section)
    position, previous = 0, -1
    for index in range(record_count):
        try:
            record = _read_record(data, position)
        except (ValueError, IndexError):
            raise malformed(index) from None
        if not previous < record.offset_delta <= last_offset_delta:
            raise malformed(index)
        yield record
        position, previous = record.end, record.offset_delta
    if position != len(data):
        raise malformed(record_count)


def _read_record(data: bytes, start: int) -> _Fields:
    length, body = _read_varint(data, start, len(data), 32)
    end = body + length
    if not 0 < length <= len(data) - body:
        raise ValueError(length)
    timestamp_delta, timestamp_end = _read_varint(data, body + 1, end, 64)
    offset_delta, position = _read_varint(data, timestamp_end, end, 32)
    key_span, position = _read_span(data, position, end)
    value_span, position = _read_span(data, position, end)
    if position >= end:  # there is no place for the number of headers
        raise ValueError(position)
    key = None if key_span is None else data[key_span]
    has_value = value_span is not None
    return _Fields(start, body, timestamp_end, end, timestamp_delta, offset_delta, key, has_value)


def _read_span(data: bytes, position: int, end: int) -> tuple[slice | None, int]:
    size, position = _read_varint(data, position, end, 32)
    if not -1 <= size <= end - position:
        raise ValueError(size)
    if size == -1:
        return None, position
    return slice(position, position + size), position + size


def _read_varint(data: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    """Read a zigzag number of so many bits; return it and where the next field begins."""
    number = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if number >> bits:
            break
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        if shift >= bits:
            break
    raise ValueError(position)


def _varint(number: int) -> bytes:
    rest = (number << 1 ^ number >> 63) % _INT64_MODULUS
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
