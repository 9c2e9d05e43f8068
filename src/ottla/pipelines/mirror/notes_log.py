"""Reading a mirror's notes: those of transactions that were committed, and no others.

Readers of committed records wait for the oldest transaction that is open, whoever's it is. A copier
must know at once what its own former self has committed, while others are at work. So everything is
read, and the markers tell what holds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.clients.admin_offsets import OffsetAdmin, OffsetSpec
from ottla.clients.cluster_view import ClusterView
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.mirror.fetching import READ_UNCOMMITTED, RawFetcher
from ottla.pipelines.mirror.notes import MirroredTopic, Note, Position, note_of
from ottla.wire.records.batch import RecordBatch, batches
from ottla.wire.records.control import ControlType, control_type_of
from ottla.wire.records.record import Record, records_of


@dataclass(slots=True)
class NotesLog:
    """How far the notes were read, and those that are not decided yet. It outlives connections."""

    topic: str
    offset: int = 0
    _undecided: dict[int, list[Record]] = field(default_factory=dict)

    @property
    def name(self) -> TopicPartition:
        """The one partition of the topic."""
        return TopicPartition(self.topic, 0)

    async def read_on(self, view: ClusterView, learn: Callable[[Note], None]) -> None:
        """Have everything learned that was committed since, up to now, in order of the commits."""
        await view.retried(lambda: self._read_to_end(view, learn))

    async def _read_to_end(self, view: ClusterView, learn: Callable[[Note], None]) -> None:
        # What the leader tells as the end holds also after a change of leaders (KIP-207).
        ends = await OffsetAdmin(view).find({self.name: OffsetSpec.LATEST})
        end = ends[self.name].offset
        if self.offset >= end:
            return
        async with RawFetcher(view, self.name, READ_UNCOMMITTED) as fetcher:
            while self.offset < end:
                fetched = await fetcher.fetch(self.offset)
                before = self.offset
                for batch in batches(fetched.data):
                    self._take(batch, learn)
                if self.offset == before and fetched.high_watermark >= end:
                    return  # compaction has left nothing up to the end

    def _take(self, batch: RecordBatch, learn: Callable[[Note], None]) -> None:
        if batch.end_offset <= self.offset:
            return
        self.offset = batch.end_offset
        if batch.is_control:
            records = self._undecided.pop(batch.producer_id, [])
            if control_type_of(batch) is not ControlType.COMMIT:
                return
        elif batch.is_transactional:
            self._undecided.setdefault(batch.producer_id, []).extend(records_of(batch))
            return
        else:
            records = records_of(batch)
        for record in records:
            if (note := note_of(record)) is not None:
                learn(note)


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

    log: NotesLog
    known: KnownCopies = field(default_factory=KnownCopies)
    also: Callable[[Note], None] | None = None
    """Who else wants to learn of every note."""

    async def read_on(self, view: ClusterView) -> KnownCopies:
        """Read the notes to their end, and return what they say."""
        await self.log.read_on(view, self._learn)
        return self.known

    def _learn(self, note: Note) -> None:
        self.known.learn(note)
        if self.also is not None:
            self.also(note)
