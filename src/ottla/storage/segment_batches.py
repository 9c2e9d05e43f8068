"""Reads the batches of a segment in their order: by their headers alone, or all of each."""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.environment.disk import File
from ottla.storage.damage import Damage
from ottla.storage.open_files import OpenFiles
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    RecordBatch,
    batch_at,
)

_LOOK_BYTES: Final = 8192
"""How much is read at once to find a batch: the stretch between two index entries, and more."""
_SCAN_BYTES: Final = 1 << 20
"""How much is read at once to go through a whole segment."""
_NEWEST_MAX: Final = 16
_PLACE: Final = Struct(">qi4xb6xi")
"""What tells where a batch lies: base offset, length, magic, last offset delta."""


class CorruptSegmentError(Exception):
    """Bytes that are no batch, where there should be one."""

    def __init__(self, path: str, position: int, detail: str) -> None:
        super().__init__(f"{path}, byte {position}: {detail}")
        self.path = path
        self.position = position


class BatchPlace(NamedTuple):
    """Where a batch lies, and which offsets it spans."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


class NewestPlaces:
    """Where the last few batches lie that were appended: most readers want one of them."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: list[BatchPlace] = []

    def add(self, position: int, batch: RecordBatch) -> None:
        """Remember one that lies behind all others."""
        size_bytes, base_offset = len(batch.raw), batch.base_offset
        last_offset = base_offset + batch.last_offset_delta
        self._places.append(BatchPlace(position, size_bytes, base_offset, last_offset))
        if len(self._places) > _NEWEST_MAX:
            del self._places[: _NEWEST_MAX // 2]

    def find(self, offset: int) -> BatchPlace | None:
        """Return the batch that holds this offset, if it is one of them."""
        for place in reversed(self._places):
            if place.base_offset <= offset:
                return place if offset <= place.last_offset else None
        return None

    def forget(self) -> None:
        """Know none any more: the file has changed."""
        self._places.clear()


class SegmentBatches:
    """A file of batches, back to back but for what is damaged, which is passed over."""

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
        """Go through the batches from a position on, by their headers alone."""
        file, size_bytes = self.file, self.size_bytes
        block, block_at = b"", position
        while (position := self._past_damage(position)) < size_bytes:
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
        """Go through the batches from a position on, reading all of each; CRCs are not checked."""
        return (batch for _, batch in self.batches_at(position))

    def batches_at(self, position: int) -> Iterator[tuple[int, RecordBatch]]:
        """Go through the batches from a position on, with the position of each."""
        file, size_bytes = self.file, self.size_bytes
        block, block_at = memoryview(b""), position
        while (position := self._past_damage(position)) < size_bytes:
            needed = _batch_bytes(block, position - block_at)
            if position - block_at + needed > len(block):
                block, block_at = memoryview(file.read_at(position, _SCAN_BYTES)), position
                needed = _batch_bytes(block, 0)
                if len(block) < needed <= size_bytes - position:
                    block = memoryview(file.read_at(position, needed))
            try:
                batch = batch_at(block, position - block_at)
            except ProtocolError as error:
                raise self._corrupt(position, error.detail) from None
            yield position, batch
            position += batch.size_bytes

    def _past_damage(self, position: int) -> int:
        for damage in self.damage:
            if damage.position <= position < damage.end_position:
                position = damage.end_position
        return position

    def _corrupt(self, position: int, detail: str) -> CorruptSegmentError:
        return CorruptSegmentError(self.path, position, detail)


def _batch_bytes(block: memoryview, at: int) -> int:
    """Return how many bytes the batch at this place says it has; a header's, if it is cut off."""
    if len(block) - at < LOG_OVERHEAD_BYTES:
        return HEADER_BYTES
    length = int.from_bytes(block[at + 8 : at + LOG_OVERHEAD_BYTES], "big", signed=True)
    return max(length + LOG_OVERHEAD_BYTES, HEADER_BYTES)
