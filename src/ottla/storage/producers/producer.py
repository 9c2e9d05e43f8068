"""One producer id in one log: its last batches, and the sequence check of the next batch."""

from typing import NamedTuple, Self

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET, Offset, ProducerId
from ottla.storage.producers.producer_snapshot import ProducerEntry
from ottla.wire.records.batch import NO_SEQUENCE, RecordBatch
from ottla.wire.records.control import EndTxnMarker

KNOWN_BATCHES_MAX = 5
STRICT_MARKER_VERSION = 2
"""The transaction version from which no two transactions of a producer share an epoch."""

_NO_EPOCH = -1
_NO_TIMESTAMP = -1
_SEQUENCE_MAX = 2**31 - 1


class AppendedBatch(NamedTuple):
    """A batch in the log, with the fields that the response to a duplicate needs."""

    base_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class Producer:
    """The state of one producer id. Holds only batches of its current epoch, the latest last."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "producer_epoch",
        "timestamp_ms",
        "transaction_first_offset",
    )

    def __init__(self) -> None:
        self.producer_epoch = _NO_EPOCH
        self.coordinator_epoch = _NO_EPOCH
        self.timestamp_ms = _NO_TIMESTAMP
        self.transaction_first_offset: Offset = NO_OFFSET
        self.batches: list[AppendedBatch] = []

    @classmethod
    def restored(cls, entry: ProducerEntry) -> Self:
        """Restore the state from a snapshot's entry, as far as the entry has it."""
        producer = cls()
        producer.producer_epoch = entry.producer_epoch
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.timestamp_ms = entry.timestamp_ms
        producer.transaction_first_offset = entry.transaction_first_offset
        if entry.last_offset >= 0:
            producer.batches.append(_last_batch(entry))
        return producer

    def described(self, producer_id: ProducerId) -> ProducerEntry:
        """Write the state down as a snapshot keeps it."""
        last = self.batches[-1] if self.batches else None
        return ProducerEntry(
            producer_id,
            self.producer_epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else NO_OFFSET,
            last.last_offset - last.base_offset if last else 0,
            self.timestamp_ms,
            self.coordinator_epoch,
            self.transaction_first_offset,
        )

    @property
    def next_sequence(self) -> int:
        """The sequence that follows in this epoch: after 2**31 - 1 comes 0."""
        return self.batches[-1].last_sequence + 1 & _SEQUENCE_MAX if self.batches else 0

    def check_batch(self, batch: RecordBatch, *, from_client: bool) -> AppendedBatch | None:
        """Do ProducerStates.check for a batch of records."""
        if batch.producer_epoch < self.producer_epoch:
            raise self._old_epoch(batch)
        if from_client:
            is_new_epoch = batch.producer_epoch > self.producer_epoch
            expected = 0 if is_new_epoch else self.next_sequence
            if batch.base_sequence != expected:
                known = None if is_new_epoch else self._earlier(batch)
                if known is None:
                    raise _out_of_order(batch, expected)
                return known
        if self.transaction_first_offset >= 0 and not batch.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has had a transaction open since offset"
                f" {self.transaction_first_offset}, and this batch is outside it",
            )
        return None

    def check_marker(
        self, batch: RecordBatch, marker: EndTxnMarker, transaction_version: int
    ) -> None:
        """Do ProducerStates.check for the batch that holds this marker."""
        # From that version on a marker has the epoch after the transaction's own (KIP-1228): one
        # with the same epoch is late, and belongs to the transaction before the open one.
        is_strict = (
            transaction_version >= STRICT_MARKER_VERSION and self.transaction_first_offset >= 0
        )
        if batch.producer_epoch < self.producer_epoch + is_strict:
            raise self._old_epoch(batch)
        if marker.coordinator_epoch < self.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {batch.producer_id}: a marker of coordinator epoch"
                f" {marker.coordinator_epoch} comes after one of {self.coordinator_epoch}",
            )

    def add(self, batch: RecordBatch) -> None:
        """Apply a batch of records that is in the log."""
        batches = self.batches
        if batch.producer_epoch != self.producer_epoch:
            self._enter_epoch(batch.producer_epoch)
        elif len(batches) == KNOWN_BATCHES_MAX:
            del batches[0]
        base_offset = batch.base_offset
        timestamp_ms = batch.max_timestamp_ms
        batches.append(
            AppendedBatch(
                batch.base_sequence,
                batch.last_sequence,
                base_offset,
                Offset(base_offset + batch.last_offset_delta),
                timestamp_ms,
            )
        )
        self.timestamp_ms = timestamp_ms

    def end_transaction(self, batch: RecordBatch, marker: EndTxnMarker) -> Offset:
        """Apply a marker that is in the log; return where the transaction began, if any did."""
        self._enter_epoch(batch.producer_epoch)
        self.coordinator_epoch = marker.coordinator_epoch
        self.timestamp_ms = batch.max_timestamp_ms
        first_offset = self.transaction_first_offset
        self.transaction_first_offset = NO_OFFSET
        return first_offset

    def _enter_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()

    def _earlier(self, batch: RecordBatch) -> AppendedBatch | None:
        sequences = (batch.base_sequence, batch.last_sequence)
        return next((known for known in self.batches if known[:2] == sequences), None)

    def _old_epoch(self, batch: RecordBatch) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {batch.producer_id} comes with epoch {batch.producer_epoch}"
            f" after {self.producer_epoch}",
        )


def _last_batch(entry: ProducerEntry) -> AppendedBatch:
    base_sequence = entry.last_sequence
    if base_sequence != NO_SEQUENCE:
        base_sequence = base_sequence - entry.offset_delta & _SEQUENCE_MAX
    return AppendedBatch(
        base_sequence,
        entry.last_sequence,
        Offset(entry.last_offset - entry.offset_delta),
        entry.last_offset,
        entry.timestamp_ms,
    )


def _out_of_order(batch: RecordBatch, expected: int) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id}, epoch {batch.producer_epoch}: sequence"
        f" {batch.base_sequence} comes where {expected} was expected",
    )
