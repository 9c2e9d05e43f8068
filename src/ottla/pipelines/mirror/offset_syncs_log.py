"""The content of a mirror's offset syncs topic, as far as it was read."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.pipelines.mirror.offset_syncs import MirroredTopic, Note, Position, note_of
from ottla.pipelines.topics.committed_topic_reader import CommittedLog
from ottla.wire.records.record import Record


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
class NotesReader:
    """A process's state of the topic. It outlives connections, and has one user at a time."""

    log: CommittedLog
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
