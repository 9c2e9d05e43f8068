"""The state of a mirror on the target: topics and their copies, positions, and offset syncs.

The syncs translate offsets of the source into offsets of the target.

The state is in one compacted topic with one partition, as readable JSON:

    ["topic", NAME]                     the source topic of a copy; written by the driver
    ["position", ID, PARTITION]         the offset of the source up to which everything is copied
    ["runs", ID, PARTITION, OFFSET]     the target offsets of the records from this offset on

ID is the target's topic id: a topic that was deleted and created again starts anew. Positions and
runs are written in the transaction that writes the records. So this topic is the truth about copied
records, and Spark's checkpoint holds only plans.
"""

import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.identifiers import ZERO_UUID, uuid_to_text
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader
from ottla.wire.records.record import Record

TOPIC: Final = "topic"
POSITION: Final = "position"
RUNS: Final = "runs"


class Run(NamedTuple):
    """Records that are contiguous on both clusters."""

    source: int
    target: int
    size: int


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """A topic of the target that is a copy."""

    name: str
    ident: str
    source_name: str
    source_id: str
    path: tuple[str, ...]
    """The clusters that the records came through, the oldest first."""
    partition_count: int


@dataclass(frozen=True, slots=True)
class Position:
    """The end of the copied offsets of a partition, and the amount copied."""

    ident: str
    partition: int
    offset: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Runs:
    """The target offsets of the records of one transaction."""

    ident: str
    partition: int
    offset: int
    runs: tuple[Run, ...]
    """Empty if the note was deleted because the target has deleted these records."""


Note = MirroredTopic | Position | Runs


def ident_of(topic_id: bytes, name: str) -> str:
    """Return a topic's identity: its id, or its name if brokers have no topic ids."""
    return name if topic_id == ZERO_UUID else uuid_to_text(topic_id)


def note_of(record: Record) -> Note | None:
    """Decode a record; None for a tombstone, or for a record of another kind."""
    if record.key is None:
        return None
    kind, *key = json.loads(record.key)
    value: Any = None if record.value is None else json.loads(record.value)
    if kind == RUNS:
        ident, partition, offset = key
        return Runs(ident, partition, offset, _absolute(offset, value))
    if value is None:
        return None
    if kind == POSITION:
        ident, partition = key
        return Position(ident, partition, value["offset"], value["records"], value["bytes"])
    if kind == TOPIC:
        return _topic(key[0], value)
    return None


def _topic(name: str, value: Any) -> MirroredTopic:
    return MirroredTopic(
        name,
        value["id"],
        value["source"]["name"],
        value["source"]["id"],
        tuple(value["path"]),
        value["partitions"],
    )


def topic_note(topic: MirroredTopic) -> tuple[bytes, bytes]:
    """Encode a copy and its source topic, as key and value."""
    value = {
        "id": topic.ident,
        "source": {"name": topic.source_name, "id": topic.source_id},
        "path": list(topic.path),
        "partitions": topic.partition_count,
    }
    return _json([TOPIC, topic.name]), _json(value)


def position_note(position: Position) -> tuple[bytes, bytes]:
    """Encode a partition's position, as key and value."""
    value = {"offset": position.offset, "records": position.records, "bytes": position.bytes}
    return _json([POSITION, position.ident, position.partition]), _json(value)


def runs_note(runs: Runs) -> tuple[bytes, bytes | None]:
    """Encode runs as key and value; empty runs make a tombstone."""
    key = _json([RUNS, runs.ident, runs.partition, runs.offset])
    if not runs.runs:
        return key, None
    base = runs.runs[0].target
    rows = [[run.source - runs.offset, run.target - base, run.size] for run in runs.runs]
    return key, _json({"target": base, "runs": rows})


def joined(runs: Iterable[Run]) -> list[Run]:
    """Join adjacent runs."""
    found: list[Run] = []
    for run in runs:
        if found and _is_next(found[-1], run):
            found[-1] = found[-1]._replace(size=found[-1].size + run.size)
        else:
            found.append(run)
    return found


def _is_next(last: Run, run: Run) -> bool:
    is_next_here = last.source + last.size == run.source
    return is_next_here and last.target + last.size == run.target


def _absolute(offset: int, value: Any) -> tuple[Run, ...]:
    if value is None:
        return ()
    base = value["target"]
    return tuple(Run(offset + source, base + target, n) for source, target, n in value["runs"])


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(slots=True)
class KnownCopies:
    """The known copies, and the position of each partition."""

    topics: dict[str, MirroredTopic] = field(default_factory=dict)
    """By their names on the target."""
    positions: dict[tuple[str, int], Position] = field(default_factory=dict)

    def learn(self, note: Note) -> None:
        """Apply one note; a later note replaces an earlier one."""
        if isinstance(note, MirroredTopic):
            self.topics[note.name] = note
        elif isinstance(note, Position):
            self.positions[note.ident, note.partition] = note


@dataclass(slots=True)
class OffsetSyncsReader:
    """A process's state of the topic. It outlives connections, and has one user at a time."""

    log: CommittedTopicReader
    known: KnownCopies = field(default_factory=KnownCopies)
    also: Callable[[Note], None] | None = None
    """Also called with every record."""

    async def read_on(self, view: ClusterView) -> KnownCopies:
        """Read the topic to its end, and return its content."""
        await self.log.read_on(view, self._take)
        return self.known

    def _take(self, record: Record) -> None:
        if (note := note_of(record)) is None:
            return
        self.known.learn(note)
        if self.also is not None:
            self.also(note)


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
