"""Subscriptions, assignments and positions."""

import re

import pytest

from ottla.clients.consumer.state.errors import NotAssignedError
from ottla.clients.consumer.state.subscription import (
    Choice,
    Phase,
    Position,
    RebalanceListener,
    SubscriptionState,
)
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.consumer_record import ConsumerRecord

ONE, TWO = TopicPartition("letters", 1), TopicPartition("letters", 2)


def record(name: TopicPartition, offset: int) -> ConsumerRecord:
    return ConsumerRecord(*name, offset, 0, 0, None, b"", (), 0)


def test_partitions_that_stay_assigned_keep_their_position() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE])
    state.seek(ONE, Position(5))
    state.assign_by_hand([TWO, ONE])
    assert state.of(ONE).position == Position(5)
    assert state.of(TWO).phase is Phase.UNPLACED
    state.assign_by_hand([TWO])
    with pytest.raises(NotAssignedError, match="letters-1"):
        state.of(ONE)


def test_subscribing_and_assigning_exclude_each_other_until_unsubscribed() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE])
    with pytest.raises(ValueError, match=r"unsubscribe\(\) first"):
        state.subscribe(["letters"], RebalanceListener())
    state.unsubscribe()
    assert (state.choice, state.assigned) == (Choice.NOTHING, {})
    state.subscribe_pattern(re.compile("let.*"), RebalanceListener())
    assert state.choice is Choice.PATTERN


def test_to_assign_nothing_leaves_nothing_to_read() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE])
    state.assign_by_hand([])
    assert (state.choice, state.assigned) == (Choice.NOTHING, {})
    state.subscribe(["letters"], RebalanceListener())
    with pytest.raises(ValueError, match=r"unsubscribe\(\) first"):
        state.assign_by_hand([])


def test_a_jump_makes_what_was_fetched_before_it_worthless() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE])
    state.seek(ONE, Position(5))
    partition = state.of(ONE)
    generation, partition.buffered_bytes = partition.generation, 100
    state.seek(ONE, Position(7))
    assert partition.generation > generation
    assert partition.buffered_bytes == 0
    assert partition.fetch_position == Position(7)


def test_a_position_with_an_epoch_is_held_against_the_log_first() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE, TWO])
    state.seek(ONE, Position(5, 3))
    assert state.of(ONE).phase is Phase.VALIDATING
    state.place_committed({ONE: Position(99), TWO: Position(4)})
    assert state.consumed() == {ONE: Position(5, 3), TWO: Position(4)}


def test_records_that_an_iterator_still_holds_do_not_count_as_consumed() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE, TWO])
    state.seek(ONE, Position(8))
    state.seek(TWO, Position(4))
    state.unyielded.extend([record(ONE, 6), record(ONE, 7)])
    assert state.consumed() == {ONE: Position(6), TWO: Position(4)}
    state.seek(ONE, Position(1))
    assert not state.unyielded


def test_what_an_iterator_holds_can_be_given_back() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE, TWO])
    state.seek(ONE, Position(8))
    state.seek(TWO, Position(4))
    state.unyielded.extend([record(ONE, 6), record(ONE, 7)])
    state.give_back()
    assert not state.unyielded
    assert state.of(ONE).fetch_position == Position(6)
    assert state.consumed() == {ONE: Position(6), TWO: Position(4)}


def test_an_iterator_holds_nothing_of_what_is_paused() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE, TWO])
    state.seek(ONE, Position(8))
    state.seek(TWO, Position(4))
    state.unyielded.extend([record(TWO, 3), record(ONE, 6), record(ONE, 7)])
    state.pause(iter([ONE]))
    assert list(state.unyielded) == [record(TWO, 3)]
    assert (state.of(ONE).position, state.of(TWO).position) == (Position(6), Position(4))


def test_an_iterator_gives_back_what_it_holds_of_a_partition_that_goes() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE, TWO])
    state.seek(ONE, Position(8))
    state.seek(TWO, Position(4))
    state.unyielded.extend([record(TWO, 3), record(ONE, 6), record(ONE, 7)])
    state.mark_revoking([ONE])
    assert list(state.unyielded) == [record(TWO, 3)]
    assert state.of(ONE).position == state.consumed()[ONE] == Position(6)


def test_what_is_paused_or_being_revoked_is_not_fetched() -> None:
    state = SubscriptionState()
    state.assign_by_hand([ONE, TWO])
    for name in (ONE, TWO):
        state.seek(name, Position(0))
    state.pause([ONE])
    state.mark_revoking([TWO])
    assert not state.of(ONE).is_fetchable
    assert not state.of(TWO).is_fetchable
    state.resume([ONE])
    assert state.of(ONE).is_fetchable
