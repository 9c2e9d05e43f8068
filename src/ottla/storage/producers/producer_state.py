"""The producer state of a log: the next sequence of each producer, and its open transaction.

`check` decides whether a batch may be appended and changes nothing; `apply` records an appended
batch and refuses nothing. So a replica that replays the log, or a restarted broker, reaches the
same state as the leader that wrote it.

The last five batches of each producer are known, as many as it may have in flight, so that a
duplicate gets the offset of the original in the response. Snapshots, in Kafka's format, keep only
the last batch. After a restart the four before it are known only if they were replayed: otherwise
their duplicates fail with OUT_OF_ORDER_SEQUENCE_NUMBER. They are never appended twice.
"""

from heapq import heappop, heappush
from typing import NamedTuple

from ottla.environment.disk import Disk
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset, ProducerId
from ottla.storage.producers.producer import AppendedBatch, Producer
from ottla.storage.producers.producer_snapshot import (
    CorruptSnapshotError,
    ProducerEntry,
    ProducerSnapshots,
)
from ottla.storage.producers.transaction_terms import (
    ANY_TRANSACTION,
    TransactionTerms,
    Verification,
)
from ottla.wire.records.batch import NO_PRODUCER_ID, TRANSACTIONAL_BIT, RecordBatch
from ottla.wire.records.control import ControlType, EndTxnMarker, end_txn_marker_of

PRODUCERS_MAX = 100_000
"""Per log. Above it, the producers that were idle longest are removed, as if expired."""
PRODUCER_ID_EXPIRATION_MS = 86_400_000

_FORGOTTEN_PART = 10  # a tenth at once, as finding the longest idle ones scans all of them


