"""Opens a log: reads almost nothing after a clean shutdown, and recovers it after a crash.

Data below the recovery point was durable, so nothing there may be missing. Data above it may be
torn anywhere, and is truncated at the first byte that is not part of a sound batch. Damage *below*
the point means that the disk has lost durable data. It is reported and fenced off: never served,
and never a reason to truncate the good data behind it.

An offset gap between two segments is normal in a log written by Kafka, and data loss in Ottla's.
Ottla's segments begin at the end of the previous one, and compaction keeps that end. So after a
power cut, a gap above the recovery point means that a segment lost its tail. Kafka's compaction may
remove the end of a segment, and a follower of Kafka begins a segment with the next batch it gets.
If Kafka is known to have written the log last, a gap is closed once, by a segment that holds only
an empty batch.
"""

import posixpath
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.model.identifiers import FIRST_OFFSET, LeaderEpoch, Offset
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.compaction.batch_cleaner import placeholder
from ottla.storage.compaction.segment_swap import finish_swaps
from ottla.storage.files.checkpoints import INT64_MAX, CorruptCheckpointError, write_atomically
from ottla.storage.files.damage import DAMAGE_SUFFIX, Damage, damage_path, read_damage, write_damage
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.indexes.sparse_index import RELATIVE_OFFSET_MAX, CorruptIndexError
from ottla.storage.indexes.time_index import NO_TIMESTAMP_MS
from ottla.storage.log.leader_epochs import LEADER_EPOCH_FILE, NO_EPOCH, LeaderEpochs
from ottla.storage.log.log import LogState, PartitionLog
from ottla.storage.log.retention import greatest_time_ms
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery.segment_scan import (
    damage_at,
    is_longer,
    old_messages_at,
    read_epochs,
    read_through,
)
from ottla.storage.segments.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    segment_name,
)
from ottla.storage.segments.segment_batches import CorruptSegmentError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record

PREALLOCATED_BYTES_MIN: Final = 1 << 20
"""Kafka's active index has ten times as much; a power cut leaves fewer zeros in one of ours."""

_SEGMENT: Final = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.damage)")


def check_present(segment: Segment, suffixes: set[str]) -> None:
    """See that a segment with these files has its indexes."""
    if segment.size_bytes and not {OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX} <= suffixes:
        raise CorruptIndexError(segment.path, "an index of it is missing")


def check_nothing(_segment: Segment, _end_offset: Offset) -> None:
    """Trust a closed segment: a search detects a corrupt index."""


def check_active(segment: Segment, end_offset: Offset) -> object:
    """Run the queries of an append, and check that the log ends where it was closed."""
    if segment.end_offset() != end_offset:
        raise CorruptSegmentError(segment.path, segment.size_bytes, f"no end at {end_offset}")
    return segment.greatest_timestamp, segment.aborted_index.last_offset


def check_indexes(segment: Segment, end_offset: Offset) -> None:
    """Read all indexes of a segment that ends here."""
    segment.offset_index.check(segment.size_bytes)
    segment.time_index.check(end_offset)
    segment.aborted_index.check()


def is_kafkas(active: Segment) -> bool:
    """Return whether Kafka wrote the last segment of a log, and was not stopped properly.

    A smaller index is Kafka's if it has the size that it may grow to, most of it zeros: one of ours
    has that size only when it is full, and then it is not the active one for long.
    """
    index = active.offset_index
    with suppress(CorruptIndexError):
        padding_bytes = index.padding_bytes
        file_bytes = index.entry_count * index.ENTRY_BYTES + padding_bytes
        is_preallocated = file_bytes == index.entries_max * index.ENTRY_BYTES
        is_empty = 0 < file_bytes <= 2 * padding_bytes
        return padding_bytes >= PREALLOCATED_BYTES_MIN or (is_preallocated and is_empty)
    return False


def close_gap(
    disk: Disk, directory: str, offset: Offset, end_offset: Offset, leader_epoch: LeaderEpoch | None
) -> None:
    """Create the segment that reaches from one offset to the other, as a whole and durably."""
    content = memoryview(build_batch([Record(0, NO_TIMESTAMP_MS, None, None)]))
    batch = placeholder(RecordBatch(content))
    batch.restamp(Offset(end_offset - 1), NO_EPOCH if leader_epoch is None else leader_epoch)
    path = posixpath.join(directory, segment_name(offset) + LOG_SUFFIX)
    write_atomically(disk, path, bytes(batch.raw), suffix=TEMPORARY_SUFFIX)


@dataclass(slots=True)
class Findings:
    """Problems found while opening a log, as sentences for the operator."""

    notes: list[str] = field(default_factory=list)
    cut_bytes: int = 0
    damage: list[Damage] = field(default_factory=list)


