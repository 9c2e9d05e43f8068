"""The simulated ZooKeeper and a real one keep one contract, as a session sees it."""

import asyncio
import posixpath
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from ottla.environment.zookeeper import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SessionState,
    Write,
    ZooKeeperError,
    ZooKeeperSession,
)
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.simulation.world.zookeeper import MACHINE, SimulatedZooKeeper
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.zookeeper.kazoo_session import KazooSession, connect

TIMEOUT = 30.0
"""A busy machine ends no session."""
SHORT_TIMEOUT = 2.0
Story = Callable[["Place"], Awaitable[None]]


class Place(Protocol):
    """The environment in which a scenario about sessions runs."""

    def run(self, story: Story) -> None: ...
    async def connect(self, timeout: float = TIMEOUT) -> ZooKeeperSession: ...  # noqa: ASYNC109
    async def elapse(self, seconds: float) -> None: ...
    async def expire(self, session: Any) -> None:
        """End a session on the server's side."""
        ...

    def freeze(self) -> None:
        """Hold back all responses."""
        ...

    def thaw(self) -> None: ...


class Simulation:
    def __init__(self) -> None:
        self.world = World(1)
        self.zookeeper = SimulatedZooKeeper(self.world.loop, self.world.network)

    def run(self, story: Story) -> None:
        async def program(_: Machine) -> None:
            await story(self)

        async def told() -> None:
            await self.world.machine("a").start(program)

        self.world.run(told())

    async def connect(self, timeout: float = TIMEOUT) -> ZooKeeperSession:  # noqa: ASYNC109
        return self.zookeeper.connect(timeout)

    async def elapse(self, seconds: float) -> None:
        await self.world.elapse(seconds)

    async def expire(self, session: Any) -> None:
        self.zookeeper.expire(session.session_id)

    def freeze(self) -> None:
        self.world.network.block("a", MACHINE)

    def thaw(self) -> None:
        self.world.network.unblock("a", MACHINE)


