"""Scans the batches of a block by their headers: the pure Python fallback of _batch_scan.pyx.

Both stop before the first irregular batch, without judging it: the caller examines it as a
`RecordBatch`, and continues behind it.
"""

from __future__ import annotations

from struct import Struct

from ottla.wire.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from ottla.wire.records.crc32c import crc32c

KNOWN_BATCHES_MAX = 5
"""How many batches of a producer its log knows; more of them in one block need not be replayed."""

_CHECKED_FROM = 21
_RELATIVE_OFFSET_MAX = 2**31 - 1
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


class BatchScan:
    """Checks the batches of one segment, and collects the entries of its offset and time index.

    The entries equal the entries of `Segment.append` for the same batches.
    """

    __slots__ = (
        "_base_offset",
        "_interval_bytes",
        "_time_ms",
        "_time_offset",
        "end_offset",
        "greatest_ms",
        "greatest_offset",
        "leader_epoch",
        "offset_entries",
        "position",
        "reach_max",
        "time_entries",
        "unindexed_bytes",
    )

    def __init__(self, base_offset: int, interval_bytes: int, reach_max: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._time_ms = self._time_offset = -1  # the last entry of the time index
        self.position = 0
        self.end_offset = base_offset
        self.reach_max = reach_max
        self.leader_epoch = -1
        self.greatest_ms = -1
        self.greatest_offset = base_offset
        self.unindexed_bytes = 0
        self.offset_entries = bytearray()
        self.time_entries = bytearray()

    def go_on(self, block: memoryview, at: int) -> None:
        """Advance over the sound batches in a block of the file, which is at `position` at `at`.

        Each has to be whole, with the CRC of its bytes, of `leader_epoch` or none, to begin at
        `end_offset`, and not to reach beyond `reach_max`.
        """
        while (header := header_at(block, at)) is not None:
            base_offset, length, epoch, _, crc, _, last_delta, _, timestamp_ms, *_ = header
            size_bytes = length + LOG_OVERHEAD_BYTES
            last_offset = base_offset + last_delta
            if (
                base_offset != self.end_offset
                or last_offset >= self.reach_max
                or last_offset - self._base_offset > _RELATIVE_OFFSET_MAX
                or (epoch >= 0 and epoch != self.leader_epoch)
                or crc32c(block[at + _CHECKED_FROM : at + size_bytes]) != crc
            ):
                return
            self.take(size_bytes, last_offset, timestamp_ms)
            at += size_bytes

    def take(self, size_bytes: int, last_offset: int, timestamp_ms: int) -> None:
        """Advance over a batch at `position` that is sound."""
        if timestamp_ms > self.greatest_ms:
            self.greatest_ms, self.greatest_offset = timestamp_ms, last_offset
        if self.unindexed_bytes > self._interval_bytes:
            self.offset_entries += _OFFSET_ENTRY.pack(
                last_offset - self._base_offset, self.position
            )
            greatest_offset = self.greatest_offset - self._base_offset
            if self.greatest_ms > self._time_ms and greatest_offset > self._time_offset:
                self._time_ms, self._time_offset = self.greatest_ms, greatest_offset
                self.time_entries += _TIME_ENTRY.pack(self.greatest_ms, greatest_offset)
            self.unindexed_bytes = 0
        self.unindexed_bytes += size_bytes
        self.position += size_bytes
        self.end_offset = last_offset + 1


def producers_batches(block: memoryview, at: int) -> tuple[int, list[int]]:
    """Find the batches in a block that affect producer state, and the end of its whole batches.

    Applied in their order they lead to the same state as all batches of the block: for a producer
    these are the last few batches, each marker, and the first batch of each transaction.
    """
    recent_by_producer: dict[int, list[int]] = {}
    in_transaction: set[int] = set()
    found: set[int] = set()
    while (header := header_at(block, at)) is not None:
        producer_id, attributes = header[9], header[5]
        if producer_id >= 0 and attributes & CONTROL_BIT:
            found.add(at)
            in_transaction.discard(producer_id)
        elif producer_id >= 0:
            if attributes & TRANSACTIONAL_BIT and producer_id not in in_transaction:
                in_transaction.add(producer_id)
                found.add(at)
            recent = recent_by_producer.setdefault(producer_id, [])
            recent.append(at)
            del recent[:-KNOWN_BATCHES_MAX]
        at += header[1] + LOG_OVERHEAD_BYTES
    return at, sorted(found.union(*recent_by_producer.values()))


def header_at(block: memoryview, at: int) -> _Header | None:
    """Read the header of a batch; None if that cannot be right, or the batch is not whole."""
    if len(block) - at < HEADER_BYTES:
        return None
    header: _Header = HEADER.unpack_from(block, at)
    _, length, _, magic, _, _, last_delta, _, _, _, _, _, record_count = header
    is_whole = HEADER_BYTES <= length + LOG_OVERHEAD_BYTES <= len(block) - at
    has_count = last_delta >= 0 and 0 <= record_count <= last_delta + 1
    return header if magic == MAGIC and is_whole and has_count else None
