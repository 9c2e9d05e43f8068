"""Translates offsets of the source into offsets of the target."""

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from ottla.pipelines.mirror.offset_syncs import Note, Runs


@dataclass(slots=True)
class PartitionMap:
    """The runs of one partition, by their offset on the source."""

    _sources: "array[int]" = field(default_factory=lambda: array("q"))
    _targets: "array[int]" = field(default_factory=lambda: array("q"))
    _counts: "array[int]" = field(default_factory=lambda: array("q"))
    notes: dict[int, int] = field(default_factory=dict)
    """By the offset that a note begins at, in order: where its records end on the target."""

    def learn(self, note: Runs) -> None:
        """Add the runs of a transaction, which come after all that are known."""
        if not note.runs:
            self.notes.pop(note.offset, None)
            return
        for run in note.runs:
            if self._sources and run.source < self._sources[-1] + self._counts[-1]:
                continue  # known already
            self._sources.append(run.source)
            self._targets.append(run.target)
            self._counts.append(run.size)
        last = note.runs[-1]
        self.notes[note.offset] = last.target + last.size

    def outdated(self, start_offset: int) -> list[int]:
        """Return the syncs, except the last, with all records before the start of the target.

        They are identified by their first offsets.
        """
        older = list(self.notes.items())[:-1]
        return [offset for offset, end in older if end <= start_offset]

    def translate(self, offset: int) -> int | None:
        """Return the target offset of the first record with this source offset or a later one.

        If it is not copied yet, the end of the last copied record: the next record will be there or
        later. None if nothing was copied.
        """
        if not self._sources:
            return None
        index = bisect_right(self._sources, offset) - 1
        if index >= 0 and offset < self._sources[index] + self._counts[index]:
            return self._targets[index] + offset - self._sources[index]
        if index + 1 < len(self._sources):
            return self._targets[index + 1]
        return self._targets[-1] + self._counts[-1]


@dataclass(slots=True)
class OffsetMaps:
    """The maps of all partitions that are copies."""

    _maps: dict[tuple[str, int], PartitionMap] = field(default_factory=dict)

    def learn(self, note: Note) -> None:
        """Apply a record about runs."""
        if isinstance(note, Runs):
            self.of(note.ident, note.partition).learn(note)

    def of(self, ident: str, partition: int) -> PartitionMap:
        """Return the map of one partition, empty if nothing is known."""
        return self._maps.setdefault((ident, partition), PartitionMap())
