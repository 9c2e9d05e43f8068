"""The state of transactions during a compaction, from the beginning of the log.

The records of an aborted transaction are removed at once: no read_committed consumer ever saw them.
A marker stays as long as a batch of its transaction exists, even an empty one, because without it
that batch would belong to a transaction that never ends. Then it stays for as long as a tombstone
does: a reader that has seen the records must see their end.
"""

from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

from ottla.environment.disk import Disk
from ottla.storage.indexes.aborted_index import ENTRY, ENTRY_BYTES, VERSION, AbortedTransaction
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.control import ControlType, control_type_of


class SeenMarker(NamedTuple):
    """The meaning of a control batch for compaction."""

    is_needless: bool
    """Whether no batch of its transaction is left."""
    aborted: AbortedTransaction | None = None
    """The entry of the transaction index that must be kept."""


class TransactionTracker:
    """Follows the compaction through a log: sees every batch, in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()

    def see_batch(self, batch: RecordBatch) -> bool:
        """Return whether a batch of records belongs to an aborted transaction."""
        if not batch.is_transactional:
            return False
        self._advance(batch.last_offset)
        self._with_batches.add(batch.producer_id)
        aborted = self._aborted.get(batch.producer_id)
        return aborted is not None and batch.last_offset < aborted.last_offset

    def see_marker(self, batch: RecordBatch) -> SeenMarker:
        """Return the state of the transaction that this control batch ends.

        Other control batches, and unreadable ones, are never removable.
        """
        if batch.record_count == 0:
            return SeenMarker(is_needless=True)
        self._advance(batch.last_offset)
        producer_id = batch.producer_id
        match _control_type(batch):
            case ControlType.ABORT:
                aborted = self._aborted.pop(producer_id, None)
            case ControlType.COMMIT:
                aborted = None
            case _:
                return SeenMarker(is_needless=False)
        if producer_id not in self._with_batches:
            return SeenMarker(is_needless=True)
        self._with_batches.remove(producer_id)
        return SeenMarker(is_needless=False, aborted=aborted)

    def _advance(self, offset: int) -> None:
        """Apply the beginnings of transactions up to this offset."""
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            self._aborted[aborted.producer_id] = aborted


def read_aborted(disk: Disk, path: str) -> list[AbortedTransaction]:
    """Read the aborted transactions of a closed segment; a missing file is none.

    Unlike AbortedIndex this maps nothing: another thread may remove the segment meanwhile.
    """
    try:
        file = disk.open_file(path)
    except FileNotFoundError:
        return []
    with closing(file):
        content = file.read_at(0, file.size_bytes())
    rows = list(ENTRY.iter_unpack(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES]))
    if len(content) % ENTRY_BYTES or any(version != VERSION for version, *_ in rows):
        raise CorruptIndexError(path, f"{len(content)} bytes are not an index of transactions")
    return [AbortedTransaction(*fields) for _, *fields in rows]


def _control_type(batch: RecordBatch) -> ControlType:
    try:
        return control_type_of(batch)
    except ProtocolError:
        return ControlType.UNKNOWN