class OpenedLog(NamedTuple):
    """A log, and the problems found while opening it."""

    log: PartitionLog
    findings: Findings


def open_log(  # noqa: PLR0913 - its directory, and its state in checkpoints
    files: OpenFiles,
    directory: str,
    config: TopicConfig,
    now_ms: int,
    *,
    is_clean: bool,
    keeps_gaps: bool = False,
    recovery_point: Offset = FIRST_OFFSET,
    log_start_offset: Offset = FIRST_OFFSET,
    on_recovery_point_lowered: Callable[[Offset], None] = lambda _: None,
) -> OpenedLog:
    """Open the log in a directory; create it if it is missing.

    `is_clean`: the broker closed every log before it stopped. `keeps_gaps`: it did so before a
    start that was interrupted. A crash can interrupt this method at any point; the next start runs
    it again.
    """
    opening = _Opening(files, directory, config, now_ms)
    state = opening.run(recovery_point, log_start_offset, is_clean=is_clean, keeps_gaps=keeps_gaps)
    log = PartitionLog(files, directory, config, state, on_recovery_point_lowered)
    opening.reload_producers(log)
    opening.keep_rebuilt(log)
    log.producers.snapshots.remove_strays([segment.base_offset for segment in log.segments])
    return OpenedLog(log, opening.findings)


