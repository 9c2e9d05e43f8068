"""The commit before partitions are revoked: begun once, in the background, without blocking."""

import asyncio
import gc

import pytest

from ottla.clients.consumer.group.auto_commits import AutoCommits, Offsets
from ottla.clients.consumer.group.final_auto_commit import LastCommit
from ottla.clients.consumer.group.group_protocol import OffsetAndMetadata
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import Position, SubscriptionState
from ottla.model.identifiers import TopicPartition

A, B = TopicPartition("letters", 0), TopicPartition("letters", 1)


class Commits:
    """Commits that end when the test says so."""

    def __init__(self) -> None:
        state = SubscriptionState()
        state.assign_by_hand([A, B])
        state.seek(A, Position(3))
        self.may_end, self.is_woken = asyncio.Event(), asyncio.Event()
        self.begun: list[Offsets] = []
        auto = AutoCommits(state, ConsumerSettings())
        self.last = LastCommit(auto, self._commit, self.is_woken.set)

    async def _commit(self, offsets: Offsets) -> None:
        self.begun.append(offsets)
        await self.may_end.wait()


def test_it_is_begun_once_and_wakes_who_is_to_go_on() -> None:
    async def story() -> None:
        commits = Commits()
        assert not commits.last.go_on([A])
        await asyncio.sleep(0)
        assert not commits.last.go_on([A])
        assert commits.last.is_under_way
        commits.may_end.set()
        await commits.is_woken.wait()
        assert commits.last.is_begun
        assert commits.last.go_on([A])
        assert not commits.last.is_begun
        assert commits.begun == [{A: OffsetAndMetadata(3)}]

    asyncio.run(story())


def test_there_is_none_of_what_was_not_read() -> None:
    async def story() -> None:
        commits = Commits()
        assert commits.last.go_on([B])
        await asyncio.sleep(0)
        assert commits.begun == []

    asyncio.run(story())


def test_what_nobody_expects_is_logged_and_does_not_keep_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_offsets: Offsets) -> None:
        await asyncio.sleep(0)
        raise LookupError("no place for it")

    async def story() -> None:
        commits = Commits()
        commits.last._commit = fail
        assert not commits.last.go_on([A])
        await commits.is_woken.wait()
        assert commits.last.go_on([A])

    asyncio.run(story())
    gc.collect()
    assert [record.name for record in caplog.records] == [
        "ottla.clients.consumer.group.final_auto_commit"
    ]
    assert "no place for it" in caplog.text
