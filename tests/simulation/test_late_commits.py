"""A commit that arrives after its member has rejoined under the same group.instance.id."""

import asyncio

import pytest

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.group.group_errors import CommitFailedError
from ottla.clients.consumer.group.membership import GroupMembership
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.model.address import Address
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.simulation.stories.broker_program import PORT, BrokerProgram
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from tests.simulation.client_making import producer_on, send_all

BROKER, MEMBER = "broker", "member"
SETTINGS = ConsumerSettings(
    group_id="readers",
    group_instance_id="first",
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    session_timeout_ms=6_000,
    heartbeat_interval_ms=1_000,
)


def test_a_static_member_is_not_fenced_by_itself() -> None:
    world = World(seed=1)

    async def read(machine: Machine) -> None:
        settings = ClientSettings((Address(BROKER, PORT),), timeout_ms=60_000)
        view = ClusterView(settings, machine.network.connect)
        async with producer_on(machine, view) as producer:
            await send_all(producer, "letters", [b"one"])
        view = ClusterView(settings, machine.network.connect)
        async with AsyncConsumer.over(view, SETTINGS, machine.clock) as consumer:
            await consumer.subscribe(["letters"])
            assert len(await consumer.poll(timeout=None)) == 1
            group = consumer.core.group
            assert isinstance(group, GroupMembership)
            async with group._offsets._turn:  # holds the lock, as a slow commit does
                late = asyncio.create_task(consumer.commit({TopicPartition("letters", 0): 1}))
                await lose_membership(consumer)
            with pytest.raises(CommitFailedError) as refused:
                await late
            assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID
            await consumer.commit({TopicPartition("letters", 0): 1})

    async def lose_membership(consumer: AsyncConsumer) -> None:
        """Send no heartbeats until the coordinator has removed the member, then join again."""
        before = consumer.group_metadata()
        world.network.block(MEMBER, BROKER)
        await world.elapse(10)
        world.network.unblock(MEMBER, BROKER)
        while consumer.group_metadata().member_id in {"", before.member_id}:
            await consumer.poll(timeout=0.1)

    async def story() -> None:
        world.machine(BROKER).start(BrokerProgram())
        await world.machine(MEMBER).start(read)

    world.run(story())
