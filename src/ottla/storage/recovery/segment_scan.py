"""Goes through the batches of a segment, believing nothing: CRCs, lengths and offsets must fit.

The CRC does not cover a batch's base offset and leader epoch. A wrong offset is found by those
around it; a wrong epoch is not.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import merge
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ottla.environment.disk import Disk
from ottla.model.identifiers import Offset
from ottla.storage.files.checkpoints import INT64_MAX
from ottla.storage.files.damage import Damage, DamageKind
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.segments.batch_scan import BatchScan
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import Blocks, CorruptSegmentError
from ottla.wire.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT, RecordBatch

_OLD_FRAME: Final = Struct(">qiIb")
"""How a message of before record batches begins: offset, length, CRC-32 of all behind it, magic."""
_OLD_CHECKED_FROM: Final = 16
_OLD: Final = DamageKind.OLD_FORMAT
_AT_OPENING: Final = DamageKind.AT_OPENING


class Stop(NamedTuple):
    """The end of the sound batches, and the error there; no error at the end of the segment."""

    position: int
    end_offset: Offset
    complaint: CorruptSegmentError | None


def read_through(segment: Segment, epochs: LeaderEpochs | None, scan: BatchScan) -> Stop:
    """Continue from the position of the scan; record the epoch of each batch.

    The scan advances over regular batches. A batch that begins an epoch, follows missing offsets
    or is not sound is examined here.
    """
    try:
        suspect = _go_through(segment, epochs, scan)
    except CorruptSegmentError as error:
        ends = [d.end_offset for d in segment.damage if d.end_position <= error.position]
        return Stop(error.position, Offset(max([scan.end_offset, *ends])), error)
    return suspect or Stop(segment.size_bytes, Offset(scan.end_offset), None)


def _go_through(segment: Segment, epochs: LeaderEpochs | None, scan: BatchScan) -> Stop | None:
    blocks = Blocks(segment.file, segment.size_bytes)
    suspect: Stop | None = None
    while (position := segment.past_damage(scan.position)) < segment.size_bytes:
        block, at = blocks.at(position)
        scan.position = position
        scan.go_on(block[: at + segment.sound_bytes(position)], at)
        if scan.position > position:
            suspect = None
            continue
        batch, end_offset = segment.batch_in(block, at, position), Offset(scan.end_offset)
        if suspect is not None and suspect.end_offset <= batch.base_offset < end_offset:
            return suspect
        _check(segment, position, batch, end_offset, scan.reach_max)
        suspect = _suspect(segment, position, batch, end_offset)
        if batch.partition_leader_epoch >= 0:
            scan.leader_epoch = batch.partition_leader_epoch
            if epochs is not None and epochs.latest_epoch != scan.leader_epoch:
                epochs.relearn(batch.partition_leader_epoch, batch.base_offset)
        scan.take(batch.size_bytes, batch.last_offset, batch.max_timestamp_ms)
    return None


def read_epochs(disk: Disk, path: str, segments: Iterable[Segment]) -> LeaderEpochs:
    """Rebuild a damaged epoch file from the batches of all segments."""
    epochs = LeaderEpochs(disk, path)
    for segment in segments:
        read_through(segment, epochs, segment.scan())
    # Written once, at the end: later starts read only the log above the recovery point.
    epochs.write()
    return epochs


def _suspect(
    segment: Segment, position: int, batch: RecordBatch, end_offset: Offset
) -> Stop | None:
    """Remember a batch that follows missing offsets.

    If the next batch starts at one of these offsets, this batch's base offset is wrong.
    """
    if batch.base_offset == end_offset:
        return None
    detail = f"{batch} after offset {end_offset}, and before lower ones"
    return Stop(position, end_offset, CorruptSegmentError(segment.path, position, detail))


def _check(
    segment: Segment, position: int, batch: RecordBatch, end_offset: Offset, reach_max: int
) -> None:
    """Raise CorruptSegmentError unless the batch is sound and follows the previous ones."""
    is_near = segment.offset_index.can_append(batch.last_offset)
    if not end_offset <= batch.base_offset < batch.end_offset <= reach_max or not is_near:
        raise CorruptSegmentError(segment.path, position, f"{batch} after offset {end_offset}")
    if not batch.has_valid_crc():
        raise CorruptSegmentError(segment.path, position, f"the CRC of {batch} is wrong")


def damage_at(
    segment: Segment, position: int, offset: Offset, recovery_point: Offset, limit: int
) -> Damage:
    """Return the extent of damage that begins here, before the recovery point.

    It reaches to the next sound batch. Candidates are the positions that the lengths of the batches
    and the index entries point to. Without one, the rest of the segment is lost up to the limit,
    unless the lengths show that the damaged batch was the last.
    """
    for at in merge(_chained(segment, position), _indexed(segment, position)):
        # The header first: in a large stretch of zeros there are thousands of index entries.
        if not _may_be_batch(segment, at, offset):
            continue
        with suppress(CorruptSegmentError):
            for found_at, batch in segment.batches_at(at):
                _check(segment, found_at, batch, offset, INT64_MAX)
                return Damage(position, found_at, offset, batch.base_offset, _AT_OPENING)
    is_last = next(_chained(segment, position), None) == segment.size_bytes
    end_offset = min(recovery_point, limit) if is_last else limit
    return Damage(
        position, segment.size_bytes, offset, Offset(max(offset, end_offset)), _AT_OPENING
    )


def _may_be_batch(segment: Segment, position: int, offset: Offset) -> bool:
    """Check by its first bytes alone whether a batch with a later offset may begin here."""
    begin = segment.file.read_at(position, MAGIC_AT + 1)
    if len(begin) <= MAGIC_AT or begin[MAGIC_AT] != MAGIC:
        return False
    base_offset = int.from_bytes(begin[:8], "big", signed=True)
    return offset <= base_offset and segment.offset_index.can_append(Offset(base_offset))


def old_messages_at(segment: Segment, position: int, offset: Offset, limit: int) -> Damage | None:
    """Return how far sound messages of before Kafka 0.11 reach, if one begins here.

    Kafka reads them, Ottla does not: they are fenced off as if they were damaged. Their CRCs do not
    cover their offsets, so an offset is trusted only if it is below the limit, and near.
    """
    file, at, end_offset = segment.file, position, offset
    while len(frame := file.read_at(at, _OLD_FRAME.size)) == _OLD_FRAME.size:
        message_offset, length, checksum, magic = _OLD_FRAME.unpack(frame)
        end = at + LOG_OVERHEAD_BYTES + length
        is_inside = at + _OLD_FRAME.size < end <= segment.size_bytes
        is_near = segment.offset_index.can_append(message_offset)
        can_follow = end_offset <= message_offset < limit and is_near
        if magic not in {0, 1} or not is_inside or not can_follow:
            break
        checked_from = at + _OLD_CHECKED_FROM
        if crc32(file.read_at(checked_from, end - checked_from)) != checksum:
            break
        at, end_offset = end, message_offset + 1
    return Damage(position, at, offset, end_offset, _OLD) if at > position else None


def _chained(segment: Segment, position: int) -> Iterator[int]:
    """Go from batch to batch by their lengths alone, as far as these can be right."""
    file = segment.file
    while True:
        length = file.read_at(position, LOG_OVERHEAD_BYTES)[LOG_OVERHEAD_BYTES - 4 :]
        size_bytes = int.from_bytes(length, "big") + LOG_OVERHEAD_BYTES
        if not HEADER_BYTES <= size_bytes <= segment.size_bytes - position:
            return
        position += size_bytes
        yield position


def _indexed(segment: Segment, position: int) -> Iterator[int]:
    with suppress(CorruptIndexError):
        for entry in segment.offset_index.entries():
            if position < entry.position < segment.size_bytes:
                yield entry.position


# -- by the indexes, before anything is scanned ----------------------------------------------


def is_longer(segment: Segment, end_offset: Offset) -> bool:
    """Return whether a segment continues behind the presumed log end offset."""
    try:
        position, found_end = segment.boundary(end_offset)
        if position == segment.size_bytes or found_end >= end_offset:
            return position < segment.size_bytes
        return _reaches(segment, position, end_offset, end_offset - found_end)
    except CorruptSegmentError as error:
        base_offset = segment.base_offset
        return old_messages_at(segment, error.position, base_offset, INT64_MAX) is not None


def _reaches(segment: Segment, position: int, end_offset: Offset, missing_count: int) -> bool:
    """Return whether the batch at a position is sound, and reaches beyond an earlier end.

    If it is the last batch, and spans exactly the missing offsets, its base offset is wrong: no CRC
    covers the base offset.
    """
    for at, batch in segment.batches_at(position):
        if at + batch.size_bytes < segment.size_bytes:
            return True
        has_count = batch.end_offset - batch.base_offset == missing_count
        return batch.has_valid_crc() and batch.end_offset > end_offset and not has_count
    return False
