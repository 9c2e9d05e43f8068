"""The states of a producer's transactions and their allowed moves, as in Kafka's clients.

    UNINITIALIZED ⇄ INITIALIZING → READY → IN_TRANSACTION ─→ COMMITTING → READY
                         │                  │     │  │          ↑ ↓ an error
                         │                  │     │  └─→ ABORTABLE_ERROR
                         │                  │     │             ↓
                         │                  │     └──────→ ABORTING ──→ READY
                         └──→ PREPARED ←────┘
                                 └──→ COMMITTING or ABORTING

Every state can move to FATAL_ERROR, which has no way out.
"""

from enum import Enum, auto
from typing import Final, NamedTuple, Self


class State(Enum):
    """The states, with Kafka's names."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


MOVES: Final = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.READY, State.PREPARED}),
    State.READY: frozenset({State.IN_TRANSACTION}),
    State.IN_TRANSACTION: frozenset(
        {State.PREPARED, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR}
    ),
    State.PREPARED: frozenset({State.COMMITTING, State.ABORTING}),
    State.COMMITTING: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING}),
    State.ABORTING: frozenset({State.READY}),
    State.FATAL_ERROR: frozenset(),
}
"""All allowed moves except those to FATAL_ERROR."""
SENDING: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING})
"""The states in which records may be sent."""
COMPLETING: Final = frozenset({State.PREPARED, State.COMMITTING, State.ABORTING})
LEFT_OPEN: Final = frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.ABORTING})
"""The states in which closing the producer aborts the transaction."""

WHY_NOT: Final = {
    State.UNINITIALIZED: "call init_transactions first",
    State.INITIALIZING: "init_transactions is not finished",
    State.READY: "there is no transaction: call begin_transaction first",
    State.IN_TRANSACTION: "a transaction is open: commit or abort it first",
    State.PREPARED: "the transaction is prepared: it can only be committed, aborted or completed",
    State.COMMITTING: "commit_transaction is not finished: call it again",
    State.ABORTING: "abort_transaction is not finished: call it again",
    State.ABORTABLE_ERROR: "the transaction has failed: call abort_transaction",
    State.FATAL_ERROR: "the producer has failed: close it and create another",
}
"""The reason for refusing calls, by state."""
INIT: Final = "init_transactions"


def refusal(call: str, state: State) -> str:
    """Return the error message of a call that is refused in this state."""
    why = "it has been called already, and once is enough" if call == INIT else WHY_NOT[state]
    return f"{call}: {why}"


def is_move(source: State, target: State) -> bool:
    """Whether the move is allowed."""
    return target is State.FATAL_ERROR or target in MOVES[source]


class PreparedTxnState(NamedTuple):
    """The identity of a prepared transaction (KIP-939), to be stored with the commit decision."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `str`; ValueError for other text."""
        producer_id, colon, epoch = text.partition(":")
        if not (colon and producer_id.isdecimal() and epoch.isdecimal()):
            raise ValueError(f"{text!r} does not name a transaction: expected producer-id:epoch")
        return cls(int(producer_id), int(epoch))
