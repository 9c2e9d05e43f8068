"""A server: listeners, admission of clients, shutdown, and the cost of idle clients."""

import asyncio
import errno
import resource
import socket
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ottla.broker.dispatch import Peer
from ottla.broker.requests.request_limits import counted_bytes
from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.broker.transport.server import PAUSE_MS_MAX, Server
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.settings.listeners import Listener
from ottla.runtime.network import KernelNetwork
from tests.descriptors import no_more_descriptors
from tests.unit.broker.serving import (
    LOCALHOST,
    PLAINTEXT,
    AllHot,
    Answer,
    Client,
    StoppedClock,
    a_while,
    answering,
    echo,
    frame,
    serving,
    until,
)

IDLE_CONNECTIONS = 1000
IDLE_BYTES_MAX = 6000
REQUEST_BYTES = counted_bytes(memoryview(b"one")) + counted_bytes(memoryview(b"two"))


@contextmanager
def new_server() -> Iterator[Server]:
    with ThreadPoolExecutor(1) as threads:
        yield Server(
            answering(echo),
            TimeSlices(StoppedClock()),
            ConnectionLimits(),
            StoppedClock(),
            AllHot(),
            threads,
            KernelNetwork(),
        )


# Listening


def test_each_listener_has_its_port_and_its_name() -> None:
    async def name_of(peer: Peer, _: memoryview) -> Answer:
        await asyncio.sleep(0)
        return [frame(f"{peer.listener} from {peer.address}".encode())]

    async def story() -> None:
        listeners = [PLAINTEXT, Listener("INTERNAL", LOCALHOST, 0)]
        async with serving(name_of, listeners=listeners) as running:
            first, second = await running.connect(0), await running.connect(1)
            assert await first.ask(b"") == b"PLAINTEXT from 127.0.0.1"
            assert await second.ask(b"") == b"INTERNAL from 127.0.0.1"

    asyncio.run(story())


def test_clients_wait_until_the_server_starts() -> None:
    async def story() -> None:
        with new_server() as server:
            port = await server.bind(PLAINTEXT)
            client = await Client.connect(port)
            await client.send(frame(b"early"))
            await a_while()
            assert server.connection_count == 0
            server.start()
            assert await client.receive_frame() == b"early"
            client.close()
            await server.stop()

    asyncio.run(story())


@pytest.mark.parametrize("send_buffer_bytes", [10_000, 20_000])
def test_the_send_buffer_of_the_kernel_has_the_configured_limit(send_buffer_bytes: int) -> None:
    async def story() -> int:
        limits = ConnectionLimits(send_buffer_bytes=send_buffer_bytes)
        async with serving(answering(echo), limits) as running:
            client = await running.connect()
            await client.ask(b"hello")
            (connection,) = running.server._connections
            assert isinstance(connection._socket, socket.socket)
            return connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    assert asyncio.run(story()) == 2 * send_buffer_bytes


@pytest.mark.parametrize("receive_buffer_bytes", [10_000, 20_000])
def test_the_receive_buffer_of_the_kernel_has_the_configured_limit(
    receive_buffer_bytes: int,
) -> None:
    async def story() -> int:
        limits = ConnectionLimits(receive_buffer_bytes=receive_buffer_bytes)
        async with serving(answering(echo), limits) as running:
            client = await running.connect()
            await client.ask(b"hello")
            (connection,) = running.server._connections
            assert isinstance(connection._socket, socket.socket)
            return connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    assert asyncio.run(story()) == 2 * receive_buffer_bytes


@pytest.mark.parametrize("host", ["", "localhost", "0.0.0.0", LOCALHOST])
def test_a_host_may_have_several_addresses_and_one_port(host: str) -> None:
    async def story() -> None:
        async with serving(answering(echo), listeners=[Listener("ALL", host, 0)]) as running:
            client = await running.connect()
            assert await client.ask(b"hello") == b"hello"
            listening = running.server._listening
            assert {opened.getsockname()[1] for opened in listening} == {running.ports[0]}

    asyncio.run(story())


