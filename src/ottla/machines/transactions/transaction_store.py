"""All the transactional ids of one partition of `__transaction_state`, and replaying into them."""

from collections.abc import Iterable

from ottla.machines.moment import Moment
from ottla.machines.transactions.markers import OwedMarkers
from ottla.machines.transactions.producer_ids import Producer
from ottla.machines.transactions.records import transaction_of
from ottla.machines.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    FORMAT_LEVEL,
    IDLE,
    MOVES,
    NEVER_WRITTEN,
    PREPARED,
    State,
    Transaction,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.coordinator_records.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.wire.schema import Message


class TransactionStore:
    """The transactions by their ids, and how far the markers of those have come that end."""

    def __init__(self, coordinator_epoch: int, level: int) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.level = level
        """The level of `transaction.version` in the cluster."""
        self.decided_ms = 0
        """The monotonic time of the decision that is replayed next."""
        self._transactions: dict[str, Transaction] = {}
        self._began_ms: dict[str, int] = {}
        # Dicts in place of sets, for their order.
        self._unmarked: dict[str, tuple[int, dict[TopicPartition, None]]] = {}
        self._untold: dict[str, None] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._transactions)

    def transactions(self) -> Iterable[Transaction]:
        """Return all transactions."""
        return self._transactions.values()

    def ongoing(self) -> list[tuple[Transaction, int]]:
        """Return the open transactions, and when each began on the monotonic clock."""
        return [(self._transactions[one], began_ms) for one, began_ms in self._began_ms.items()]

    def start(self, now: Moment) -> None:
        """Adopt the loaded transactions: their age is known by the wall clock only."""
        self.decided_ms = now.monotonic_ms
        for one in self._began_ms:
            age_ms = max(now.wall_ms - self._transactions[one].start_ms, 0)
            self._began_ms[one] = now.monotonic_ms - age_ms

    def transactional_ids(self) -> list[str]:
        """Return all transactional ids."""
        return list(self._transactions)

    def get(self, transactional_id: str) -> Transaction | None:
        """Return a transaction, if its id is known."""
        return self._transactions.get(transactional_id)

    def asked_for(self, transactional_id: str, asker: Producer) -> Transaction:
        """Return the transaction that a producer claims; raise if the id is not one of its own."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        found = self._transactions.get(transactional_id)
        if found is None:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"no producer has used {transactional_id}"
            )
        is_holder = asker.producer_id == found.holder.producer_id
        if not is_holder and not found.is_ended_by(asker):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"{transactional_id} is not of producer {asker.producer_id}",
            )
        return found

    def version_of(self, *, is_able: bool) -> int:
        """Return the transaction version for a client that supports version 2, or does not.

        A transaction ends in the version in which it began, even if the cluster has gone back to
        version 1 meanwhile; but records of level 0 have no fields for version 2.
        """
        return EPOCH_BUMP_VERSION if is_able and self.level >= FORMAT_LEVEL else 0

    # -- replaying ------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one record of the log; records of other kinds are skipped."""
        if not isinstance(key, TransactionLogKey):
            return
        found = None
        if isinstance(value, TransactionLogValue):
            found = transaction_of(key.transactional_id, value)
        if found is not None and found.state in NEVER_WRITTEN:  # if it was, the id is free
            found = None
        self._put(key.transactional_id, found)

    def take(self, transactional_id: str, found: Transaction | None) -> None:
        """Store the new state of a transactional id, as decided here; None removes it."""
        before = self._transactions.get(transactional_id)
        if before is not None:
            _check_move(before, found)
        self._put(transactional_id, found)

    def _put(self, transactional_id: str, found: Transaction | None) -> None:
        began_ms = self._began_ms.pop(transactional_id, self.decided_ms)
        self._unmarked.pop(transactional_id, None)
        self._untold.pop(transactional_id, None)
        if found is None:
            self._transactions.pop(transactional_id, None)
            return
        self._transactions[transactional_id] = found
        if found.state is State.ONGOING:
            self._began_ms[transactional_id] = began_ms
        elif found.state in PREPARED:
            self._number += 1
            self._unmarked[transactional_id] = (self._number, dict.fromkeys(found.partitions))
            self._untold[transactional_id] = None

    # -- markers --------------------------------------------------------------------------------

    def take_markers(self) -> tuple[OwedMarkers, ...]:
        """Return the markers owed since the last call."""
        if not self._untold:
            return ()
        owed = tuple(self._owed(transactional_id) for transactional_id in self._untold)
        self._untold.clear()
        return owed

    def _owed(self, transactional_id: str) -> OwedMarkers:
        found = self._transactions[transactional_id]
        number, unmarked = self._unmarked[transactional_id]
        return OwedMarkers(
            number=number,
            transactional_id=transactional_id,
            producer=found.producer,
            is_commit=found.is_commit,
            partitions=tuple(unmarked),
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=found.client_version,
        )

    def mark(self, owed: OwedMarkers, written: Iterable[TopicPartition]) -> Transaction | None:
        """Strike out markers that are written; return the transaction if these were the last."""
        number, unmarked = self._unmarked.get(owed.transactional_id, (0, {}))
        is_old = number != owed.number or owed.coordinator_epoch != self.coordinator_epoch
        if is_old:
            return None
        for partition in written:
            unmarked.pop(partition, None)
        if unmarked:
            return None
        found = self._transactions[owed.transactional_id]
        assert found.state in PREPARED, found
        return found


def _check_move(before: Transaction, found: Transaction | None) -> None:
    """Assert that the state table allows a decision, and that it takes no epoch back."""
    if found is None:
        assert before.state in IDLE, before
        return
    assert found.state in MOVES[before.state], (before, found)
    is_same_id = found.producer.producer_id == before.producer.producer_id
    # A lower epoch would let a fenced producer write again.
    assert not is_same_id or found.producer.epoch >= before.producer.epoch, (before, found)
