"""The transaction coordinator of one partition of `__transaction_state`.

    decide_…(request, …, now) -> Decision(records, response)   changes nothing in the log's state
    replay(key, value), take(record)                            the only writers of the log's state
    take_markers() -> markers to send now; call it after replaying
    next_deadline_ms(), expire(now)                             time

How to run it:

-   Replay the log, call `start`, then `take_markers`: prepared transactions without all markers
    owe them again. A machine belongs to one leader epoch of its partition, which is the
    coordinator epoch of its markers; in another epoch load another machine.
-   Append the records of a decision and replay them before the next decision. If the append
    fails, do not replay: nothing has happened.
-   Respond when all replayed records are committed, and not before, even if the decision has no
    records. On a timeout, respond with COORDINATOR_NOT_AVAILABLE; a retry returns the outcome.
    The decision stands, as it is in the log.
-   Send markers when the records that were replayed before `take_markers` are committed, and not
    before, to the leaders of their partitions, with retries until each has acknowledged. Report
    written markers, and deleted partitions, to `decide_marked`, together or one by one. If there
    are no markers to send, report an empty set. Late and duplicate reports do no harm.
-   A response of `NeedsProducerId` asks for an unused producer id: get one, and decide again
    with it. The machine may not use it.

Decisions are made one at a time, and each sees the earlier ones, committed or not: no request waits
for another. CONCURRENT_TRANSACTIONS means that markers are pending.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from ottla.machines.decision import Decision
from ottla.machines.moment import Moment
from ottla.machines.transactions.add_partitions import AddPartitionsRequests, Enlistment
from ottla.machines.transactions.calls import Records, answer_only
from ottla.machines.transactions.end_txn import EndTxnRequests
from ottla.machines.transactions.init_producer_id import InitDecision, InitProducerIdRequests
from ottla.machines.transactions.markers import OwedMarkers
from ottla.machines.transactions.producer_ids import NeedsProducerId
from ottla.machines.transactions.records import TransactionRecord, tombstone
from ottla.machines.transactions.settings import TransactionSettings
from ottla.machines.transactions.transaction import IDLE, NO_TIMEOUT_MS, State, Transaction
from ottla.machines.transactions.transaction_store import TransactionStore
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, numbers_by_topic
from ottla.model.linear_regex import Pattern, PatternError
from ottla.wire.messages import describe_transactions, list_transactions
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.wire.schema import Message

_STATE_NAMES: Final = frozenset(state.value for state in State)

ABORTS_MAX: Final = 200
"""How many transactions are aborted in one go."""
LOOKS_MAX: Final = 5_000
"""The number of transactional ids checked in one run."""
TOMBSTONES_MAX: Final = 200
"""How many transactional ids are forgotten in one go."""
_SOON_MS: Final = 1
"""When to go on if there is more to do than in one go."""


class TransactionMachine:
    """The transactions, after all records of the partition were replayed and `start` was called.

    The level is the cluster's `transaction.version`, 0 to 2.
    """

    def __init__(
        self, settings: TransactionSettings, *, coordinator_epoch: int, level: int
    ) -> None:
        self._store = TransactionStore(coordinator_epoch, level)
        self._end_txn = EndTxnRequests(self._store)
        self._add_partitions = AddPartitionsRequests(self._store)
        self._init_producer_id = InitProducerIdRequests(settings, self._store, self._end_txn)
        self._expiration = Expiration(settings, self._store, self._end_txn)

    @property
    def coordinator_epoch(self) -> int:
        """The leader epoch of the partition, which its markers carry."""
        return self._store.coordinator_epoch

    def use_level(self, level: int) -> None:
        """Go on at another level of `transaction.version`, which the cluster has now."""
        self._store.level = level

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one record of the log; None is a tombstone."""
        self._store.replay(key, value)

    def take(self, record: TransactionRecord) -> None:
        """Apply one record of a decision, as if it were replayed."""
        self._store.take(record.transactional_id, record.transaction)

    def start(self, now: Moment) -> None:
        """Begin to watch time."""
        self._expiration.start(now)

    def take_markers(self) -> tuple[OwedMarkers, ...]:
        """Return the ends of transactions that were replayed since the last time, each once."""
        return self._store.take_markers()

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` has something to do, on the monotonic clock; None before `start`."""
        return self._expiration.next_ms()

    def expire(self, now: Moment) -> Decision[TransactionRecord, None]:
        """Abort expired transactions and remove unused ids, if a check is due."""
        return Decision(self._expiration.look(now), None)

    def decide_init(
        self,
        request: InitProducerIdRequest,
        api_version: int,
        fresh_id: int | None,
        now: Moment,
    ) -> InitDecision:
        """Decide on InitProducerId with a transactional id.

        A response that keeps a transaction names it; versions below 6 have no fields for that.
        """
        return self._init_producer_id.init(request, api_version, fresh_id, now)

    def decide_add_partitions(
        self, wanted: AddPartitionsToTxnTransaction, api_version: int, now: Moment
    ) -> Decision[TransactionRecord, AddPartitionsToTxnResult]:
        """Decide on one transaction of AddPartitionsToTxn, to add partitions or to verify them.

        A request below version 4 must be put in this form. All partitions exist.
        """
        return self._add_partitions.add_partitions(wanted, api_version, now)

    def decide_enlist(
        self, wanted: Enlistment, now: Moment
    ) -> Decision[TransactionRecord, dict[TopicPartition, ErrorCode]]:
        """Decide on the request of a leader on this broker, as if it came from a remote leader."""
        return self._add_partitions.enlist(wanted, now)

    def decide_add_offsets(
        self,
        request: AddOffsetsToTxnRequest,
        partition: TopicPartition,
        api_version: int,
        now: Moment,
    ) -> Decision[TransactionRecord, AddOffsetsToTxnResponse]:
        """Decide about AddOffsetsToTxn, for the partition that keeps the group's offsets."""
        return self._add_partitions.add_offsets(request, partition, api_version, now)

    def decide_end(
        self, request: EndTxnRequest, api_version: int, fresh_id: int | None, now: Moment
    ) -> Decision[TransactionRecord, EndTxnResponse | NeedsProducerId]:
        """Decide about EndTxn."""
        return self._end_txn.end(request, api_version, fresh_id, now)

    def decide_marked(
        self, owed: OwedMarkers, written: Iterable[TopicPartition], now: Moment
    ) -> Decision[TransactionRecord, bool]:
        """Record written markers; the response is true if the last marker is among them.

        If the append of the last marker's record fails, report again.
        """
        return self._end_txn.mark(owed, written, now)

    def decide_describe(
        self, transactional_id: str
    ) -> Decision[TransactionRecord, describe_transactions.TransactionState]:
        """Decide about one transactional id of DescribeTransactions."""
        return answer_only(_describe(self._store, transactional_id))

    def decide_list(
        self, request: ListTransactionsRequest, now: Moment
    ) -> Decision[TransactionRecord, ListTransactionsResponse]:
        """Decide on ListTransactions, for the ids of this partition.

        ApiError INVALID_REGULAR_EXPRESSION.
        """
        return answer_only(_list_all(self._store, request, now.wall_ms))

    def transactional_ids(self) -> list[str]:
        """Return all transactional ids."""
        return self._store.transactional_ids()

    def transaction(self, transactional_id: str) -> Transaction | None:
        """Return where a transactional id stands."""
        return self._store.get(transactional_id)


def _describe(
    store: TransactionStore, transactional_id: str
) -> describe_transactions.TransactionState:
    """Show one transactional id, or why it cannot be shown."""
    found = store.get(transactional_id)
    if found is None:
        is_valid = bool(transactional_id)
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_valid else ErrorCode.INVALID_REQUEST
        return describe_transactions.TransactionState(
            error_code=code, transactional_id=transactional_id
        )
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(found.partitions).items()
        ],
    )


def _list_all(
    store: TransactionStore, request: ListTransactionsRequest, now_ms: int
) -> ListTransactionsResponse:
    """Return the transactional ids that pass all filters; may raise INVALID_REGULAR_EXPRESSION.

    Unknown states are returned as such, and match nothing.
    """
    pattern = _pattern(request.transactional_id_pattern)
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATE_NAMES],
        transaction_states=[
            list_transactions.TransactionState(
                transactional_id=found.transactional_id,
                producer_id=found.producer.producer_id,
                transaction_state=found.state.value,
            )
            for found in store.transactions()
            if _passes(found, request, now_ms)
            and (pattern is None or pattern.matches(found.transactional_id))
        ],
    )


def _passes(found: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    producer_ids, states = request.producer_id_filters, request.state_filters
    if producer_ids and found.producer.producer_id not in producer_ids:
        return False
    if states and found.state.value not in states:
        return False
    return request.duration_filter < 0 or now_ms - found.start_ms > request.duration_filter


def _pattern(text: str | None) -> Pattern | None:
    try:
        return Pattern(text) if text else None
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


class Expiration:
    """Decides the expiration of transactions and ids. Begins with `start`.

    A transaction that is open longer than its timeout is aborted, and its producer fenced, unless
    it is prepared for an external coordinator. An id without a transaction is removed after
    `transactional.id.expiration.ms`.

    A transaction ages by the monotonic clock, so that a change of the wall clock does no harm. For
    transactions loaded from the log the wall clock gives the age, and the monotonic clock
    continues.
    """

    def __init__(
        self, settings: TransactionSettings, store: TransactionStore, end_txn: EndTxnRequests
    ) -> None:
        self._settings = settings
        self._store = store
        self._end_txn = end_txn
        self._unseen: list[str] = []
        self._abort_at_ms: int | None = None
        self._forget_at_ms: int | None = None

    def start(self, now: Moment) -> None:
        """Begin to watch time."""
        self._store.start(now)
        settings = self._settings
        abort_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        forget_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._abort_at_ms = now.monotonic_ms + abort_ms
        self._forget_at_ms = now.monotonic_ms + forget_ms

    def next_ms(self) -> int | None:
        """Return when there is something to look at, on the monotonic clock."""
        if self._abort_at_ms is None or self._forget_at_ms is None:
            return None
        return min(self._abort_at_ms, self._forget_at_ms)

    def look(self, now: Moment) -> Records:
        """Abort expired transactions and remove expired ids; in portions, if there are many."""
        if self._abort_at_ms is not None and self._abort_at_ms <= now.monotonic_ms:
            return self._abort(now)
        if self._forget_at_ms is not None and self._forget_at_ms <= now.monotonic_ms:
            return self._forget(now)
        return ()

    def _abort(self, now: Moment) -> Records:
        late = (
            one
            for one, began_ms in self._store.ongoing()
            if _is_late(one, now.monotonic_ms - began_ms)
        )
        aborted = list(islice(late, ABORTS_MAX))
        interval_ms = self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        delay_ms = _SOON_MS if len(aborted) == ABORTS_MAX else interval_ms
        self._abort_at_ms = now.monotonic_ms + delay_ms
        return tuple(record for one in aborted for record in self._end_txn.fence(one, now))

    def _forget(self, now: Moment) -> Records:
        if not self._unseen:
            self._unseen = self._store.transactional_ids()
        records: list[TransactionRecord] = []
        for _ in range(min(LOOKS_MAX, len(self._unseen))):
            found = self._store.get(self._unseen.pop())
            if found is not None and self._is_unused(found, now.wall_ms):
                records.append(tombstone(found.transactional_id))
                if len(records) == TOMBSTONES_MAX:
                    break
        interval_ms = self._settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._forget_at_ms = now.monotonic_ms + (_SOON_MS if self._unseen else interval_ms)
        return tuple(records)

    def _is_unused(self, found: Transaction, now_ms: int) -> bool:
        is_old = now_ms - found.update_ms >= self._settings.transactional_id_expiration_ms
        return is_old and found.state in IDLE


def _is_late(found: Transaction, age_ms: int) -> bool:
    return found.timeout_ms != NO_TIMEOUT_MS and age_ms > found.timeout_ms