class CompletedTransaction(NamedTuple):
    """A transaction with its marker in the log, at last_offset."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool


class Reloaded(NamedTuple):
    """From where the log has to be replayed, and which snapshots would have spared more of it."""

    replay_from: Offset
    damaged: list[CorruptSnapshotError]


# Shared by all logs without producers, and never written to.
_NO_PRODUCERS: dict[ProducerId, Producer] = {}
_NONE_OPEN: dict[Offset, ProducerId] = {}
_NONE_DECIDED: list[tuple[Offset, Offset]] = []
_NONE_VERIFIED: dict[ProducerId, Verification] = {}


class ProducerStates:
    """The producers of one log, with their snapshots in the log's directory.

    Costs almost nothing while no producer has an id. A transaction is *open* until its marker is in
    the log, and *unstable* until the marker is replicated.
    """

    __slots__ = (
        "_acknowledged",
        "_decided",
        "_open",
        "_producers",
        "_producers_max",
        "_verified",
        "snapshots",
    )

    def __init__(self, disk: Disk, directory: str, *, producers_max: int = PRODUCERS_MAX) -> None:
        self.snapshots = ProducerSnapshots(disk, directory)
        self._producers_max = producers_max
        self._acknowledged = 0  # markers before it are replicated
        self._forget_all()

    def _forget_all(self) -> None:
        self._producers = _NO_PRODUCERS
        self._open = _NONE_OPEN  # first offset -> producer id, in the order of the log
        self._decided = _NONE_DECIDED  # heap of first and last offsets
        self._verified = _NONE_VERIFIED

    # Checks before an append

    def check(
        self, batch: RecordBatch, *, from_client: bool, terms: TransactionTerms = ANY_TRANSACTION
    ) -> AppendedBatch | None:
        """Check a leader's append; return the original if the batch is a duplicate, else None.

        Epochs may not decrease, and a producer with an open transaction writes only as part of it.
        Batches from clients must also be in sequence: from 0 in a new epoch, from any number if the
        producer is unknown (it expired, or retention removed all its batches). Our own coordinators
        use no sequence numbers. If the terms require it, a transaction begins here only after its
        verification. Raises ApiError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_TXN_STATE or TRANSACTION_COORDINATOR_FENCED.
        """
        if batch.producer_id <= NO_PRODUCER_ID:
            return None
        producer = self._producers.get(batch.producer_id)
        if batch.is_control:
            marker = _marker_of(batch)
            if producer is not None and marker is not None:
                producer.check_marker(batch, marker, terms.version)
            return None
        if producer is not None:
            known = producer.check_batch(batch, from_client=from_client)
            if known is not None:
                return known
        if terms.is_verified_only and batch.is_transactional:
            self._check_verified(batch, terms.verification, from_client=from_client)
        return None

    def verification(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        base_sequence: int,
        *,
        is_epoch_bumped: bool,
    ) -> Verification | None:
        """Start or join the verification that a transaction has this partition: see `Verification`.

        None if the transaction is open here, so that no verification is needed.
        """
        if self._is_open(producer_id, producer_epoch):
            return None
        if self._verified is _NONE_VERIFIED:
            self._verified = {}
        known = self._verified.get(producer_id)
        if known is None:
            if len(self._verified) >= self._producers_max:
                del self._verified[next(iter(self._verified))]
            known = Verification(producer_epoch, base_sequence, is_epoch_bumped=is_epoch_bumped)
            self._verified[producer_id] = known
        else:
            known.note(producer_epoch, base_sequence)
        return known

    def _is_open(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.transaction_first_offset >= 0
            and producer.producer_epoch == producer_epoch
        )

    def _check_verified(
        self, batch: RecordBatch, verification: Verification | None, *, from_client: bool
    ) -> None:
        producer_id = batch.producer_id
        if self._is_open(producer_id, batch.producer_epoch):
            return
        if verification is None or self._verified.get(producer_id) is not verification:
            # It was late: the transaction has ended since, or is none of this producer's.
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id}: no transaction with this partition is open",
            )
        if from_client:
            producer = self._producers.get(producer_id)
            # A known producer has a known sequence. The verified batch may have been a late
            # duplicate, with a lower sequence.
            if producer is None or not producer.batches:
                verification.check_sequence(batch.base_sequence)

    # Changes from batches in the log

    def apply(self, batch: RecordBatch) -> CompletedTransaction | None:
        """Apply the next batch of the log; return the transaction that it ends, if any.

        Raises ProtocolError only for a control batch of a producer that is no marker.
        """
        producer_id = batch.producer_id
        if producer_id <= NO_PRODUCER_ID:
            return None
        if batch.is_control:
            return self._apply_marker(batch)
        producer = self._producers.get(producer_id) or self._add(producer_id, Producer())
        producer.add(batch)
        if batch.attributes & TRANSACTIONAL_BIT:
            if producer.transaction_first_offset < 0:
                producer.transaction_first_offset = batch.base_offset
                self._open[batch.base_offset] = producer_id
            if self._verified:
                self._verified.pop(producer_id, None)
        return None

    def _apply_marker(self, batch: RecordBatch) -> CompletedTransaction | None:
        marker = _marker_of(batch)
        if marker is None:
            return None
        producer_id = batch.producer_id
        verification = self._verified.get(producer_id)
        if verification is not None and verification.is_ended_by(batch.producer_epoch):
            del self._verified[producer_id]
        producer = self._producers.get(producer_id) or self._add(producer_id, Producer())
        first_offset = producer.end_transaction(batch, marker)
        if first_offset < 0:
            return None
        last_offset = batch.base_offset
        del self._open[first_offset]
        if last_offset >= self._acknowledged:
            heappush(self._decided, (first_offset, last_offset))
        is_aborted = marker.kind is ControlType.ABORT
        return CompletedTransaction(producer_id, first_offset, last_offset, is_aborted)

    def _add(self, producer_id: ProducerId, producer: Producer) -> Producer:
        if self._producers is _NO_PRODUCERS:
            self._producers, self._open, self._decided = {}, {}, []
        if len(self._producers) >= self._producers_max:
            self._forget_longest_idle()
        self._producers[producer_id] = producer
        return producer

    def _forget_longest_idle(self) -> None:
        idle = sorted(
            (producer.timestamp_ms, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset < 0
        )
        for _, producer_id in idle[: self._producers_max // _FORGOTTEN_PART + 1]:
            del self._producers[producer_id]

    def expire(self, now_ms: int, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> None:
        """Remove producers without writes for this long and without an open transaction.

        The time of a producer's last write is the timestamp of its records, as in Kafka.
        """
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset < 0
            and now_ms - producer.timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]

    # Limits for readers

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Where the first unstable transaction began; retention may have taken that offset."""
        first_open = next(iter(self._open)) if self._open else None
        if not self._decided:
            return first_open
        first_decided = self._decided[0][0]
        return first_decided if first_open is None else min(first_open, first_decided)

    def acknowledge(self, high_watermark: Offset) -> None:
        """Make transactions stable that end with replicated markers, before this offset."""
        self._acknowledged = high_watermark
        decided = self._decided
        while decided and decided[0][1] < high_watermark:
            heappop(decided)

    def last_stable_offset_before(self, completed: CompletedTransaction) -> Offset:
        """Say up to where everything was decided by the transaction that was just applied.

        The index of aborted transactions keeps it with each of them.
        """
        return next(iter(self._open), Offset(completed.last_offset + 1))

    def producers(self) -> list[ProducerEntry]:
        """Describe every producer, by ascending id."""
        return [producer.described(key) for key, producer in sorted(self._producers.items())]

    def producer(self, producer_id: ProducerId) -> ProducerEntry | None:
        """Describe one producer, if it is known."""
        known = self._producers.get(producer_id)
        return None if known is None else known.described(producer_id)

    # Snapshots

    def take_snapshot(self, offset: Offset, *, sync: bool = True) -> None:
        """Write down the state of a log that ends at this offset, all of it applied.

        Unsynced, a power cut may damage it; `reload` then does without it.
        """
        entries = self.producers()
        assert all(entry.last_offset < offset for entry in entries), offset
        self.snapshots.write(offset, entries, sync=sync)

    def reload(
        self, start_offset: Offset, end_offset: Offset, snapshots_until: Offset | None = None
    ) -> Reloaded:
        """Restore the newest snapshot of a log that was opened with, or truncated to, these bounds.

        The caller continues by applying every batch from the returned offset to end_offset.
        Transactions that ended before that offset count as stable. Snapshots behind
        `snapshots_until` are not used.
        """
        until = end_offset if snapshots_until is None else snapshots_until
        found = self.snapshots.find_newest(start_offset, until)
        self._forget_all()
        self._acknowledged = min(self._acknowledged, end_offset)
        opened = []
        for entry in found.entries:
            self._add(entry.producer_id, Producer.restored(entry))
            if entry.transaction_first_offset >= 0:
                opened.append((entry.transaction_first_offset, entry.producer_id))
        self._open.update(sorted(opened))
        return Reloaded(found.offset, found.damaged)

    def clear(self) -> None:
        """Clear the state, and remove all snapshots: the log restarts."""
        self._forget_all()
        self._acknowledged = 0
        self.snapshots.remove_all()


def _marker_of(batch: RecordBatch) -> EndTxnMarker | None:
    """Read a marker, but nothing from a batch that compaction has emptied."""
    return end_txn_marker_of(batch) if batch.record_count else None
