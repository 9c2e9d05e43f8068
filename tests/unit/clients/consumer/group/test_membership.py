"""The commit before partitions are revoked: in the background, once, without blocking a poll."""

import asyncio
from collections.abc import Mapping

import pytest

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.clients.consumer.group.membership import GroupMembership
from ottla.clients.consumer.group.membership_machine import MemberState
from ottla.clients.consumer.state.offsets import OffsetAndMetadata
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import (
    Position,
    RebalanceListener,
    SubscriptionState,
)
from ottla.clients.errors import UnreachableError
from ottla.model.address import Address
from ottla.model.identifiers import TopicPartition

A, B = TopicPartition("letters", 0), TopicPartition("letters", 1)


class Rejoining:
    """An eager member of an unreachable coordinator: it must revoke A and B, and has read A."""

    def __init__(self) -> None:
        self.state = SubscriptionState()
        self.revoked: list[list[TopicPartition]] = []
        self.state.subscribe(["letters"], RebalanceListener(on_revoked=self.revoked.append))
        self.state.set_assignment([A, B])
        self.state.seek(A, Position(3))
        self.may_commit, self.is_woken = asyncio.Event(), asyncio.Event()
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.failure: Exception | None = None
        self.membership = GroupMembership(
            ClusterView(ClientSettings((Address("nowhere", 1),)), self._connect),
            ConsumerSettings(group_id="readers"),
            self.state,
            self.is_woken.set,
            lambda _: None,
        )
        self.membership.commit = self._commit  # type: ignore[method-assign]

    async def _connect(self, *_: object, **__: object) -> object:
        raise UnreachableError("nowhere")

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *_: int) -> None:
        self.commits.append(offsets)
        await self.may_commit.wait()
        if self.failure is not None:
            raise self.failure

    async def finish(self) -> None:
        """Let the commit end, and poll again."""
        self.is_woken.clear()
        self.may_commit.set()
        await self.is_woken.wait()
        await self.membership.before_poll()


def test_it_begins_once_and_polls_go_on_meanwhile() -> None:
    async def story() -> None:
        member = Rejoining()
        for _ in range(2):
            await member.membership.before_poll()
            await asyncio.sleep(0)
            assert not member.membership.is_due()
        assert member.revoked == []
        await member.finish()
        assert member.commits == [{A: OffsetAndMetadata(3)}]
        assert member.revoked == [[A, B]]
        assert member.membership.machine.state is MemberState.JOINING
        await member.membership.close(0.0)

    asyncio.run(story())


@pytest.mark.parametrize("failure", [UnreachableError("away"), LookupError("no place for it")])
def test_its_failure_is_logged_and_does_not_keep_the_partitions(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        member = Rejoining()
        member.failure = failure
        await member.membership.before_poll()
        await member.finish()
        assert member.revoked == [[A, B]]
        member.failure = None
        await member.membership.close(0.0)

    asyncio.run(story())
    assert str(failure) in caplog.text


def test_there_is_none_of_partitions_that_were_not_read() -> None:
    async def story() -> None:
        member = Rejoining()
        member.state.set_assignment([B])
        await member.membership.before_poll()
        assert member.commits == []
        assert member.revoked == [[B]]
        await member.membership.close(0.0)

    asyncio.run(story())
