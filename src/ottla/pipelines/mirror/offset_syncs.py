"""The state of a mirror on the target: topics and their copies, positions, and offset syncs.

All of it is in one compacted topic with one partition, as readable JSON:

    ["topic", NAME]                     the source topic of a copy; written by the driver
    ["position", ID, PARTITION]         the offset of the source up to which everything is copied
    ["runs", ID, PARTITION, OFFSET]     the target offsets of the records from this offset on

ID is the target's topic id: a topic that was deleted and created again starts anew. Positions and
runs are written in the transaction that writes the records. So this topic is the truth about copied
records, and Spark's checkpoint holds only plans.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.model.identifiers import ZERO_UUID, uuid_to_text
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