class _Opening:
    """One run of open_log."""

    def __init__(self, files: OpenFiles, directory: str, config: TopicConfig, now_ms: int) -> None:
        self.findings = Findings()
        self._files = files
        self._disk = files.disk
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._keeps_gaps = False
        self._bases: list[Offset] = []
        self._closing_gaps: list[Segment] = []
        self._is_durable_by_rebuilt: dict[Segment, bool] = {}
        self._with_unread_damage: list[Segment] = []

    @property
    def rebuilt_from(self) -> Offset | None:
        """Where the first segment begins that has lost its index of aborted transactions."""
        return min((s.base_offset for s in self._is_durable_by_rebuilt), default=None)

    def run(
        self, recovery_point: Offset, log_start_offset: Offset, *, is_clean: bool, keeps_gaps: bool
    ) -> LogState:
        self._keeps_gaps = keeps_gaps
        self._disk.make_directory(self._directory)
        suffixes_by_base = self._sweep(finish_swaps(self._disk, self._directory))
        if not suffixes_by_base:  # nothing in the directory is durable before its own name is
            self._disk.sync_directory(posixpath.dirname(self._directory))
        self._bases = sorted(suffixes_by_base)
        segments = [self._open_segment(base) for base in self._bases]
        for segment in segments:
            segment.indexes.note_files(suffixes_by_base[segment.base_offset])
            self._read_damage(segment, suffixes_by_base[segment.base_offset])
        epochs = self._open_epochs(segments)
        if is_clean and segments and is_longer(segments[-1], recovery_point):
            self._note(f"{segments[-1].path} goes on behind {recovery_point}, its recovery point")
            is_clean, self._keeps_gaps = False, True
        for segment, end_offset in _with_ends(segments, recovery_point):
            suffixes = suffixes_by_base[segment.base_offset]
            if is_clean:
                check = check_active if segment is segments[-1] else check_nothing
                self._mend(segment, end_offset, suffixes, check)
            elif end_offset < recovery_point:
                self._mend(segment, end_offset, suffixes, check_indexes)
        if not is_clean:
            segments = self._recover_above(segments, epochs, recovery_point)
            # The segment that closes a gap replaces an empty segment with the same base offset.
            by_base = {one.base_offset: one for one in [*segments, *self._closing_gaps]}
            segments = [by_base[base] for base in sorted(by_base)]
        if not segments or segments[-1].end_offset() < log_start_offset:
            segments = [self._restart(segments, epochs, log_start_offset)]
        end_offset = segments[-1].end_offset()
        log_start_offset = max(log_start_offset, segments[0].base_offset)
        # At once after a clean stop: the next opening may not look at the batches.
        (epochs.truncate_from_end if is_clean else epochs.forget_from)(end_offset)
        epochs.truncate_from_start(segments[0].base_offset)
        return LogState(
            segments=segments,
            epochs=epochs,
            producers=ProducerStates(self._disk, self._directory),
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            recovery_point=min(recovery_point, end_offset),
            is_durable=is_clean and not self.findings.notes,
        )

    def reload_producers(self, log: PartitionLog) -> None:
        """Load the producer state, and fence off damage that the replay finds."""
        ends = dict(_with_ends(list(log.segments), log.end_offset))
        while True:
            try:
                log.reload_producers(rebuilt_from=self.rebuilt_from)
            except CorruptSegmentError as error:
                (segment,) = [one for one in log.segments if one.path == error.path]
                if segment in self._is_durable_by_rebuilt:  # it was sound a moment ago
                    raise
                end_offset = ends[segment]
                self._note(f"{error}: made anew")
                self._recover(segment, None, end_offset, end_offset, reach_max=end_offset)
                self._is_durable_by_rebuilt[segment] = True
            else:
                return

    def keep_rebuilt(self, log: PartitionLog) -> None:
        """Give the indexes that were rebuilt their names, now that all of them are complete."""
        for segment, is_durable in self._is_durable_by_rebuilt.items():
            segment.keep_rebuilt(sync=is_durable, is_active=segment is log.segments.active)

    # -- files in the directory -----------------------------------------------------------------

    def _sweep(self, names: Iterable[str]) -> dict[Offset, set[str]]:
        """Remove files of an interrupted deletion; return the files of each segment."""
        suffixes_by_base: dict[Offset, set[str]] = {}
        for name in names:
            if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                self._disk.remove(self._path(name))
            elif match := _SEGMENT.fullmatch(name):
                suffixes_by_base.setdefault(Offset(int(match[1])), set()).add(match[2])
        for base_offset in [b for b, found in suffixes_by_base.items() if LOG_SUFFIX not in found]:
            for suffix in suffixes_by_base.pop(base_offset):
                self._disk.remove(self._path(segment_name(base_offset) + suffix))
        return suffixes_by_base

    def _open_segment(self, base_offset: Offset) -> Segment:
        return Segment.open(self._files, self._directory, base_offset, self._config, self._now_ms)

    def _read_damage(self, segment: Segment, suffixes: set[str]) -> None:
        """Load the recorded damage of a segment; if the file is unreadable, scan again."""
        if DAMAGE_SUFFIX not in suffixes:
            return
        try:
            noted = read_damage(self._disk, damage_path(segment.path))
        except CorruptCheckpointError as error:
            self._note(f"{error}: the segment is gone through again")
            self._with_unread_damage.append(segment)
            suffixes.discard(OFFSET_INDEX_SUFFIX)
        else:
            # A crash after a truncation may have left a stale damage file.
            segment.damage = tuple(d for d in noted if d.position < segment.size_bytes)
            self.findings.damage += segment.damage

    def _open_epochs(self, segments: list[Segment]) -> LeaderEpochs:
        path = self._path(LEADER_EPOCH_FILE)
        try:
            return LeaderEpochs.load(self._disk, path)
        except CorruptCheckpointError as error:
            self._note(f"{error}: made anew")
        return read_epochs(self._disk, path, segments)

    def _mend(
        self,
        segment: Segment,
        end_offset: Offset,
        suffixes: set[str],
        check: Callable[[Segment, Offset], object],
    ) -> None:
        """Rebuild indexes that are missing, or that fail the check."""
        try:
            check_present(segment, suffixes)
            check(segment, end_offset)
        except (CorruptIndexError, CorruptSegmentError) as error:
            self._note(f"{error}: made anew")
            self._recover(segment, None, end_offset, end_offset, reach_max=end_offset)
            self._is_durable_by_rebuilt[segment] = True

    def _restart(
        self, segments: list[Segment], epochs: LeaderEpochs, base_offset: Offset
    ) -> Segment:
        """Begin an empty log, in place of a log that ends before its start."""
        for segment in reversed(segments):
            self._note(f"{segment.path} ends before the log's start, {base_offset}")
            segment.remove()
        self._is_durable_by_rebuilt.clear()
        epochs.truncate_from_end(FIRST_OFFSET)
        segment = Segment.create(
            self._files, self._directory, base_offset, self._config, self._now_ms
        )
        self._disk.sync_directory(self._directory)
        return segment

    # -- after a crash --------------------------------------------------------------------------

    def _recover_above(
        self, segments: list[Segment], epochs: LeaderEpochs, recovery_point: Offset
    ) -> list[Segment]:
        """Scan every batch from the segment of the recovery point on; truncate the torn tail.

        A segment that ends at the recovery point is scanned, too: its indexes may not be durable.
        """
        first = max(bisect_left(self._bases, recovery_point) - 1, 0)
        if segments:
            # They come back from the batches: a torn tail may have had epochs that are lost now.
            epochs.forget_from(self._bases[first])
            self._keeps_gaps |= is_kafkas(segments[-1])
        end_offset = FIRST_OFFSET
        for number, (segment, limit) in enumerate(_with_ends(segments, recovery_point)):
            if number < first:
                continue
            if number > first and segment.base_offset != end_offset:
                if not self._goes_on(segment, end_offset, recovery_point):
                    return self._drop(segments, number, f"does not begin at offset {end_offset}")
                if self._keeps_gaps and segment.base_offset - end_offset <= RELATIVE_OFFSET_MAX:
                    self._close_gap(segments[number - 1], end_offset, segment.base_offset, epochs)
            is_whole, end_offset = self._recover(segment, epochs, recovery_point, limit)
            self._is_durable_by_rebuilt[segment] = False
            if not is_whole:
                return self._drop(segments, number + 1, "lies behind a torn tail")
        if end_offset < recovery_point:
            self._note(f"the log ends at {end_offset}, and had been durable to {recovery_point}")
        return segments

    def _goes_on(self, segment: Segment, end_offset: Offset, recovery_point: Offset) -> bool:
        """Return whether a segment may follow a segment that ends at another offset.

        A gap below the recovery point may be data loss, but not by a power cut: later segments
        stay.
        """
        distance = segment.base_offset - end_offset
        if distance < 0:
            return False
        if distance > RELATIVE_OFFSET_MAX:  # more than a segment can have lost
            return True
        if segment.base_offset > recovery_point:
            return self._keeps_gaps
        if not self._config.is_compacted:
            self._note(f"nothing is left of offsets {end_offset} to {segment.base_offset}")
        return True

    def _close_gap(
        self, before: Segment, offset: Offset, end_offset: Offset, epochs: LeaderEpochs
    ) -> None:
        """Fill the gap behind a segment with another, which has the same age for retention."""
        time_ms = greatest_time_ms(before)
        close_gap(self._disk, self._directory, offset, end_offset, epochs.latest_epoch)
        if before.base_offset == offset:  # it was empty, and is replaced
            self._files.forget(before.path)
            del self._is_durable_by_rebuilt[before]
        segment = self._open_segment(offset)
        segment.file.set_modified_ms(time_ms)
        self._recover(segment, epochs, offset, end_offset)
        self._is_durable_by_rebuilt[segment] = False
        self._closing_gaps.append(segment)

    def _recover(
        self,
        segment: Segment,
        epochs: LeaderEpochs | None,
        recovery_point: Offset,
        limit: Offset,
        reach_max: int = INT64_MAX,
    ) -> tuple[bool, Offset]:
        """Scan a segment, and rebuild its indexes.

        A lost tail counts as lost up to the limit. A batch that reaches beyond reach_max is not
        trusted. Return whether the segment is intact, and its end offset.
        """
        # Without their names, so that a crash in the middle leaves no half-built index to trust.
        segment.indexes.unname()
        scan, is_exact = segment.scan(reach_max), True
        while True:
            position, end_offset, complaint = read_through(segment, epochs, scan)
            is_exact &= scan.position == position  # else it has scanned an invalid batch
            if complaint is None:
                break
            damage = old_messages_at(segment, position, end_offset, self._next_base(segment))
            if damage is not None:
                self._note(f"not served, because it is of before Kafka 0.11: {complaint}")
            elif end_offset >= recovery_point:
                break
            else:
                self._note(f"damaged below its recovery point {recovery_point}: {complaint}")
                damage = damage_at(segment, position, end_offset, recovery_point, limit)
            segment.fence_off(damage)
            self.findings.damage.append(damage)
            scan.position, scan.end_offset = damage.end_position, damage.end_offset
        segment.indexes.drop()
        if complaint is not None:
            self._note(f"cut at offset {end_offset}: {complaint}")
            self.findings.cut_bytes += segment.size_bytes - position
            segment.cut(position)
        if is_exact:
            segment.take_indexes(scan)
        else:
            segment.rebuild_indexes()
        if segment in self._with_unread_damage:
            write_damage(self._disk, damage_path(segment.path), segment.damage)
        return complaint is None, segment.end_offset()

    def _next_base(self, segment: Segment) -> int:
        """Return the base offset of the next segment, the upper bound of offsets here."""
        after = bisect_right(self._bases, segment.base_offset)
        return self._bases[after] if after < len(self._bases) else INT64_MAX

    def _drop(self, segments: list[Segment], count: int, reason: str) -> list[Segment]:
        """Keep the first segments; the others hold nothing that can be trusted."""
        for segment in reversed(segments[count:]):
            self.findings.cut_bytes += segment.size_bytes
            self._note(f"{segment.path} {reason}")
            segment.remove()
        self._disk.sync_directory(self._directory)
        return segments[:count]

    def _note(self, sentence: str) -> None:
        self.findings.notes.append(sentence)

    def _path(self, name: str) -> str:
        return posixpath.join(self._directory, name)


def _with_ends(segments: list[Segment], end_offset: Offset) -> Iterator[tuple[Segment, Offset]]:
    """Pair each segment with the base offset of the next, and the last with the log end."""
    ends = [segment.base_offset for segment in segments[1:]]
    yield from zip(segments, [*ends, end_offset], strict=False)
