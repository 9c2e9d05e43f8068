"""Legal state transitions, and the order of producers."""

from itertools import product

import pytest

from ottla.machines.transactions.producer_ids import (
    EPOCH_MAX,
    LAST_EPOCH_GIVEN,
    Producer,
    ProducerIdNeeded,
    successor,
)
from ottla.machines.transactions.transaction import (
    COMPLETED,
    IDLE,
    MOVES,
    PREPARED,
    State,
    Transaction,
)


def in_state(state: State, **fields: object) -> Transaction:
    return Transaction("t", Producer(7, 3), 1000, 50, state)._replace(**fields)  # type: ignore[arg-type]


ACTS = {
    State.EMPTY: lambda one: one.held_by(Producer(7, 4), 1000, 60, previous_id=-1),
    State.ONGOING: lambda one: one.with_partitions([], 2, 60),
    State.PREPARE_COMMIT: lambda one: one.prepared(
        State.PREPARE_COMMIT, Producer(7, 4), 2, 60, previous_id=7
    ),
    State.PREPARE_ABORT: lambda one: one.prepared(
        State.PREPARE_ABORT, Producer(7, 4), 2, 60, previous_id=7
    ),
}


@pytest.mark.parametrize(("before", "after"), list(product(State, ACTS)))
def test_only_moves_of_the_table_are_made(before: State, after: State) -> None:
    if after in MOVES[before]:
        assert ACTS[after](in_state(before)).state is after
    else:
        with pytest.raises(AssertionError):
            ACTS[after](in_state(before))


@pytest.mark.parametrize("state", State)
def test_only_a_prepared_transaction_completes_and_only_as_prepared(state: State) -> None:
    if state in PREPARED:
        (end,) = MOVES[state]
        assert in_state(state).completed(60).state is end
        assert end in COMPLETED
        assert ("COMMIT" in end.name) == ("COMMIT" in state.name)
    else:
        with pytest.raises(AssertionError):
            in_state(state).completed(60)


def test_an_expired_id_has_no_open_transaction() -> None:
    assert {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT} == IDLE


def test_the_last_epoch_that_is_given_leaves_one_to_fence_it_with() -> None:
    last = successor(Producer(7, LAST_EPOCH_GIVEN - 1), None)
    assert last == Producer(7, EPOCH_MAX - 1)
    assert last.fenced() == Producer(7, 32767)
    assert last.fenced().fenced() == Producer(7, 32767)
    with pytest.raises(ProducerIdNeeded):
        successor(last, None)
    assert successor(last, 8) == Producer(8, 0)


def test_the_previous_producer_is_known_by_id_and_epoch() -> None:
    one = in_state(State.COMPLETE_COMMIT, previous_producer_id=7, client_version=2)
    assert one.is_predecessor(Producer(7, 2))
    assert not any(map(one.is_predecessor, [Producer(7, 3), Producer(7, 1), Producer(8, 2)]))
    rotated = one._replace(producer=Producer(8, 0))
    assert rotated.is_predecessor(Producer(7, LAST_EPOCH_GIVEN))
    assert not rotated.is_predecessor(Producer(7, EPOCH_MAX))
    assert not rotated.is_predecessor(Producer(8, LAST_EPOCH_GIVEN))
    alone = one._replace(previous_producer_id=-1)
    assert not alone.is_predecessor(Producer(7, 2))
    assert alone.is_ended_by(Producer(7, 2))
    assert not alone._replace(producer=Producer(8, 0)).is_ended_by(Producer(-1, LAST_EPOCH_GIVEN))
