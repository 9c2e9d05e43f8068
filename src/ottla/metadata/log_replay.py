"""The images of a replica of the metadata log, batch by batch.

    apply: append or read a batch          commit: the high watermark has passed it
      |                                      |
    replayed_image, for decisions          image, to be published

A controller applies its decisions before they are committed, and decides on. When it loses its
office, `go_back` drops uncommitted decisions. A metadata transaction (KIP-868) takes effect at its
end: `image` is never inside of one, and an aborted one leaves nothing.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.metadata.difference import records_between
from ottla.metadata.image import ClusterImage
from ottla.metadata.record_frames import metadata_records_of
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    NoOpRecord,
)
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.model.identifiers import Offset
from ottla.wire.records.batch import RecordBatch


class ImageChange(NamedTuple):
    """The next image to publish, and the records that lead to it; perhaps only its end is new."""

    image: ClusterImage
    records: tuple[MetadataRecord, ...]


@dataclass(frozen=True, slots=True)
class _State:
    """The images after some batch."""

    end_offset: Offset
    newest: ClusterImage
    """With the records of an open transaction."""
    published: ClusterImage
    """Without them."""
    transaction_offset: Offset | None = None
    """Where the open transaction began."""
    transaction_records: tuple[tuple[MetadataRecord, ...], ...] = ()
    """The records of the open transaction, by batch."""


class MetadataLogReplay:
    """Turns batches into images; UnreplayableRecordError if they do not follow from each other.

    A failed call changes nothing: the process has to stop, because its image is not the log's.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._committed = _State(image.end_offset, image, image)
        self._uncommitted: deque[_State] = deque()

    @property
    def image(self) -> ClusterImage:
        """The newest committed image outside of metadata transactions."""
        return self._committed.published

    @property
    def replayed_image(self) -> ClusterImage:
        """The image of everything applied, with an open transaction: decisions go by it."""
        return self._newest.newest

    @property
    def end_offset(self) -> Offset:
        """The first offset that is not applied."""
        return self._newest.end_offset

    @property
    def committed_offset(self) -> Offset:
        """The applied records before this offset are known as committed."""
        return self._committed.end_offset

    @property
    def transaction_offset(self) -> Offset | None:
        """Where the open metadata transaction began, if there is one."""
        return self._newest.transaction_offset

    @property
    def _newest(self) -> _State:
        return self._uncommitted[-1] if self._uncommitted else self._committed

    # -- from the log ---------------------------------------------------------------------------

    def apply(self, records: Sequence[MetadataRecord], end_offset: Offset) -> list[ImageChange]:
        """Apply records up to an offset; return the changes to publish once that is committed.

        A metadata transaction is one change, at its end. A change without records has a new end
        offset.
        """
        steps = _Steps(self._newest)
        for record in records:
            steps.take(record)
        after = steps.finish(end_offset)
        self._uncommitted.append(after)
        return steps.changes

    def apply_batch(self, batch: RecordBatch) -> list[ImageChange]:
        """Apply a batch of the log; control batches only move the end.

        ProtocolError for bytes that are no records.
        """
        assert batch.base_offset == self.end_offset, (batch.base_offset, self.end_offset)
        return self.apply([] if batch.is_control else metadata_records_of(batch), batch.end_offset)

    def catch_up(self, batches: Sequence[RecordBatch]) -> list[ImageChange]:
        """Apply many committed batches at once, as fast as a single one of that size."""
        assert not self._uncommitted, "decisions are committed first"
        assert batches[0].base_offset == self.end_offset, (batches[0].base_offset, self.end_offset)
        records = [
            one for batch in batches if not batch.is_control for one in metadata_records_of(batch)
        ]
        changes = self.apply(records, batches[-1].end_offset)
        self.commit(batches[-1].end_offset)
        return changes

    def load(self, records: Iterable[MetadataRecord], end_offset: Offset) -> ImageChange:
        """Replace everything by a committed snapshot.

        The change also removes the metadata that the snapshot does not have.
        """
        before = self._committed.published
        empty = ClusterImage(before.cluster_id)
        given = tuple(records)
        image = replay(empty, given, end_offset)
        is_first = replace(before, end_offset=empty.end_offset) == empty
        changes = given if is_first else tuple(records_between(before, image))
        self._uncommitted.clear()
        self._committed = _State(end_offset, image, image)
        return ImageChange(image, changes)

    # -- commits -------------------------------------------------------------------------------

    def commit(self, high_watermark: Offset) -> None:
        """Take note that the log is committed up to here: there is no way back before it."""
        while self._uncommitted and self._uncommitted[0].end_offset <= high_watermark:
            self._committed = self._uncommitted.popleft()

    def go_back(self) -> None:
        """Drop everything that is not committed: the next leader may replace it in the log."""
        self._uncommitted.clear()


class _Steps:
    """The way from one state to the next, through a batch."""

    def __init__(self, state: _State) -> None:
        self.changes: list[ImageChange] = []
        self._newest = state.newest
        self._published = state.published
        self._transaction_offset = state.transaction_offset
        self._transaction_records = list(state.transaction_records)
        self._records: list[MetadataRecord] = []
        """Records to be replayed, in one step, before a transaction begins or ends."""
        self._offset = state.end_offset

    def take(self, record: MetadataRecord) -> None:
        """Go on by a record."""
        if isinstance(record, BeginTransactionRecord):
            self._begin()
        self._offset = Offset(self._offset + 1)
        if isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            self._end(record)
        elif not isinstance(record, BeginTransactionRecord | NoOpRecord):
            self._records.append(record)

    def finish(self, end_offset: Offset) -> _State:
        """Return the state at the end of the batch."""
        self._offset = end_offset
        if self._records or self._newest.end_offset != end_offset:
            self._replay()
        return _State(
            end_offset,
            self._newest,
            self._published,
            self._transaction_offset,
            tuple(self._transaction_records),
        )

    def _begin(self) -> None:
        if self._transaction_offset is not None:
            raise UnreplayableRecordError(
                f"a metadata transaction begins at offset {self._offset} inside a transaction"
                f" that began at {self._transaction_offset}"
            )
        if self._records:
            self._replay()
        self._transaction_offset = self._offset

    def _end(self, record: EndTransactionRecord | AbortTransactionRecord) -> None:
        if self._transaction_offset is None:
            raise UnreplayableRecordError(
                f"no metadata transaction is open at offset {self._offset - 1}, where one ends"
            )
        self._replay()
        records = tuple(one for some in self._transaction_records for one in some)
        self._transaction_offset, self._transaction_records = None, []
        if isinstance(record, AbortTransactionRecord):
            self._newest, records = self._published, ()
        self._publish(records)

    def _replay(self) -> None:
        records, self._records = tuple(self._records), []
        self._newest = replay(self._newest, records, self._offset)
        if self._transaction_offset is None:
            self._publish(records)
        elif records:
            self._transaction_records.append(records)

    def _publish(self, records: tuple[MetadataRecord, ...]) -> None:
        self._published = self._newest = replace(self._newest, end_offset=self._offset)
        self.changes.append(ImageChange(self._published, records))
