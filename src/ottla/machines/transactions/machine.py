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

from ottla.machines.decision import Decision
from ottla.machines.moment import Moment
from ottla.machines.transactions import describing
from ottla.machines.transactions.add_partitions import Enlisting, Enlistment
from ottla.machines.transactions.calls import answer_only
from ottla.machines.transactions.end_txn import Ending
from ottla.machines.transactions.expiration import Ageing
from ottla.machines.transactions.init_producer_id import InitDecision, Initiating
from ottla.machines.transactions.markers import OwedMarkers
from ottla.machines.transactions.producer_ids import NeedsProducerId
from ottla.machines.transactions.records import TransactionRecord
from ottla.machines.transactions.settings import TransactionSettings
from ottla.machines.transactions.transaction import Transaction
from ottla.machines.transactions.transaction_store import Roster
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages import describe_transactions
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


class TransactionMachine:
    """The transactions, after all records of the partition were replayed and `start` was called.

    The level is the cluster's `transaction.version`, 0 to 2.
    """

    def __init__(
        self, settings: TransactionSettings, *, coordinator_epoch: int, level: int
    ) -> None:
        self._roster = Roster(coordinator_epoch, level)
        self._ending = Ending(self._roster)
        self._enlisting = Enlisting(self._roster)
        self._initiating = Initiating(settings, self._roster, self._ending)
        self._ageing = Ageing(settings, self._roster, self._ending)

    @property
    def coordinator_epoch(self) -> int:
        """The leader epoch of the partition, which its markers carry."""
        return self._roster.coordinator_epoch

    def use_level(self, level: int) -> None:
        """Go on at another level of `transaction.version`, which the cluster has now."""
        self._roster.level = level

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one record of the log; None is a tombstone."""
        self._roster.replay(key, value)

    def take(self, record: TransactionRecord) -> None:
        """Apply one record of a decision, as if it were replayed."""
        self._roster.take(record.transactional_id, record.transaction)

    def start(self, now: Moment) -> None:
        """Begin to watch time."""
        self._ageing.start(now)

    def take_markers(self) -> tuple[OwedMarkers, ...]:
        """Return the ends of transactions that were replayed since the last time, each once."""
        return self._roster.take_markers()

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` has something to do, on the monotonic clock; None before `start`."""
        return self._ageing.next_ms()

    def expire(self, now: Moment) -> Decision[TransactionRecord, None]:
        """Abort expired transactions and remove unused ids, if a check is due."""
        return Decision(self._ageing.look(now), None)

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
        return self._initiating.init(request, api_version, fresh_id, now)

    def decide_add_partitions(
        self, wanted: AddPartitionsToTxnTransaction, api_version: int, now: Moment
    ) -> Decision[TransactionRecord, AddPartitionsToTxnResult]:
        """Decide on one transaction of AddPartitionsToTxn, to add partitions or to verify them.

        A request below version 4 must be put in this form. All partitions exist.
        """
        return self._enlisting.add_partitions(wanted, api_version, now)

    def decide_enlist(
        self, wanted: Enlistment, now: Moment
    ) -> Decision[TransactionRecord, dict[TopicPartition, ErrorCode]]:
        """Decide on the request of a leader on this broker, as if it came from a remote leader."""
        return self._enlisting.enlist(wanted, now)

    def decide_add_offsets(
        self,
        request: AddOffsetsToTxnRequest,
        partition: TopicPartition,
        api_version: int,
        now: Moment,
    ) -> Decision[TransactionRecord, AddOffsetsToTxnResponse]:
        """Decide about AddOffsetsToTxn, for the partition that keeps the group's offsets."""
        return self._enlisting.add_offsets(request, partition, api_version, now)

    def decide_end(
        self, request: EndTxnRequest, api_version: int, fresh_id: int | None, now: Moment
    ) -> Decision[TransactionRecord, EndTxnResponse | NeedsProducerId]:
        """Decide about EndTxn."""
        return self._ending.end(request, api_version, fresh_id, now)

    def decide_marked(
        self, owed: OwedMarkers, written: Iterable[TopicPartition], now: Moment
    ) -> Decision[TransactionRecord, bool]:
        """Record written markers; the response is true if the last one is among them.

        If the append of the last one's record fails, report again.
        """
        return self._ending.mark(owed, written, now)

    def decide_describe(
        self, transactional_id: str
    ) -> Decision[TransactionRecord, describe_transactions.TransactionState]:
        """Decide about one transactional id of DescribeTransactions."""
        return answer_only(describing.describe(self._roster, transactional_id))

    def decide_list(
        self, request: ListTransactionsRequest, now: Moment
    ) -> Decision[TransactionRecord, ListTransactionsResponse]:
        """Decide on ListTransactions, for the ids of this partition.

        ApiError INVALID_REGULAR_EXPRESSION.
        """
        return answer_only(describing.list_all(self._roster, request, now.wall_ms))

    def transactional_ids(self) -> list[str]:
        """Return all transactional ids."""
        return self._roster.transactional_ids()

    def transaction(self, transactional_id: str) -> Transaction | None:
        """Return where a transactional id stands."""
        return self._roster.get(transactional_id)
