"""The expected contents of a log, as a plain list of batches: the oracle of test_log."""

from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.log.log import PartitionLog
from ottla.storage.producers.producer_snapshot import ProducerEntry
from tests.crashes.invariants import as_batch, check_epochs, check_indexes, end_of, replayed
from tests.log_building import batches_of


class LogModel:
    """All batches that were ever appended and not truncated, and the log start offset.

    `forgotten_to` is the earliest offset from which the log may have computed its producer state
    last. State from before this offset is optional.
    """

    def __init__(self) -> None:
        self.past: list[bytes] = []
        self.start = 0
        self.end = 0
        self.durable_end = 0
        self.forgotten_to = 0
        self.is_compacted = False

    def append(self, raw: bytes) -> None:
        self.past.append(raw)
        self.end = end_of(self.past)

    def present(self) -> list[bytes]:
        """Return the readable batches, from the batch that holds the log start offset."""
        return [raw for raw in self.past if as_batch(raw).end_offset > self.start]

    def cut(self, end_offset: int) -> None:
        """Drop all batches that extend past this offset."""
        self.past = [raw for raw in self.past if as_batch(raw).end_offset <= end_offset]
        self.end = max(end_of(self.past), self.start)
        self.durable_end = min(self.durable_end, self.end)
        self.forgotten_to = max(self.forgotten_to, self.start)

    def begin_anew(self, offset: int) -> None:
        self.past = []
        self.start = self.end = self.durable_end = self.forgotten_to = offset

    def reloaded(self) -> None:
        self.forgotten_to = max(self.forgotten_to, self.start)

    def readable(self, offset: int, end_offset: int) -> list[bytes]:
        """Return the batches from the batch that holds `offset`, up to `end_offset`."""
        found = [raw for raw in self.present() if as_batch(raw).end_offset > offset]
        kept = []
        for raw in found:
            if as_batch(raw).end_offset > end_offset:
                break
            kept.append(raw)
        return kept


def check_known(log: PartitionLog, model: LogModel) -> None:
    """Check all state that is derived from the batches; expensive."""
    check_indexes(log)
    if model.is_compacted:
        # Epochs, transactions and producers may be known without any remaining batch.
        for batch in batches_of(log):
            assert log.epochs.epoch_for(batch.base_offset) == batch.partition_leader_epoch
        return
    check_epochs(log)
    states, aborted = replayed(model.past)
    known = {entry.producer_id: entry for entry in log.producers.producers()}
    for entry in states.producers():
        _check_producer(entry, known.pop(entry.producer_id, None), model)
    assert not known, "producers that never wrote"
    _check_aborted(log, aborted, max(model.forgotten_to, log.log_start_offset))


def _check_aborted(
    log: PartitionLog, aborted: list[AbortedTransaction], remembered_from: int
) -> None:
    """Check aborted transactions; before `remembered_from` the first offset may differ."""
    found = log.aborted_transactions(log.log_start_offset, log.end_offset)
    by_end = {(one.producer_id, one.last_offset): one.first_offset for one in aborted}
    for one in found:
        first_offset = by_end.pop((one.producer_id, one.last_offset))
        assert one.first_offset == first_offset or first_offset < remembered_from
    assert all(first_offset < remembered_from for first_offset in by_end.values())


def _check_producer(expected: ProducerEntry, found: ProducerEntry | None, model: LogModel) -> None:
    batches = [as_batch(raw) for raw in model.past]
    own = [batch for batch in batches if batch.producer_id == expected.producer_id]
    if own[0].base_offset >= model.forgotten_to:
        assert found == expected
    elif expected.last_offset >= max(model.forgotten_to, model.start):
        assert found is not None
        assert found[:6] == expected[:6]
