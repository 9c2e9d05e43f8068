"""Connections between brokers, over a working and over a faulty network."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.rpc.connection import Connection
from ottla.simulation.stories.broker_program import PORT, BrokerProgram
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

TIMEOUT_MS = 1_000
SERVER, PEER = "server", "peer"


def tell(story: Callable[[World, Machine], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on a machine next to a broker's machine."""
    world = World(1)

    async def whole() -> None:
        world.machine(SERVER).start(BrokerProgram())
        await world.elapse(1)
        await world.machine(PEER).start(lambda machine: story(world, machine))

    world.run(whole())


async def connected(machine: Machine) -> Connection:
    return await connect_to_broker(
        machine.network, SERVER, PORT, client_id="peer", timeout_ms=TIMEOUT_MS
    )


async def ask(connection: Connection, topic: str) -> str:
    """Request metadata of a topic; return the topic name in the response."""
    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
    answer = await connection.ask(
        ListOffsetsRequest(topics=[wanted]),
        ListOffsetsResponse,
        version_max=9,
        timeout_ms=TIMEOUT_MS,
    )
    return answer.topics[0].name


def test_answers_find_their_way_back() -> None:
    async def story(_: World, machine: Machine) -> None:
        connection = await connected(machine)
        names = [f"topic-{number}" for number in range(20)]
        assert await asyncio.gather(*[ask(connection, name) for name in names]) == names
        connection.close()

    tell(story)


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    async def story(world: World, machine: Machine) -> None:
        connection = await connected(machine)
        world.network.block(SERVER, PEER)
        with pytest.raises(TimeoutError):
            await ask(connection, "a")
        connection.close()

    tell(story)


def test_a_peer_that_cannot_be_reached_is_not_waited_for_either() -> None:
    async def story(world: World, machine: Machine) -> None:
        world.network.block(PEER, SERVER)
        with pytest.raises(ConnectionError, match="did not answer within"):
            await connected(machine)

    tell(story)


def test_waiting_callers_get_an_error_when_the_connection_ends() -> None:
    async def story(world: World, machine: Machine) -> None:
        connection = await connected(machine)
        world.machine(SERVER).pause()
        waiting = asyncio.create_task(ask(connection, "a"))
        await world.elapse(0.1)
        world.machine(SERVER).kill()
        with pytest.raises(ConnectionError):
            await waiting
        assert not connection.is_open
        with pytest.raises(ConnectionError):
            await ask(connection, "b")

    tell(story)


def test_what_is_no_broker_is_not_listened_to() -> None:
    async def noise(machine: Machine) -> None:
        (listener,) = await machine.network.listen("", PORT)
        accepted = machine.loop.create_future()
        machine.loop.add_reader(listener, lambda: accepted.done() or accepted.set_result(None))
        await accepted
        socket, _ = listener.accept()
        socket.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await machine.loop.create_future()

    async def story(world: World, machine: Machine) -> None:
        world.machine("other").start(noise)
        await world.elapse(0.1)
        connection = await connect_to_broker(
            machine.network, "other", PORT, client_id="peer", timeout_ms=TIMEOUT_MS
        )
        with pytest.raises(ConnectionError, match="not a Kafka broker"):
            await ask(connection, "a")

    tell(story)
