"""Automatic commits: their offsets, their schedule, and the results of background commits."""

import asyncio

import pytest

from ottla.clients.consumer.group.auto_commits import (
    COMMIT_AGAIN_SECONDS,
    AutoCommits,
    BackgroundCommits,
    Offsets,
)
from ottla.clients.consumer.state.offsets import OffsetAndMetadata
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import Position, SubscriptionState
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

A, B = TopicPartition("letters", 0), TopicPartition("letters", 1)


def reading(*, at: int) -> SubscriptionState:
    state = SubscriptionState()
    state.assign_by_hand([A, B])
    state.seek(A, Position(at))
    return state


def test_the_first_commit_is_due_after_one_interval() -> None:
    auto = AutoCommits(reading(at=3), ConsumerSettings(auto_commit_interval_ms=5_000))
    assert [auto.is_due(now) for now in (100.0, 104.9, 105.0)] == [False, False, True]
    assert auto.take(105.0) == {A: OffsetAndMetadata(3)}
    assert [auto.is_due(now) for now in (109.9, 110.0)] == [False, True]


def test_what_has_been_committed_is_not_committed_again() -> None:
    state = reading(at=3)
    auto = AutoCommits(state, ConsumerSettings())
    auto.on_commit(auto.take(0.0), None)
    assert auto.take(0.0) == {}
    state.seek(A, Position(7, 2))
    assert auto.take(0.0) == {A: OffsetAndMetadata(7, 2)}


def test_what_has_been_committed_is_committed_again_before_a_broker_forgets_it() -> None:
    auto = AutoCommits(reading(at=3), ConsumerSettings())
    for now in (100.0, 100.0 + COMMIT_AGAIN_SECONDS, 100.0 + 2 * COMMIT_AGAIN_SECONDS):
        offsets = auto.take(now)
        assert offsets == {A: OffsetAndMetadata(3)}
        auto.on_commit(offsets, None)
        assert auto.take(now + COMMIT_AGAIN_SECONDS - 1) == {}


def test_what_failed_or_was_forgotten_is_committed_again(caplog: pytest.LogCaptureFixture) -> None:
    auto = AutoCommits(reading(at=3), ConsumerSettings())
    offsets = auto.take(0.0)
    auto.on_commit(offsets, ApiError(ErrorCode.REQUEST_TIMED_OUT))
    assert "REQUEST_TIMED_OUT" in caplog.text
    assert auto.take(0.0) == offsets
    auto.on_commit(offsets, None)
    auto.forget([A])
    assert auto.take(0.0) == offsets


def test_only_the_partitions_that_go_are_committed() -> None:
    state = reading(at=3)
    state.seek(B, Position(4))
    auto = AutoCommits(state, ConsumerSettings())
    assert auto.take(0.0, [B]) == {B: OffsetAndMetadata(4)}


def test_nothing_is_committed_where_that_is_not_wanted() -> None:
    auto = AutoCommits(reading(at=3), ConsumerSettings(enable_auto_commit=False))
    assert not auto.is_due(1e9)
    assert auto.take(1e9) == {}


def test_callbacks_wait_until_they_are_told_and_hear_of_failures() -> None:
    told: list[tuple[Offsets, Exception | None]] = []
    failure = ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE)

    async def commit(offsets: Offsets) -> None:
        await asyncio.sleep(0)
        if B in offsets:
            raise failure

    async def story() -> None:
        background = BackgroundCommits(commit)
        for name in (A, B):
            background.start({name: OffsetAndMetadata(1)}, lambda *both: told.append(both))
        background.start({B: OffsetAndMetadata(1)}, None)
        await background.drain()
        assert background.has_news
        assert told == []
        await background.tell()
        assert not background.has_news

    asyncio.run(story())
    assert told == [({A: OffsetAndMetadata(1)}, None), ({B: OffsetAndMetadata(1)}, failure)]
