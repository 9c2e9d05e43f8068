"""What a mirror's notes say, as far as they were read."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.pipelines.mirror.offset_syncs import MirroredTopic, Note, Position, note_of
from ottla.pipelines.topics.committed_topic_reader import CommittedLog
from ottla.wire.records.record import Record


@dataclass(slots=True)
class KnownCopies:
    """What the notes say by now: which topics are copies, and how far each partition is."""

    topics: dict[str, MirroredTopic] = field(default_factory=dict)
    """By their names on the target."""
    positions: dict[tuple[str, int], Position] = field(default_factory=dict)

    def learn(self, note: Note) -> None:
        """Take one note; the later one holds."""
        if isinstance(note, MirroredTopic):
            self.topics[note.name] = note
        elif isinstance(note, Position):
            self.positions[note.ident, note.partition] = note


@dataclass(slots=True)
class NotesReader:
    """What a process knows of the notes. It outlives connections, and is used by one at a time."""

    log: CommittedLog
    known: KnownCopies = field(default_factory=KnownCopies)
    also: Callable[[Note], None] | None = None
    """Who else wants to learn of every note."""

    async def read_on(self, view: ClusterView) -> KnownCopies:
        """Read the notes to their end, and return what they say."""
        await self.log.read_on(view, self._take)
        return self.known

    def _take(self, record: Record) -> None:
        if (note := note_of(record)) is None:
            return
        self.known.learn(note)
        if self.also is not None:
            self.also(note)
