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

    def complete(self, ready_batches: Sequence[ReadyBatch], outcomes: Outcomes) -> None:
        """Handle a response, which should contain a result for each batch of the request."""
        for ready_batch in ready_batches:
            queue = ready_batch.queue
            queue.flying.remove(ready_batch)
            row = outcomes.get(queue.name)
            if row is None:
                missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker did not say")
                self._again(ready_batch, missing)
            else:
                self._complete_one(queue, ready_batch, row)

    def fail(self, ready_batches: Sequence[ReadyBatch], error: Exception) -> None:
        """Handle a request without a response: retry retriable failures, fail the others."""
        is_retriable = isinstance(error, OSError) or (
            isinstance(error, ApiError) and error.code in RETRIABLE | _UNKNOWN_LEADER
        )
        self._view.forget({ready_batch.batch.topic for ready_batch in ready_batches})
        for ready_batch in ready_batches:
            ready_batch.queue.flying.remove(ready_batch)
            if is_retriable:
                self._again(ready_batch, error)
            else:
                self._refuse(ready_batch, error)

    def give_up(
        self,
        ready_batch: ReadyBatch,
        error: Exception,
        error_by_index: dict[int, BaseException] | None = None,
    ) -> None:
        """Fail a batch with sequence numbers, which leaves a gap before the later batches.

        Does nothing for a batch that is done: a batch that expired in flight fails again when its
        request ends, and must not affect a later transaction.
        """
        if ready_batch.batch.is_done:
            return
        queue = ready_batch.queue
        if ready_batch.base_sequence != NO_SEQUENCE and isinstance(self.identity, PlainIdentity):
            queue.must_renumber = True
        self.counts.record_errors += ready_batch.record_count
        ready_batch.batch.fail(error, error_by_index)
        self.identity.batch_failed(queue.name, error)

    def drop(self, batch: Batch, error: Exception) -> None:
        """Fail a batch that was never sent."""
        self.counts.record_errors += batch.record_count
        charged_bytes = batch.charged_bytes
        batch.fail(error)
        self.release(charged_bytes)
        self.identity.batch_failed(TopicPartition(batch.topic, batch.partition), error)

    def drop_all(self, ready_batches: Collection[ReadyBatch], error: Exception) -> None:
        """Fail batches that are not in flight."""
        for ready_batch in list(ready_batches):
            self.give_up(ready_batch, error)
            self.release(ready_batch.charged_bytes)

    def release(self, size_bytes: int) -> None:
        """Release memory, and wake callers blocked on buffer.memory."""
        self._accumulator.release(size_bytes)
        self.on_room()

    # -- one batch ------------------------------------------------------------------------------

    def _complete_one(
        self, queue: PartitionQueue, ready_batch: ReadyBatch, row: PartitionProduceResponse
    ) -> None:
        code = error_code(row.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._complete(queue, ready_batch, row)
            return
        if code is _OUT_OF_ORDER and queue.is_surely_written(ready_batch):
            self._complete_forgotten(ready_batch)
            return
        # A refused retry says nothing about the first attempt, unless the broker checked the
        # sequence.
        ready_batch.is_in_doubt = code in _MAYBE_WRITTEN or (
            ready_batch.is_in_doubt and code not in _GAP
        )
        meaning = row.error_message or (_LARGE_RECORD if code in _TOO_LARGE else _REFUSED)
        error = ApiError(code, f"partition {queue.name}: {meaning}")
        if code in _TOO_LARGE and ready_batch.record_count > 1 and not ready_batch.batch.is_done:
            self._split(queue, ready_batch)
        elif self._plan_retry(queue, ready_batch, code):
            self._again(ready_batch, error)
        else:
            errors = _errors_by_index(queue.name, code, row)
            self._refuse(ready_batch, _for_the_others(error) if errors else error, errors)

    def _complete(
        self, queue: PartitionQueue, ready_batch: ReadyBatch, row: PartitionProduceResponse
    ) -> None:
        queue.backoff_ms = 0
        self.counts.records += ready_batch.record_count
        is_known = row.error_code == ErrorCode.NONE
        self.release(ready_batch.charged_bytes)
        ready_batch.batch.complete(row.base_offset if is_known else -1, row.log_append_time_ms)
        queue.acknowledge(ready_batch)
        for one in [one for one in queue.waiting if _is_out_of_order(one)]:
            if queue.is_surely_written(one):
                queue.waiting.remove(one)
                self._complete_forgotten(one)

    def _complete_forgotten(self, ready_batch: ReadyBatch) -> None:
        """Complete a batch as written; a restarted broker does not recognize its duplicate."""
        self.counts.records += ready_batch.record_count
        self.release(ready_batch.charged_bytes)
        ready_batch.batch.complete(-1, -1)

    def _plan_retry(self, queue: PartitionQueue, ready_batch: ReadyBatch, code: ErrorCode) -> bool:
        """Return whether a refused batch may be sent again, and note if it needs a new epoch.

        An out-of-order batch may be sent again while an earlier batch is still to come. Otherwise
        there is a gap: outside a transaction a new epoch repairs it, in a transaction the
        transaction is lost.
        """
        if code not in _GAP:
            return code in RETRIABLE or code in _UNKNOWN_LEADER
        is_gap = code is ErrorCode.UNKNOWN_PRODUCER_ID or queue.is_first(ready_batch)
        if is_gap and not isinstance(self.identity, PlainIdentity):
            return False
        if is_gap and ready_batch.producer == queue.producer:
            queue.must_renumber = True
        return True

    def _again(self, ready_batch: ReadyBatch, error: Exception) -> None:
        queue = ready_batch.queue
        ready_batch.last_failure = self.last_failure = error
        if ready_batch.batch.is_done:  # it expired in flight
            self._refuse(ready_batch, error)
            return
        if ready_batch.attempts > self._settings.retries:
            self._refuse(ready_batch, error)
            return
        self.counts.record_retries += ready_batch.record_count
        queue.queue_again([ready_batch])
        self._back_off(queue, error)

    def _back_off(self, queue: PartitionQueue, error: Exception) -> None:
        """Wait before the next attempt, unless the response names the new leader."""
        if isinstance(error, ApiError) and error.code in _UNKNOWN_LEADER:
            if self._leaders.epoch_of(queue.name) > queue.leader_epoch:
                return
            self._view.forget([queue.name.topic])
        settings = self._view.settings
        doubled = max(2 * queue.backoff_ms, settings.retry_backoff_ms)
        queue.backoff_ms = min(doubled, settings.retry_backoff_max_ms)
        queue.retry_at_ms = self._clock.monotonic_ms() + queue.backoff_ms

    def _refuse(
        self,
        ready_batch: ReadyBatch,
        error: Exception,
        error_by_index: dict[int, BaseException] | None = None,
    ) -> None:
        self.release(ready_batch.charged_bytes)
        self.give_up(ready_batch, error, error_by_index)

    def _split(self, queue: PartitionQueue, ready_batch: ReadyBatch) -> None:
        """Split a batch that is too large for the broker in two, with the same sequence numbers."""
        self.counts.batch_splits += 1
        records = split_records(ready_batch.payload)
        parts = ready_batch.batch.split([part.record_count for part in records], records)
        sequence = ready_batch.base_sequence
        charge = ready_batch.charged_bytes
        again = []
        for part in parts:
            payload = seal(
                part.records,
                self._settings.compression_type,
                self._settings.compression_level,
                is_transactional=self.identity.is_transactional,
            )
            piece = ReadyBatch(queue, part, ready_batch.number, payload)
            piece.charged_bytes = charge // 2 if part is parts[0] else charge - charge // 2
            piece.attempts = ready_batch.attempts
            piece.is_part = True
            piece.stamp(ready_batch.producer, sequence)
            if sequence != NO_SEQUENCE:
                sequence = (sequence + part.record_count) % SEQUENCE_MODULUS
            again.append(piece)
        queue.queue_again(again)


def _is_out_of_order(ready_batch: ReadyBatch) -> bool:
    error = ready_batch.last_failure
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
