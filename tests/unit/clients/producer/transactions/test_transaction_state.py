"""The states of a producer's transactions: every path ends as the state diagram says."""

import pytest

from ottla.clients.errors import RETRIABLE
from ottla.clients.producer.transactions.transaction_errors import (
    ABORTABLE,
    FATAL_FOR_BATCHES,
    FENCED,
    ProducerFencedError,
    TransactionAbortableError,
    abortable,
    fatal,
)
from ottla.clients.producer.transactions.transaction_state import (
    MOVES,
    WHY_NOT,
    PreparedTxnState,
    State,
    is_move,
)
from ottla.model.error_code import ErrorCode


def test_every_state_is_reached_and_only_a_fatal_error_is_the_end() -> None:
    reached = {State.UNINITIALIZED}
    while more := {target for state in reached for target in MOVES[state]} - reached:
        reached |= more
    assert reached | {State.FATAL_ERROR} == set(State)
    assert [state for state in State if not MOVES[state]] == [State.FATAL_ERROR]
    assert all(is_move(state, State.FATAL_ERROR) for state in State)
    assert set(WHY_NOT) == set(MOVES) == set(State)


def test_a_transaction_that_failed_can_only_be_aborted() -> None:
    assert MOVES[State.ABORTABLE_ERROR] == {State.ABORTING}
    assert not is_move(State.ABORTING, State.ABORTABLE_ERROR)


def test_no_code_means_two_things() -> None:
    assert not ABORTABLE & RETRIABLE
    assert not ABORTABLE & FENCED
    assert not FATAL_FOR_BATCHES & RETRIABLE


def test_an_error_says_what_to_do_and_nobody_takes_it_for_one_that_passes() -> None:
    failed = abortable(ErrorCode.NOT_LEADER_OR_FOLLOWER, "partition t-0")
    assert failed.code is ErrorCode.TRANSACTION_ABORTABLE
    assert "partition t-0 (call abort_transaction" in str(failed)
    again = failed.again()
    assert type(again) is TransactionAbortableError
    assert str(again) == str(failed)
    assert isinstance(fatal(ErrorCode.INVALID_PRODUCER_EPOCH, ""), ProducerFencedError)


def test_a_prepared_transaction_has_a_name() -> None:
    state = PreparedTxnState(4711, 3)
    assert str(state) == "4711:3"
    assert PreparedTxnState.parse("4711:3") == state
    for wrong in ("", "4711", "4711:", ":3", "-1:3", "4711:3:1", "x:y"):
        with pytest.raises(ValueError, match="expected producer-id:epoch"):
            PreparedTxnState.parse(wrong)
