"""Reads the batches of a segment in their order: by their headers alone, or all of each."""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.environment.disk import File
from ottla.model.identifiers import Offset
from ottla.storage.files.damage import Damage
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.segments.batch_scan import producers_batches
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    RecordBatch,
    batch_at,
)

_LOOK_BYTES: Final = 8192
"""The read size when searching a batch: the distance between two index entries, and more."""
_SCAN_BYTES: Final = 1 << 20
"""The read size when scanning a whole segment."""
_NEWEST_MAX: Final = 16
_PLACE: Final = Struct(">qi4xb6xi")
"""The header fields that locate a batch: base offset, length, magic, last offset delta."""


class CorruptSegmentError(Exception):
    """Bytes that are no batch, where there should be one."""

    def __init__(self, path: str, position: int, detail: str) -> None:
        super().__init__(f"{path}, byte {position}: {detail}")
        self.path = path
        self.position = position


class BatchPlace(NamedTuple):
    """The position and the offset range of a batch."""

    position: int
    size_bytes: int
    base_offset: Offset
    last_offset: Offset


class NewestPlaces:
    """The places of the last few appended batches, which most readers ask for."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: list[BatchPlace] = []

    def add(self, position: int, batch: RecordBatch) -> None:
        """Remember a batch, which lies behind all others."""
        size_bytes, base_offset = len(batch.raw), batch.base_offset
        last_offset = base_offset + batch.last_offset_delta
        self._places.append(BatchPlace(position, size_bytes, base_offset, Offset(last_offset)))
        if len(self._places) > _NEWEST_MAX:
            del self._places[: _NEWEST_MAX // 2]

    def find(self, offset: Offset) -> BatchPlace | None:
        """Return the place of the batch with this offset, or None."""
        for place in reversed(self._places):
            if place.base_offset <= offset:
                return place if offset <= place.last_offset else None
        return None

    def forget(self) -> None:
        """Know none any more: the file has changed."""
        self._places.clear()


class SegmentBatches:
    """A file of contiguous batches; damaged ranges are skipped."""

    __slots__ = ("_files", "_newest", "damage", "path", "size_bytes")

    damage: tuple[Damage, ...]

    def __init__(self, files: OpenFiles, path: str) -> None:
        self._files = files
        self.path = path
        self.size_bytes = 0
        self.damage = ()
        self._newest = NewestPlaces()

    @property
    def file(self) -> File:
        """The open file of batches."""
        return self._files.get(self.path)

    def places(self, position: int) -> Iterator[BatchPlace]:
        """Yield the batches from a position on, by their headers alone."""
        file, size_bytes = self.file, self.size_bytes
        block, block_at = b"", position
        while (position := self.past_damage(position)) < size_bytes:
            at = position - block_at
            if at + _PLACE.size > len(block):
                wanted = min(_LOOK_BYTES, size_bytes - position)
                block, block_at, at = file.read_at(position, wanted), position, 0
                if len(block) < _PLACE.size:
                    raise self._corrupt(position, "the file ends inside a header")
            base_offset, length, magic, last_offset_delta = _PLACE.unpack_from(block, at)
            batch_bytes = length + LOG_OVERHEAD_BYTES
            if (
                magic != MAGIC
                or not HEADER_BYTES <= batch_bytes <= size_bytes - position
                or last_offset_delta < 0
            ):
                raise self._corrupt(position, f"a batch of {batch_bytes} bytes, magic {magic}")
            yield BatchPlace(position, batch_bytes, base_offset, base_offset + last_offset_delta)
            position += batch_bytes

    def batches(self, position: int) -> Iterator[RecordBatch]:
        """Yield the batches from a position on, reading all of each; CRCs are not checked."""
        return (batch for _, batch in self.batches_at(position))

    def batches_at(self, position: int) -> Iterator[tuple[int, RecordBatch]]:
        """Yield the batches from a position on, with the position of each."""
        blocks = Blocks(self.file, self.size_bytes)
        while (position := self.past_damage(position)) < self.size_bytes:
            batch = self.batch_in(*blocks.at(position), position)
            yield position, batch
            position += batch.size_bytes

    def batch_in(self, block: memoryview, at: int, position: int) -> RecordBatch:
        """Read the batch at this place of a block, which is at a position of the file."""
        try:
            return batch_at(block, at)
        except ProtocolError as error:
            raise self._corrupt(position, error.detail) from None

    def producers_batches(self, position: int) -> Iterator[RecordBatch]:
        """Yield the batches from a position on that determine the producer state.

        A skipped batch has no effect on a producer's state that a later batch does not have.
        """
        blocks = Blocks(self.file, self.size_bytes)
        while (position := self.past_damage(position)) < self.size_bytes:
            block, at = blocks.at(position)
            end, found = producers_batches(block[: self.sound_bytes(position) + at], at)
            if end == at:  # out of the ordinary, or no batch
                batch = self.batch_in(block, at, position)
                found, end = [at], at + batch.size_bytes
            for place in found:
                yield self.batch_in(block, place, position + place - at)
            position += end - at

    def sound_bytes(self, position: int) -> int:
        """Return the distance from a position to the next damage, or to the end."""
        ends = [d.position for d in self.damage if d.position > position]
        return min(ends, default=self.size_bytes) - position

    def past_damage(self, position: int) -> int:
        """Return the position, or the end of the damage that it is in."""
        for damage in self.damage:
            if damage.position <= position < damage.end_position:
                position = damage.end_position
        return position

    def _corrupt(self, position: int, detail: str) -> CorruptSegmentError:
        return CorruptSegmentError(self.path, position, detail)


class Blocks:
    """Reads a file of batches in large blocks, each of which begins with a batch."""

    __slots__ = ("_block", "_block_at", "_file", "_size_bytes")

    def __init__(self, file: File, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._block = memoryview(b"")
        self._block_at = 0

    def at(self, position: int) -> tuple[memoryview, int]:
        """Return a block, and where the batch at this position is in it; all of it, if it is there.

        Positions only rise, from one batch to the next.
        """
        needed = _batch_bytes(self._block, position - self._block_at)
        if position - self._block_at + needed > len(self._block):
            self._read(position, _SCAN_BYTES)
            needed = _batch_bytes(self._block, 0)
            if len(self._block) < needed <= self._size_bytes - position:
                self._read(position, needed)
        return self._block, position - self._block_at

    def _read(self, position: int, size_bytes: int) -> None:
        self._block, self._block_at = memoryview(self._file.read_at(position, size_bytes)), position


def _batch_bytes(block: memoryview, at: int) -> int:
    """Return how many bytes the batch at this place says it has; a header's, if it is cut off."""
    if len(block) - at < LOG_OVERHEAD_BYTES:
        return HEADER_BYTES
    length = int.from_bytes(block[at + 8 : at + LOG_OVERHEAD_BYTES], "big", signed=True)
    return max(length + LOG_OVERHEAD_BYTES, HEADER_BYTES)
