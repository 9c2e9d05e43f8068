"""A client's connections: reuse, backoff after failures, and the final close."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.clients.cluster.connections import Connections, connect
from ottla.clients.config.settings import ClientSettings
from ottla.clients.errors import UnreachableError
from ottla.environment.network import StreamSocket
from ottla.model.address import Address
from tests.unit.rpc.test_connection import be_asked_for_versions
from tests.unit.rpc.test_connection import run as run_with_server

NO_PRODUCER = Address("127.0.0.1", 1)


class Counting:
    """Connects, and counts its connections."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, host: str, port: int) -> StreamSocket:
        self.count += 1
        return await connect(host, port)


def run(work: Callable[[Connections, Counting, Address], Awaitable[None]], **settings: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await be_asked_for_versions(reader, writer)
            await reader.read()

    async def work_and_close(address: Address) -> None:
        counting = Counting()
        connections = Connections(ClientSettings((address,), **settings), counting)
        try:
            await work(connections, counting, address)
        finally:
            connections.close()

    run_with_server(serve, work_and_close)


def test_concurrent_callers_share_one_new_connection() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        found = await asyncio.gather(*(connections.at(address) for _ in range(5)))
        assert counting.count == 1
        assert all(connection is found[0] for connection in found)
        assert connections.open_one() is found[0]
        own = await connections.new(address)
        assert own is not found[0]
        own.close()

    run(work)


def test_a_broker_that_failed_is_left_alone_for_a_while() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        for _ in range(3):
            with pytest.raises(UnreachableError, match="nothing listens"):
                await connections.at(NO_PRODUCER)
        assert counting.count == 1
        assert connections.in_order([NO_PRODUCER, address]) == [address, NO_PRODUCER]

    run(work, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)


def test_a_broker_that_failed_is_tried_again_after_that() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        while counting.count < 4:
            with pytest.raises(UnreachableError, match="nothing listens"):
                await connections.at(NO_PRODUCER)
            await asyncio.sleep(0)

    run(work, reconnect_backoff_ms=1, reconnect_backoff_max_ms=4)


def test_an_idle_connection_is_not_used_again() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        first = await connections.at(address)
        while first.is_open:
            await asyncio.sleep(0.001)
            connections.open_one()
        assert await connections.at(address) is not first
        assert counting.count == 2

    run(work, connections_max_idle_ms=5)


def test_a_connection_is_kept_for_ever_if_that_is_asked_for() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        first = await connections.at(address)
        await asyncio.sleep(0.01)
        assert await connections.at(address) is first

    run(work, connections_max_idle_ms=-1)


def test_connected_brokers_come_first() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        others = [Address("127.0.0.1", 2), Address("127.0.0.1", 3)]
        assert connections.in_order([*others, address]) == [*others, address]
        await connections.at(address)
        assert connections.in_order([*others, address, address]) == [address, *others]

    run(work)


def test_what_goes_over_the_network_is_counted() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        assert set(connections.counts.by_name().values()) == {0}
        connection = await connections.at(address)
        counts = connections.counts.by_name()
        assert (counts["connection-count"], counts["connection-creation-total"]) == (1, 1)
        assert (counts["request-total"], counts["response-total"]) == (1, 1)
        assert counts["incoming-byte-total"] > 10
        connection.close()
        assert connections.counts.by_name()["connection-count"] == 0

    run(work)


def test_nothing_is_opened_after_the_end() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        opening = asyncio.ensure_future(connections.at(address))
        await asyncio.sleep(0)
        connections.close()
        with pytest.raises(UnreachableError, match="closed here"):
            await opening
        with pytest.raises(UnreachableError, match="closed here"):
            await connections.at(address)

    run(work)


class Dice:
    """Always draws the given number."""

    def __init__(self, fallen: int) -> None:
        self._fallen = fallen

    def uuid(self) -> bytes:
        raise NotImplementedError

    def below(self, limit: int) -> int:
        return min(self._fallen, limit - 1)


def test_clients_that_lost_a_broker_together_do_not_come_back_together() -> None:
    async def work() -> list[float]:
        waits = []
        for fallen in (0, 1_000):
            settings = ClientSettings((NO_PRODUCER,), reconnect_backoff_ms=50_000)
            connections = Connections(settings, connect, Dice(fallen))
            with pytest.raises(UnreachableError):
                await connections.at(NO_PRODUCER)
            not_before = connections._failing[NO_PRODUCER].not_before
            waits.append(not_before - asyncio.get_running_loop().time())
        return waits

    shortest, longest = asyncio.run(work())
    assert 30 < shortest <= 40
    assert 50 < longest <= 60


def test_connections_that_were_lent_are_closed_with_the_others() -> None:
    async def work(connections: Connections, counting: Counting, address: Address) -> None:
        lent = await connections.new(address)
        connections.close()
        assert not lent.is_open

    run(work)
