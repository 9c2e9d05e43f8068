"""Reads a segment to see whether it is sound, in a thread, with nothing of the log's own in hand.

    on the loop    closed_segments(log), or suspect_segments(log)
    in a thread    next_damage(…): read from the target's position on, up to the first damage
    on the loop    fence_off(log, target, damage); then the next target, behind it

Bytes that were not in the page cache before are given back to the kernel after they are read.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, cast

from ottla.environment.disk import Disk, File
from ottla.model.identifiers import FIRST_OFFSET, Offset
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.files.damage import Damage, DamageKind
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.segment_scan import damage_at, old_messages_at, read_through
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import CorruptSegmentError

BLOCK_BYTES: Final = 1 << 20
"""The granularity at which page cache residency is recorded."""


class PageCache(Protocol):
    """The page cache operations; implemented by `ottla.runtime.cold_reads`."""

    def needs_thread(self, file: File, position: int, size_bytes: int) -> bool:
        """Return whether a part of a file is not in the page cache."""
        ...

    def give_back(self, file: File, position: int, size_bytes: int) -> None:
        """Let the kernel drop a part of a file."""
        ...


class Target(NamedTuple):
    """A segment as it was when reading it began, and where to begin."""

    segment: Segment
    """The log's own, which the thread leaves alone."""
    directory: str
    config: TopicConfig
    size_bytes: int
    limit: Offset
    """No offset of the segment reaches it."""
    damage: tuple[Damage, ...]
    cut_count: int
    position: int = 0
    offset: Offset = FIRST_OFFSET

    @classmethod
    def of(cls, log: PartitionLog, segment: Segment) -> "Target":
        """Capture the present state of a segment, to scan it from its beginning."""
        return cls(
            segment,
            log.directory,
            log.config,
            segment.size_bytes,
            log.segments.end_of(segment, log.end_offset),
            segment.damage,
            log.cut_count,
            0,
            segment.base_offset,
        )

    @property
    def path(self) -> str:
        """The file of the segment."""
        return self.segment.path

    def behind(self, damage: Damage) -> "Target":
        """Go on behind damage that was found, and is fenced off."""
        return self._replace(
            damage=self.segment.damage, position=damage.end_position, offset=damage.end_offset
        )


def closed_segments(log: PartitionLog) -> Iterator[Target]:
    """Yield the segments of a log that are not written any more, each as it is then."""
    for segment in list(log.segments)[:-1]:
        if is_in(log, segment):
            yield Target.of(log, segment)


def suspect_segments(log: PartitionLog) -> list[Target]:
    """Return the segments in which a read has found damage since the last call."""
    paths, log.suspect_paths = log.suspect_paths, set()
    if not paths or log.is_offline:
        return []
    return [Target.of(log, segment) for segment in log.segments if segment.path in paths]


def suspect(log: PartitionLog, offset: Offset) -> None:
    """Schedule a check of the segment with this offset."""
    log.suspect_paths.add(log.segments.since(offset)[0].path)


def suspect_by(log: PartitionLog, error: Exception) -> bool:
    """Schedule a check of the segment in an error; False if the error has none."""
    if not isinstance(error, CorruptSegmentError):
        return False
    log.suspect_paths.add(error.path)
    return True


def next_damage(
    disk: Disk, cache: PageCache, target: Target, pace: Callable[[int], None]
) -> Damage | None:
    """Return the next unrecorded damage of a segment; None if the rest is sound.

    `pace` is called with the number of bytes of every read. It may wait, or raise to abort the
    scan. FileNotFoundError if the segment is deleted meanwhile.
    """
    copy = opened_copy(_PacedFiles(disk, cache, pace), target)
    scan = copy.scan(target.limit)
    scan.position, scan.end_offset = target.position, target.offset
    position, end_offset, complaint = read_through(copy, None, scan)
    if complaint is None:
        return None
    old = old_messages_at(copy, position, end_offset, target.limit)
    if old is not None:
        return old
    found = damage_at(copy, position, end_offset, target.limit, target.limit)
    return found._replace(kind=DamageKind.IN_USE)


def opened_copy(files: OpenFiles, target: Target) -> Segment:
    """Return another object for the same segment, which reads by files of its own."""
    base_offset = target.segment.base_offset
    copy = Segment(files, target.directory, base_offset, target.config, now_ms=0)
    copy.size_bytes = target.size_bytes
    copy.damage = target.damage
    return copy


def fence_off(log: PartitionLog, target: Target, damage: Damage) -> bool:
    """Record damage that a thread has found; False if the log has changed there meanwhile."""
    segment = target.segment
    if not is_in(log, segment) or log.cut_count != target.cut_count:
        return False
    for known in segment.damage:
        if damage.position < known.end_position and known.position < damage.end_position:
            return False
    log.segments.fence_off(segment, damage)
    return True


def is_in(log: PartitionLog, segment: Segment) -> bool:
    """Return whether a segment is still one of a log that can be used."""
    return not log.is_offline and log.segments.since(segment.base_offset)[0] is segment


class _PacedFiles(OpenFiles):
    """The file of one segment, read at a pace."""

    __slots__ = ("_cache", "_pace")

    def __init__(self, disk: Disk, cache: PageCache, pace: Callable[[int], None]) -> None:
        super().__init__(disk)
        self._cache = cache
        self._pace = pace

    def get(self, path: str) -> File:
        known = self._file_by_path.get(path)
        if known is None:
            file = self.disk.open_file(path)
            # Only its reads are used: a copy of a segment is never written to.
            known = cast("File", _PacedFile(file, self._cache, self._pace))
            self._file_by_path[path] = known
        return known


class _PacedFile:
    """Reads a file at a limited rate, and leaves the page cache as it was.

    Cold blocks are determined before the first read, because the kernel reads ahead.
    """

    def __init__(self, file: File, cache: PageCache, pace: Callable[[int], None]) -> None:
        self._file = file
        self._cache = cache
        self._pace = pace
        size_bytes = file.size_bytes()
        self._cold_blocks = {
            position // BLOCK_BYTES
            for position in range(0, size_bytes, BLOCK_BYTES)
            if cache.needs_thread(file, position, min(BLOCK_BYTES, size_bytes - position))
        }

    def read_at(self, position: int, size_bytes: int) -> bytes:
        data = self._file.read_at(position, size_bytes)
        self._pace(len(data))
        for block in range(position // BLOCK_BYTES, (position + len(data)) // BLOCK_BYTES + 1):
            if block in self._cold_blocks:
                start = max(position, block * BLOCK_BYTES)
                end = min(position + len(data), (block + 1) * BLOCK_BYTES)
                self._cache.give_back(self._file, start, end - start)
        return data

    def size_bytes(self) -> int:
        return self._file.size_bytes()
