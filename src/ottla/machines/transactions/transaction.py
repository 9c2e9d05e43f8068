"""One transactional id: its producer, and the state of its transaction.

               InitProducerId          partitions         EndTxn         markers written
    (nothing) -----------> Empty ----------> Ongoing --------> Prepare… --------> Complete…
                             ^               |  ^  ^                                | |
                             |  more of them +--+  +------ the next transaction ----+ |
                             +--------------------------- InitProducerId -------------+

Once it is prepared, a transaction ends that way and no other. Empty and Complete… may also go to
PrepareAbort: version 2 of transactions lets a producer abort a transaction that it may not have
begun (KIP-890). Fencing a producer goes to PrepareAbort in one step; Kafka's PrepareEpochFence and
Dead are never written.

A transaction in version 2 ends with a new epoch: its markers carry it, and so does the producer
from then on. Two requests with one (producer id, epoch) belong to one transaction.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.machines.transactions.producer_ids import (
    EPOCH_MAX,
    LAST_EPOCH_GIVEN,
    NO_ID,
    NO_PRODUCER,
    Producer,
)
from ottla.model.identifiers import ProducerId, TopicPartition

EPOCH_BUMP_VERSION: Final = 2
"""The version of transactions in which every end brings a new epoch."""
FORMAT_LEVEL: Final = 1
"""From which level of `transaction.version` on records say in which version a transaction is."""
NO_TIME_MS: Final = -1
NO_TIMEOUT_MS: Final = (1 << 31) - 1
"""The timeout of a transaction that is prepared for an external coordinator: it never expires."""


class State(StrEnum):
    """Where a transaction stands, by the names that operators see."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
COMPLETED: Final = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
ENDED: Final = PREPARED | COMPLETED
"""How the transaction ends is decided."""
IDLE: Final = COMPLETED | {State.EMPTY}
"""No transaction: another producer may take the id, and an unused id may be removed."""
NEVER_WRITTEN: Final = frozenset({State.DEAD, State.PREPARE_EPOCH_FENCE})
"""Kafka writes neither of these."""
_COMMITS: Final = frozenset({State.PREPARE_COMMIT, State.COMPLETE_COMMIT})
MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset(),
}
"""Which state may follow which."""


class Transaction(NamedTuple):
    """All that the log says about a transactional id."""

    transactional_id: str
    producer: Producer
    """The producer of the transaction's batches; once prepared, the producer in its markers."""
    timeout_ms: int
    update_ms: int
    state: State = State.EMPTY
    previous_producer_id: ProducerId = NO_ID
    """The id of the holder's predecessor, which may repeat its request if the response was lost.
    None if a new producer has come without naming its predecessor."""
    next_producer: Producer = NO_PRODUCER
    """The holder of the transactional id, if it is not the producer of the batches."""
    partitions: tuple[TopicPartition, ...] = ()
    """In order, partitions of one topic together."""
    start_ms: int = NO_TIME_MS
    client_version: int = 0

    @property
    def holder(self) -> Producer:
        """The current producer: the last identity that a client has received."""
        return self.producer if self.next_producer == NO_PRODUCER else self.next_producer

    @property
    def is_kept(self) -> bool:
        """Whether another producer than its writer is to end this transaction."""
        return self.state is State.ONGOING and self.next_producer != NO_PRODUCER

    @property
    def is_commit(self) -> bool:
        """Whether it is being committed, or is committed."""
        return self.state in _COMMITS

    def is_predecessor(self, producer: Producer) -> bool:
        """Whether the holder is the direct successor of this producer."""
        return self.previous_producer_id != NO_ID and self._came_before(producer)

    def is_ended_by(self, producer: Producer) -> bool:
        """Whether it is this producer that has ended the transaction, or would have (KIP-890)."""
        if self.client_version >= EPOCH_BUMP_VERSION:
            return self._came_before(producer)
        return self.state in PREPARED and producer == self.holder

    def _came_before(self, producer: Producer) -> bool:
        holder = self.holder
        if holder.epoch > 0:
            return producer == Producer(holder.producer_id, holder.epoch - 1)
        is_other = producer.producer_id not in {holder.producer_id, NO_ID}
        return is_other and producer == Producer(self.previous_producer_id, LAST_EPOCH_GIVEN)

    # -- moves ----------------------------------------------------------------------------------

    def held_by(
        self, producer: Producer, timeout_ms: int, now_ms: int, *, previous_id: int
    ) -> "Transaction":
        """Return it for a producer that begins, or begins again, with nothing."""
        return self._moved(
            State.EMPTY,
            producer=producer,
            previous_producer_id=previous_id,
            next_producer=NO_PRODUCER,
            timeout_ms=timeout_ms,
            partitions=(),
            start_ms=NO_TIME_MS,
            update_ms=now_ms,
        )

    def kept_for(
        self, producer: Producer, timeout_ms: int, now_ms: int, *, previous_id: int
    ) -> "Transaction":
        """Return it for a producer that has come to end it: it is never given less time."""
        return self._moved(
            State.ONGOING,
            next_producer=producer,
            previous_producer_id=previous_id,
            timeout_ms=max(timeout_ms, self.timeout_ms),
            update_ms=now_ms,
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> "Transaction":
        """Return it with these partitions as well; the first partitions begin a transaction."""
        return self._moved(
            State.ONGOING,
            partitions=tuple(sorted({*self.partitions, *partitions})),
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, state: State, told: Producer, client_version: int, now_ms: int, *, previous_id: int
    ) -> "Transaction":
        """Return it with its end decided, and with the producer's next identity."""
        producer_id = self.producer.producer_id
        is_same_id = told.producer_id == producer_id
        return self._moved(
            state,
            producer=told if is_same_id else Producer(producer_id, EPOCH_MAX),
            previous_producer_id=previous_id,
            next_producer=NO_PRODUCER if is_same_id else told,
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Return it with its end known everywhere."""
        return self._moved(
            State.COMPLETE_COMMIT if self.is_commit else State.COMPLETE_ABORT,
            producer=self.holder,
            next_producer=NO_PRODUCER,
            partitions=(),
            update_ms=now_ms,
        )

    def _moved(self, state: State, **changes: object) -> "Transaction":
        assert state in MOVES[self.state], f"{self.transactional_id}: {self.state} to {state}"
        return self._replace(state=state, **changes)  # type: ignore[arg-type]
