"""Completes batches: delivered, retried, split in two, or failed."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import RETRIABLE, error_code
from ottla.clients.producer.batching.accumulator import Accumulator, Batch
from ottla.clients.producer.batching.ready_batch import (
    PartitionQueue,
    ReadyBatch,
    seal,
    split_records,
)
from ottla.clients.producer.sending.leaders import Leaders
from ottla.clients.producer.sending.produce_requests import Outcomes
from ottla.clients.producer.state.errors import RecordNotSentError
from ottla.clients.producer.state.producer_identity import SEQUENCE_MODULUS, Identity, PlainIdentity
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.produce import PartitionProduceResponse
from ottla.wire.records.batch import NO_SEQUENCE

_REFUSED: Final = "the records were refused"
_LARGE_RECORD: Final = "a single record is larger than max.message.bytes of the topic allows"
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_OUT_OF_ORDER: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
_GAP: Final = (_OUT_OF_ORDER, ErrorCode.UNKNOWN_PRODUCER_ID)
_UNKNOWN_LEADER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""After these codes the leader is looked up again."""
_MAYBE_WRITTEN: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Codes with an unknown result: a leader may fail after it has written the batch."""


class Counts:
    """Counts of records and batches, for metrics."""

    def __init__(self) -> None:
        self.records = 0
        self.record_errors = 0
        self.record_retries = 0
        self.batch_splits = 0


class BatchCompletion:
    """Decides the next step for batches after a response or a failure."""

    def __init__(
        self,
        view: ClusterView,
        clock: Clock,
        settings: ProducerSettings,
        accumulator: Accumulator,
        leaders: Leaders,
        identity: Identity,
    ) -> None:
        self.identity = identity
        self.counts = Counts()
        self.last_failure: Exception | None = None
        """The last failure, for the error message of an expired batch."""
        self.on_room: Callable[[], None] = lambda: None
        """Called after memory was released."""
        self._view = view
        self._clock = clock
        self._settings = settings
        self._accumulator = accumulator
        self._leaders = leaders

    def settle(self, shipments: Sequence[ReadyBatch], outcomes: Outcomes) -> None:
        """Handle a response, which should contain a result for each batch of the request."""
        for shipment in shipments:
            outbox = shipment.outbox
            outbox.flying.remove(shipment)
            row = outcomes.get(outbox.name)
            if row is None:
                missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker did not say")
                self._again(shipment, missing)
            else:
                self._settle_one(outbox, shipment, row)

    def settle_failed(self, shipments: Sequence[ReadyBatch], error: Exception) -> None:
        """Handle a request without a response: retry retriable failures, fail the others."""
        is_retriable = isinstance(error, OSError) or (
            isinstance(error, ApiError) and error.code in RETRIABLE | _UNKNOWN_LEADER
        )
        self._view.forget({shipment.batch.topic for shipment in shipments})
        for shipment in shipments:
            shipment.outbox.flying.remove(shipment)
            if is_retriable:
                self._again(shipment, error)
            else:
                self._refuse(shipment, error)

    def give_up(
        self,
        shipment: ReadyBatch,
        error: Exception,
        error_by_index: dict[int, BaseException] | None = None,
    ) -> None:
        """Fail a batch with sequence numbers, which leaves a gap before the later batches.

        Does nothing for a batch that is done: a batch that expired in flight fails again when its
        request ends, and must not affect a later transaction.
        """
        if shipment.batch.is_done:
            return
        outbox = shipment.outbox
        if shipment.base_sequence != NO_SEQUENCE and isinstance(self.identity, PlainIdentity):
            outbox.must_renumber = True
        self.counts.record_errors += shipment.record_count
        shipment.batch.fail(error, error_by_index)
        self.identity.batch_failed(outbox.name, error)

    def drop(self, batch: Batch, error: Exception) -> None:
        """Fail a batch that was never sent."""
        self.counts.record_errors += batch.record_count
        charged_bytes = batch.charged_bytes
        batch.fail(error)
        self.release(charged_bytes)
        self.identity.batch_failed(TopicPartition(batch.topic, batch.partition), error)

    def drop_all(self, shipments: Collection[ReadyBatch], error: Exception) -> None:
        """Fail batches that are not in flight."""
        for shipment in list(shipments):
            self.give_up(shipment, error)
            self.release(shipment.charged_bytes)

    def release(self, size_bytes: int) -> None:
        """Release memory, and wake callers blocked on buffer.memory."""
        self._accumulator.release(size_bytes)
        self.on_room()

    # -- one batch ------------------------------------------------------------------------------

    def _settle_one(
        self, outbox: PartitionQueue, shipment: ReadyBatch, row: PartitionProduceResponse
    ) -> None:
        code = error_code(row.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._complete(outbox, shipment, row)
            return
        if code is _OUT_OF_ORDER and outbox.is_surely_written(shipment):
            self._complete_forgotten(shipment)
            return
        # A refused retry says nothing about the first attempt, unless the broker checked the
        # sequence.
        shipment.is_in_doubt = code in _MAYBE_WRITTEN or (shipment.is_in_doubt and code not in _GAP)
        meaning = row.error_message or (_LARGE_RECORD if code in _TOO_LARGE else _REFUSED)
        error = ApiError(code, f"partition {outbox.name}: {meaning}")
        if code in _TOO_LARGE and shipment.record_count > 1 and not shipment.batch.is_done:
            self._split(outbox, shipment)
        elif self._plan_retry(outbox, shipment, code):
            self._again(shipment, error)
        else:
            errors = _errors_by_index(outbox.name, code, row)
            self._refuse(shipment, _for_the_others(error) if errors else error, errors)

    def _complete(
        self, outbox: PartitionQueue, shipment: ReadyBatch, row: PartitionProduceResponse
    ) -> None:
        outbox.backoff_ms = 0
        self.counts.records += shipment.record_count
        is_known = row.error_code == ErrorCode.NONE
        self.release(shipment.charged_bytes)
        shipment.batch.complete(row.base_offset if is_known else -1, row.log_append_time_ms)
        outbox.acknowledge(shipment)
        for one in [one for one in outbox.waiting if _is_out_of_order(one)]:
            if outbox.is_surely_written(one):
                outbox.waiting.remove(one)
                self._complete_forgotten(one)

    def _complete_forgotten(self, shipment: ReadyBatch) -> None:
        """Complete a batch as written; a restarted broker does not recognize its duplicate."""
        self.counts.records += shipment.record_count
        self.release(shipment.charged_bytes)
        shipment.batch.complete(-1, -1)

    def _plan_retry(self, outbox: PartitionQueue, shipment: ReadyBatch, code: ErrorCode) -> bool:
        """Return whether a refused batch may be sent again, and note if it needs a new epoch.

        An out-of-order batch may be sent again while an earlier batch is still to come. Otherwise
        there is a gap: outside a transaction a new epoch repairs it, in a transaction the
        transaction is lost.
        """
        if code not in _GAP:
            return code in RETRIABLE or code in _UNKNOWN_LEADER
        is_gap = code is ErrorCode.UNKNOWN_PRODUCER_ID or outbox.is_first(shipment)
        if is_gap and not isinstance(self.identity, PlainIdentity):
            return False
        if is_gap and shipment.producer == outbox.producer:
            outbox.must_renumber = True
        return True

    def _again(self, shipment: ReadyBatch, error: Exception) -> None:
        outbox = shipment.outbox
        shipment.last_failure = self.last_failure = error
        if shipment.batch.is_done:  # it expired in flight
            self._refuse(shipment, error)
            return
        if shipment.attempts > self._settings.retries:
            self._refuse(shipment, error)
            return
        self.counts.record_retries += shipment.record_count
        outbox.queue_again([shipment])
        self._back_off(outbox, error)

    def _back_off(self, outbox: PartitionQueue, error: Exception) -> None:
        """Wait before the next attempt, unless the response names the new leader."""
        if isinstance(error, ApiError) and error.code in _UNKNOWN_LEADER:
            if self._leaders.epoch_of(outbox.name) > outbox.leader_epoch:
                return
            self._view.forget([outbox.name.topic])
        settings = self._view.settings
        doubled = max(2 * outbox.backoff_ms, settings.retry_backoff_ms)
        outbox.backoff_ms = min(doubled, settings.retry_backoff_max_ms)
        outbox.retry_at_ms = self._clock.monotonic_ms() + outbox.backoff_ms

    def _refuse(
        self,
        shipment: ReadyBatch,
        error: Exception,
        error_by_index: dict[int, BaseException] | None = None,
    ) -> None:
        self.release(shipment.charged_bytes)
        self.give_up(shipment, error, error_by_index)

    def _split(self, outbox: PartitionQueue, shipment: ReadyBatch) -> None:
        """Split a batch that is too large for the broker in two, with the same sequence numbers."""
        self.counts.batch_splits += 1
        records = split_records(shipment.payload)
        parts = shipment.batch.split([part.record_count for part in records], records)
        sequence = shipment.base_sequence
        charge = shipment.charged_bytes
        again = []
        for part in parts:
            payload = seal(
                part.records,
                self._settings.compression_type,
                self._settings.compression_level,
                is_transactional=self.identity.is_transactional,
            )
            piece = ReadyBatch(outbox, part, shipment.number, payload)
            piece.charged_bytes = charge // 2 if part is parts[0] else charge - charge // 2
            piece.attempts = shipment.attempts
            piece.is_part = True
            piece.stamp(shipment.producer, sequence)
            if sequence != NO_SEQUENCE:
                sequence = (sequence + part.record_count) % SEQUENCE_MODULUS
            again.append(piece)
        outbox.queue_again(again)


def _is_out_of_order(shipment: ReadyBatch) -> bool:
    error = shipment.last_failure
    return isinstance(error, ApiError) and error.code is _OUT_OF_ORDER


def _for_the_others(error: ApiError) -> RecordNotSentError:
    return RecordNotSentError(f"another record of the same batch was refused: {error}")


def _errors_by_index(
    name: TopicPartition, code: ErrorCode, row: PartitionProduceResponse
) -> dict[int, BaseException] | None:
    """Return errors for all records, if the response names the invalid ones."""
    if not row.record_errors:
        return None
    errors: dict[int, BaseException] = {}
    for bad in row.record_errors:
        detail = bad.batch_index_error_message or row.error_message or ""
        errors[bad.batch_index] = ApiError(code, f"partition {name}: {detail}")
    return errors
