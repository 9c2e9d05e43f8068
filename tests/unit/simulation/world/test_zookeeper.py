"""The simulated ZooKeeper acts like the real one: sessions, versions, watches, lost responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from ottla.environment.zookeeper import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SessionState,
    Write,
)
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.simulation.world.zookeeper import MACHINE, SimulatedSession, SimulatedZooKeeper

TIMEOUT = 6.0
T = TypeVar("T")
Story = Callable[[World, SimulatedSession], Awaitable[T]]


def tell(story: Story[T], seed: int = 1) -> T:
    """Run a scenario on machine a, which has a session."""
    world = World(seed)
    zookeeper = SimulatedZooKeeper(world.loop, world.network)
    world.zookeeper = zookeeper  # type: ignore[attr-defined]

    async def program(_: Machine) -> T:
        return await story(world, zookeeper.connect(TIMEOUT))

    async def run() -> T:
        found: T = await world.machine("a").start(program)
        return found

    return world.run(run())


async def beside(world: World, name: str, act: Callable[[SimulatedSession], Awaitable[Any]]) -> Any:
    """Act in a session of another machine, and keep that session open."""
    done = world.loop.create_future()

    async def program(_: Machine) -> None:
        session = world.zookeeper.connect(TIMEOUT)  # type: ignore[attr-defined]
        done.set_result(await act(session))
        await world.loop.create_future()

    world.machine(name).start(program)
    return await done


def test_nodes_are_made_read_changed_and_removed() -> None:
    async def story(_: World, session: SimulatedSession) -> None:
        await session.commit([Create("/a", b"1"), Create("/a/b", b"2")])
        assert await session.children("/a") == ["b"]
        node = await session.get("/a")
        assert (node.data, node.stat.version) == (b"1", 0)
        await session.commit([Write("/a", b"3", 0)])
        node = await session.get("/a")
        assert (node.data, node.stat.version) == (b"3", 1)
        with pytest.raises(NotEmptyError):
            await session.commit([Delete("/a")])
        await session.commit([Delete("/a/b"), Delete("/a", 1)])
        assert await session.exists("/a") is None

    tell(story)


def test_what_is_not_so_is_refused_and_leaves_no_trace() -> None:
    async def story(_: World, session: SimulatedSession) -> None:
        await session.commit([Create("/a", b"1")])
        with pytest.raises(NodeExistsError):
            await session.commit([Create("/b"), Write("/a", b"2"), Delete("/a"), Create("/b")])
        with pytest.raises(BadVersionError):
            await session.commit([Write("/a", b"2"), Check("/a", 7)])
        with pytest.raises(NoNodeError):
            await session.commit([Delete("/a"), Create("/x/y")])
        assert await session.exists("/b") is None
        node = await session.get("/a")
        assert (node.data, node.stat.version) == (b"1", 0)

    tell(story)


def test_an_ephemeral_node_goes_when_its_machine_has_been_dead_for_the_timeout() -> None:
    async def story(world: World, session: SimulatedSession) -> None:
        await beside(world, "b", lambda s: s.commit([Create("/b", is_ephemeral=True)]))
        gone = world.loop.create_future()
        assert await session.exists("/b", lambda: gone.set_result(world.loop.time()))
        world.machine("b").kill()
        died_at = world.loop.time()
        assert TIMEOUT - 2 < await gone - died_at < TIMEOUT + 1

    tell(story)


def test_a_watch_rings_once_and_says_nothing_but_look_again() -> None:
    async def story(world: World, session: SimulatedSession) -> None:
        notified = []
        await session.commit([Create("/a")])
        await session.children("/a", lambda: notified.append("children"))
        await session.get("/a", lambda: notified.append("data"))
        await session.commit([Create("/a/b")])
        await session.commit([Create("/a/c"), Write("/a", b"x")])
        await session.commit([Write("/a", b"y")])
        await world.elapse(1)
        assert sorted(notified) == ["children", "data"]

    tell(story)


def test_an_answer_that_gets_lost_leaves_it_open_whether_it_has_happened() -> None:
    async def story(world: World, session: SimulatedSession) -> None:
        world.network.block(MACHINE, "a")
        with pytest.raises(ConnectionLostError):
            await session.commit([Create("/there")])
        assert session.state is SessionState.SUSPENDED
        world.network.unblock(MACHINE, "a")
        world.network.block("a", MACHINE)
        with pytest.raises(ConnectionLostError):
            await session.commit([Create("/not-there")])
        world.network.unblock("a", MACHINE)
        assert await session.exists("/there")
        assert await session.exists("/not-there") is None
        assert session.state is SessionState.CONNECTED

    tell(story)


def test_an_operation_that_was_given_up_can_happen_later() -> None:
    async def story(world: World, session: SimulatedSession) -> None:
        world.network.block("a", MACHINE)
        with pytest.raises(ConnectionLostError):
            await session.commit([Create("/late")])
        world.network.unblock("a", MACHINE)
        assert await session.exists("/late") is None
        await world.elapse(TIMEOUT)
        assert await session.exists("/late")

    tell(story)


def test_a_client_cut_off_for_too_long_learns_that_its_session_ended() -> None:
    async def story(world: World, session: SimulatedSession) -> None:
        states: list[SessionState] = []
        session.on_state(states.append)
        await session.commit([Create("/a", is_ephemeral=True)])
        world.network.block("a", MACHINE)
        await world.elapse(2 * TIMEOUT)
        assert states == [SessionState.SUSPENDED]
        world.network.unblock("a", MACHINE)
        await world.elapse(TIMEOUT)
        assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
        with pytest.raises(SessionExpiredError):
            await session.get("/")
        other = world.zookeeper.connect(TIMEOUT)  # type: ignore[attr-defined]
        assert await other.exists("/a") is None

    tell(story)


def test_an_idle_session_lives_as_long_as_its_process() -> None:
    async def story(world: World, session: SimulatedSession) -> None:
        await session.commit([Create("/a", is_ephemeral=True)])
        await world.elapse(100 * TIMEOUT)
        assert await session.exists("/a")
        await session.close()
        other = world.zookeeper.connect(TIMEOUT)  # type: ignore[attr-defined]
        assert await other.exists("/a") is None

    tell(story)


def test_of_many_creators_of_a_node_one_wins() -> None:
    async def story(world: World, session: SimulatedSession) -> None:
        async def try_it(own: SimulatedSession) -> bool:
            try:
                await own.commit([Create("/controller", is_ephemeral=True)])
            except NodeExistsError:
                return False
            return True

        won = await asyncio.gather(*[beside(world, f"m{number}", try_it) for number in range(9)])
        assert sum(won) == 1

    tell(story)