def test_ipv4_clients_of_an_ipv6_listener_have_ipv4_addresses() -> None:
    async def address_of(peer: Peer, _: memoryview) -> Answer:
        await asyncio.sleep(0)
        return [frame(peer.address.encode())]

    async def story() -> None:
        listeners = [Listener("BOTH", "::", 0)]
        async with serving(address_of, listeners=listeners) as running:
            client = await running.connect()
            assert await client.ask(b"") == b"127.0.0.1"

    if socket.has_dualstack_ipv6():
        asyncio.run(story())


def test_a_port_that_is_taken_is_an_error_that_says_where() -> None:
    async def story() -> None:
        with new_server() as server, socket.create_server((LOCALHOST, 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(OSError, match=f"PLAINTEXT://{LOCALHOST}:{port}") as raised:
                await server.bind(Listener("PLAINTEXT", LOCALHOST, port))
            assert raised.value.errno == errno.EADDRINUSE
            await server.stop()

    asyncio.run(story())


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_a_host_that_is_not_here_is_an_error_that_says_which(host: str) -> None:
    async def story() -> None:
        with new_server() as server:
            with pytest.raises(OSError, match=f"cannot listen on PLAINTEXT://{host}:0"):
                await server.bind(Listener("PLAINTEXT", host, 0))
            await server.stop()

    asyncio.run(story())


# Admission


def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    async def story() -> None:
        async with serving(answering(echo), ConnectionLimits(connections_max=2)) as running:
            first, second, third = [await running.connect() for _ in range(3)]
            assert await third.is_closed()
            assert await first.ask(b"1") == b"1"
            assert await second.ask(b"2") == b"2"
            assert running.reasons == {"too-many-connections": 1}
            first.close()
            await until(lambda: running.server.connection_count == 1)
            fourth = await running.connect()
            assert await fourth.ask(b"4") == b"4"

    asyncio.run(story())


def test_connections_from_one_address_beyond_its_limit_are_closed_at_once() -> None:
    async def story() -> None:
        limits = ConnectionLimits(connections_per_address_max=2)
        async with serving(answering(echo), limits) as running:
            clients = [await running.connect() for _ in range(4)]
            assert await clients[2].is_closed()
            assert await clients[3].is_closed()
            assert await clients[0].ask(b"fine") == b"fine"
            assert running.reasons == {"too-many-from-address": 2}
            elsewhere = socket.socket()
            elsewhere.setblocking(False)
            elsewhere.bind(("127.0.0.2", 0))
            await asyncio.get_running_loop().sock_connect(elsewhere, (LOCALHOST, running.ports[0]))
            other = Client(elsewhere)
            assert await other.ask(b"fine too") == b"fine too"
            other.close()
            clients[0].close()
            await until(lambda: running.server.connection_count == 1)
            assert dict(running.server._count_by_address) == {LOCALHOST: 1}
            again = await running.connect()
            assert await again.ask(b"again") == b"again"

    asyncio.run(story())


def test_without_descriptors_it_serves_the_open_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with serving(answering(echo)) as running:
            inside = await running.connect()
            assert await inside.ask(b"before") == b"before"
            late = socket.socket()
            late.setblocking(False)
            with no_more_descriptors():
                await asyncio.get_running_loop().sock_connect(late, (LOCALHOST, running.ports[0]))
                await until(lambda: caplog.records)
                for _ in range(20):
                    assert await inside.ask(b"meanwhile") == b"meanwhile"
            assert len(caplog.records) == 1
            assert running.server.connection_count == 1
            running.server.tick(0)
            client = Client(late)
            assert await client.ask(b"at last") == b"at last"
            client.close()

    asyncio.run(story())


def test_connections_without_a_descriptor_wait_and_are_not_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        limits = ConnectionLimits(connections_at_once_max=1)
        async with serving(answering(echo), limits=limits) as running:
            inside = await running.connect()
            assert await inside.ask(b"before") == b"before"
            late = await running.connect()
            await until(lambda: caplog.records)
            for _ in range(3):
                running.server.tick(0)
                await a_while()
            assert running.server.connection_count == 1
            assert len(caplog.records) == 1, "it is told once a minute"
            inside.close()
            await until(lambda: running.server.connection_count == 0)
            running.server.tick(0)
            assert await late.ask(b"at last") == b"at last"

    asyncio.run(story())


# Stopping


def test_requests_in_flight_are_answered_before_the_server_stops() -> None:
    async def story() -> None:
        released = asyncio.Event()

        async def slow(body: bytes) -> Answer:
            await released.wait()
            return echo(body)

        async with serving(answering(slow)) as running:
            busy, idle = [await running.connect() for _ in range(2)]
            await busy.send(frame(b"one") + frame(b"two") + b"\0\0\0")
            await until(lambda: running.server._shared.memory.answering_bytes == REQUEST_BYTES)
            stopping = asyncio.create_task(running.server.stop())
            assert await idle.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await running.connect()
            assert not stopping.done()
            released.set()
            assert await busy.receive_all() == frame(b"one") + frame(b"two")
            await stopping
            assert running.reasons == {"stopped": 2}

    asyncio.run(story())


def test_long_requests_are_cancelled_when_the_server_stops() -> None:
    async def story() -> None:
        cancelled = 0

        async def endless(body: bytes) -> Answer:
            nonlocal cancelled
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1
                raise
            return echo(body)

        async with serving(answering(endless), ConnectionLimits(farewell_ms_max=3000)) as running:
            client = await running.connect()
            await client.send(frame(b"one") + frame(b"two"))
            await until(lambda: running.server._shared.memory.answering_bytes == REQUEST_BYTES)
            stopping = asyncio.create_task(running.server.stop())
            await a_while()
            running.server.tick(1000)
            running.server.tick(3999)
            await a_while()
            assert not stopping.done()
            running.server.tick(4000)
            await stopping
            assert await client.is_closed()
            await a_while()
            assert cancelled == 2

    asyncio.run(story())


def test_a_peer_that_does_not_read_cannot_keep_the_server_from_stopping() -> None:
    async def story() -> None:
        async with serving(answering(lambda _: [frame(bytes(8 << 20))])) as running:
            client = await running.connect(has_small_buffers=True)
            await client.send(frame(b"much"))
            await until(lambda: any(it._is_writing for it in running.server._connections))
            stopping = asyncio.create_task(running.server.stop())
            await a_while()
            running.server.tick(0)
            running.server.tick(10_000)
            await stopping

    asyncio.run(story())


def test_a_pause_of_the_whole_process_is_not_held_against_the_peers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.broker.transport.server.TICK_SECONDS", 0.001)

    class HaltingClock(StoppedClock):
        """A clock that jumps by an hour at each reading."""

        asked = 0

        def monotonic_ms(self) -> int:
            self.asked += 1
            return self.asked * 3_600_000

    async def story() -> None:
        clock = HaltingClock()
        with ThreadPoolExecutor(1) as threads:
            limits = ConnectionLimits(idle_ms_max=10 * PAUSE_MS_MAX)
            server = Server(
                answering(echo),
                TimeSlices(clock),
                limits,
                clock,
                AllHot(),
                threads,
                KernelNetwork(),
            )
            port = await server.bind(PLAINTEXT)
            server.start()
            client = await Client.connect(port)
            assert await client.is_closed()
            assert clock.asked > 10
            client.close()
            await server.stop()

    asyncio.run(story())


# Idle clients


@contextmanager
def many_descriptors() -> Iterator[int]:
    """Raise the descriptor limit to the maximum; yield the number of connections that it allows."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        yield min(IDLE_CONNECTIONS, limits[1] // 3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_idle_connections_cost_little_memory() -> None:
    async def story(count: int) -> None:
        async with serving(answering(echo)) as running:
            tracemalloc.start()
            for _ in range(count):
                client = await running.connect()
                await client.ask(b"hello")
            bytes_each = tracemalloc.get_traced_memory()[0] / count
            tracemalloc.stop()
            assert running.server.connection_count == count
            assert bytes_each < IDLE_BYTES_MAX, "with the client's end"
            running.server.tick(0)
            assert await client.ask(b"still quick") == b"still quick"

    with many_descriptors() as count:
        asyncio.run(story(count))