class Reality:
    chroots = count()

    def __init__(self, server: ZooKeeperServer) -> None:
        self.server = server
        self.hosts = f"{server.hosts}/test/{next(self.chroots)}"
        self.sessions: list[KazooSession] = []

    def run(self, story: Story) -> None:
        async def told() -> None:
            try:
                await story(self)
            finally:
                self.thaw()
                for session in self.sessions:
                    await session.close()

        asyncio.run(told())

    async def connect(self, timeout: float = TIMEOUT) -> ZooKeeperSession:  # noqa: ASYNC109
        session = await connect(self.hosts, timeout)
        self.sessions.append(session)
        return session

    async def elapse(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def expire(self, session: Any) -> None:
        """Take the session over by its password, and end it.

        Its client connects again and may take it back before it is ended: then once more.
        """
        while session.state is not SessionState.EXPIRED:
            thief = KazooClient(self.hosts, client_id=session._client.client_id)
            with suppress(KazooException):
                await asyncio.to_thread(thief.start)
            await asyncio.to_thread(thief.stop)
            thief.close()
            await asyncio.sleep(0.2)

    def freeze(self) -> None:
        self.server.pause()

    def thaw(self) -> None:
        self.server.resume()


@pytest.fixture(params=["simulated", "real"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "simulated":
        return Simulation()
    return Reality(request.getfixturevalue("zookeeper_server"))


async def until(place: Place, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds: at once in the simulation, longer on a slow real machine."""
    for _ in range(600):
        if holds():
            return
        await place.elapse(0.05)
    raise AssertionError("it does not come to that")


def test_nodes_are_made_read_changed_and_removed(place: Place) -> None:
    async def story(place: Place) -> None:
        session = await place.connect()
        await session.commit([Create("/a", b"1"), Create("/a/c"), Create("/a/b", b"2")])
        assert await session.children("/a") == ["b", "c"]
        node = await session.get("/a")
        assert (node.data, node.stat.version, node.stat.owner_session) == (b"1", 0, 0)
        await session.commit([Write("/a", b"3", 0), Write("/a", b"4", 1), Write("/a", b"")])
        node = await session.get("/a")
        assert (node.data, node.stat.version) == (b"", 3)
        assert await session.exists("/a") == node.stat
        await session.commit([Check("/a", 3), Delete("/a/b"), Delete("/a/c", 0), Delete("/a", 3)])
        assert await session.exists("/a") is None

    place.run(story)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), NodeExistsError),
        (Create("/x/y"), NoNodeError),
        (Write("/x", b""), NoNodeError),
        (Write("/a", b"", 1), BadVersionError),
        (Delete("/x"), NoNodeError),
        (Delete("/a/b", 7), BadVersionError),
        (Delete("/a"), NotEmptyError),
        (Check("/a", 1), BadVersionError),
        (Check("/x", 0), NoNodeError),
    ],
)
def test_what_cannot_be_done_is_named_and_nothing_of_the_commit_is_done(
    place: Place, operation: Operation, error: type[ZooKeeperError]
) -> None:
    async def story(place: Place) -> None:
        session = await place.connect()
        await session.commit([Create("/a"), Create("/a/b")])
        with pytest.raises(ZooKeeperError) as refused:
            await session.commit([Check("/a", 0), Create("/c"), operation, Create("/no/parent")])
        assert type(refused.value) is error
        assert await session.exists("/c") is None
        assert (await session.get("/a")).stat.version == 0

    place.run(story)


def test_reading_what_is_not_there_says_so(place: Place) -> None:
    async def story(place: Place) -> None:
        session = await place.connect()
        with pytest.raises(NoNodeError):
            await session.get("/x")
        with pytest.raises(NoNodeError):
            await session.children("/x")
        assert await session.exists("/x") is None

    place.run(story)


def test_an_ephemeral_node_goes_with_its_session_and_comes_back_as_another_one(
    place: Place,
) -> None:
    async def story(place: Place) -> None:
        first, second = await place.connect(), await place.connect()
        await first.commit([Create("/a", is_ephemeral=True)])
        before = (await second.get("/a")).stat
        assert before.owner_session == first.session_id != second.session_id
        await first.close()
        assert first.state is SessionState.EXPIRED
        with pytest.raises(SessionExpiredError):
            await first.get("/")
        assert await second.exists("/a") is None
        await second.commit([Create("/a", is_ephemeral=True)])
        after = (await second.get("/a")).stat
        assert after.owner_session == second.session_id
        assert after.created_zxid > before.created_zxid

    place.run(story)


def test_watches_notify_once_each_for_what_they_watch(place: Place) -> None:
    async def story(place: Place) -> None:
        session, other = await place.connect(), await place.connect()
        notified: list[str] = []
        await session.commit([Create("/a"), Create("/b")])
        await session.exists("/new", lambda: notified.append("created"))
        await session.get("/a", lambda: notified.append("written"))
        await session.children("/a", lambda: notified.append("child"))
        await session.exists("/b", lambda: notified.append("deleted"))
        await session.get("/", lambda: notified.append("untouched"))
        await other.commit([Create("/new"), Write("/a", b"x"), Create("/a/c"), Delete("/b")])
        await other.commit([Delete("/new"), Write("/a", b"y"), Delete("/a/c"), Create("/b")])
        await until(place, lambda: len(notified) >= 4)
        await place.elapse(0.1)
        assert sorted(notified) == ["child", "created", "deleted", "written"]

    place.run(story)


def test_a_lost_session_is_reported_and_refuses_every_call(place: Place) -> None:
    async def story(place: Place) -> None:
        session, other = await place.connect(), await place.connect()
        states: list[SessionState] = []
        session.on_state(states.append)
        await session.commit([Create("/a", is_ephemeral=True)])
        await place.expire(session)
        # The state may change in another thread, before the listener is called.
        await until(place, lambda: states[-1:] == [SessionState.EXPIRED])
        assert session.state is SessionState.EXPIRED
        assert states.count(SessionState.EXPIRED) == 1
        for _ in range(2):
            with pytest.raises(SessionExpiredError):
                await session.commit([Create("/b")])
            with pytest.raises(SessionExpiredError):
                await session.get("/")
            await place.elapse(0.5)  # by default kazoo would have begun a new session by now
        assert session.state is SessionState.EXPIRED
        assert await other.children("/") == []

    place.run(story)


def test_without_a_response_the_outcome_is_unknown(place: Place) -> None:
    async def story(place: Place) -> None:
        session = await place.connect(SHORT_TIMEOUT)
        place.freeze()
        with pytest.raises(ConnectionLostError):
            await session.commit([Create("/a")])
        await until(place, lambda: session.state is SessionState.SUSPENDED)
        place.thaw()
        await until(place, lambda: session.state is not SessionState.SUSPENDED)

    place.run(story)


def test_of_many_creators_of_a_node_one_wins(place: Place) -> None:
    async def story(place: Place) -> None:
        sessions = [await place.connect() for _ in range(4)]

        async def try_it(session: ZooKeeperSession) -> bool:
            try:
                await session.commit([Create("/controller", is_ephemeral=True)])
            except NodeExistsError:
                return False
            return True

        assert sum(await asyncio.gather(*map(try_it, sessions))) == 1

    place.run(story)


def test_a_commit_can_be_as_large_as_we_make_them(place: Place) -> None:
    async def story(place: Place) -> None:
        session = await place.connect()
        await session.commit([Create("/a")])
        await session.commit([Create(f"/a/{number}", bytes(1000)) for number in range(500)])
        assert len(await session.children("/a")) == 500
        await session.commit([Write("/a", bytes(700_000))])
        assert len((await session.get("/a")).data) == 700_000

    place.run(story)


# -- random runs compared -------------------------------------------------------------------------

PATHS = ["/a", "/a/a", "/a/b", "/b", "/b/a", "/b/a/a"]


def random_operation(dice: Random) -> Operation:
    path, version = dice.choice(PATHS), dice.choice([-1, -1, 0, 1, 2])
    data = b"%d" % dice.randrange(100)
    return dice.choice(
        [
            Create(path, data),
            Create(path, data),
            Write(path, data, version),
            Delete(path, version),
            Check(path, max(version, 0)),
        ]
    )


async def life(session: ZooKeeperSession, seed: int) -> list[object]:
    """Return everything that a session observes during random operations."""
    dice = Random(seed)
    seen: list[object] = []
    for _ in range(120):
        operations = [random_operation(dice) for _ in range(dice.randrange(1, 4))]
        try:
            await session.commit(operations)
        except ZooKeeperError as error:
            seen.append(type(error))
        else:
            seen.append(operations)
        seen.append(await tree(session, "/"))
    return seen


async def tree(session: ZooKeeperSession, path: str) -> list[object]:
    node = await session.get(path)
    found: list[object] = [(path, node.data, node.stat.version)]
    for name in await session.children(path):
        found += await tree(session, posixpath.join(path, name))
    return found


def test_the_simulated_zookeeper_does_what_the_real_one_does(
    zookeeper_server: ZooKeeperServer,
) -> None:
    seen: list[list[object]] = []

    async def story(place: Place) -> None:
        seen.append(await life(await place.connect(), 1))

    Simulation().run(story)
    Reality(zookeeper_server).run(story)
    simulated, real = seen
    assert simulated == real
    assert {NodeExistsError, NoNodeError, BadVersionError, NotEmptyError} <= {
        one for one in real if isinstance(one, type)
    }


def test_a_session_without_a_server_fails_within_the_timeout() -> None:
    async def story() -> None:
        with pytest.raises(ConnectionLostError, match="no ZooKeeper server answers"):
            await connect("127.0.0.1:1", 0.5)

    asyncio.run(story())


def test_an_address_that_is_no_list_of_servers_is_refused_in_one_sentence() -> None:
    async def story() -> None:
        with pytest.raises(ConnectionLostError, match="'' is not a list of ZooKeeper servers"):
            await connect("", 0.5)

    asyncio.run(story())
