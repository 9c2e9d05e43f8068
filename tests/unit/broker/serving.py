"""A server on a loopback port, clients that exchange raw bytes with it, and a manual clock."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any

from ottla.broker.dispatch import Peer
from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.broker.transport.response_writer import ColdReads, Piece
from ottla.broker.transport.server import Server
from ottla.broker.transport.shared import Dispatching
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.disk import File
from ottla.model.settings.listeners import Listener
from ottla.runtime.network import KernelNetwork
from ottla.wire.frames import LENGTH_BYTES, frame_prefix

LOCALHOST = "127.0.0.1"
PLAINTEXT = Listener("PLAINTEXT", LOCALHOST, 0)
SMALL_BUFFER_BYTES = 4096
SMALL_SEGMENT_BYTES = 1000
PATIENCE_STEPS = 10_000
STEP_SECONDS = 0.001

Answer = Sequence[Piece] | None


class StoppedClock:
    """Time passes for a server only when a test calls `Server.tick`."""

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


class AllHot:
    """A page cache that holds everything."""

    def needs_thread(self, file: File, position: int, size_bytes: int) -> bool:
        return False

    def read_hot(self, file: File, position: int, size_bytes: int) -> bytearray | None:
        return None

    def fetch(self, file: File, position: int, size_bytes: int) -> None:
        raise AssertionError("nothing is cold")

    def give_back(self, file: File, position: int, size_bytes: int) -> None:
        raise AssertionError("nothing was cold")


def frame(body: bytes) -> bytes:
    return frame_prefix(len(body)) + body


def answering(answer: Callable[[bytes], Answer | Awaitable[Answer]]) -> Dispatching:
    """Dispatch to a function of the body, plain or asynchronous."""

    async def dispatch(peer: Peer, body: memoryview) -> Answer:
        answered = answer(bytes(body))
        return await answered if isawaitable(answered) else answered

    return dispatch


def echo(body: bytes) -> list[Piece]:
    return [frame(body)]


class Serving:
    """A running server with its ports and clients."""

    def __init__(self, server: Server, ports: list[int]) -> None:
        self.server = server
        self.ports = ports
        self._clients: list[Client] = []

    async def connect(self, listener: int = 0, *, has_small_buffers: bool = False) -> "Client":
        port = self.ports[listener]
        client = await Client.connect(port, has_small_buffers=has_small_buffers)
        self._clients.append(client)
        return client

    @property
    def reasons(self) -> dict[str, int]:
        return {reason.value: count for reason, count in self.server.closed_by_reason.items()}

    def disconnect(self) -> None:
        for client in self._clients:
            client.close()


@asynccontextmanager
async def serving(
    dispatch: Dispatching,
    limits: ConnectionLimits | None = None,
    cold_reads: ColdReads | None = None,
    listeners: Sequence[Listener] = (PLAINTEXT,),
) -> AsyncIterator[Serving]:
    """Serve; at the end check that no connection, memory or file descriptor is left.

    Unhandled errors in the event loop are failures too.
    """
    unexpected: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))
    with ThreadPoolExecutor(1) as threads:
        server = Server(
            dispatch,
            TimeSlices(StoppedClock()),
            limits or ConnectionLimits(),
            StoppedClock(),
            cold_reads or AllHot(),
            threads,
            KernelNetwork(),
        )
        ports = [await server.bind(listener) for listener in listeners]
        server.start()
        running = Serving(server, ports)
        try:
            yield running
            running.disconnect()
            await server.stop()
        except BaseException:
            running.disconnect()
            await stop_at_once(server)
            raise
    assert not unexpected
    assert server.connection_count == 0
    assert server._shared.memory.arriving_bytes == 0
    assert server._shared.memory.answering_bytes == 0
    assert not open_sockets_at(ports)


async def stop_at_once(server: Server) -> None:
    """Stop a server at once, with requests still in flight."""
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    server.tick(0)
    server.tick(10**12)
    await stopping


def open_sockets_at(ports: Sequence[int]) -> list[int]:
    """Return the descriptors of this process that listen at a port or were accepted there.

    Sockets of other tests do not count: clients in their threads may still connect and close.
    """
    descriptors = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return [descriptor for descriptor in descriptors if _local_port(descriptor) in ports]


def _local_port(descriptor: int) -> int | None:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        with socket.socket(fileno=os.dup(descriptor)) as twin:
            return int(twin.getsockname()[1]) if twin.family == socket.AF_INET else None
    except OSError:  # closed meanwhile
        return None


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    for _ in range(PATIENCE_STEPS):
        if condition():
            return
        await asyncio.sleep(STEP_SECONDS)
    raise AssertionError("it did not come to be")


async def a_while() -> None:
    """Run the event loop until all pending work is done."""
    for _ in range(10):
        await asyncio.sleep(STEP_SECONDS)


class Client:
    """A client that can break every rule."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, port: int, *, has_small_buffers: bool = False) -> "Client":
        opened = socket.socket()
        opened.setblocking(False)
        if has_small_buffers:  # and segments small enough for them
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT_BYTES)
        try:
            await asyncio.get_running_loop().sock_connect(opened, (LOCALHOST, port))
        except OSError:
            opened.close()
            raise
        return cls(opened)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def send_while_taken(self, data: bytes) -> int:
        """Send it over and over until the server stops reading; return the number of bytes sent."""
        sent_bytes = stalls = 0
        while stalls < 10:
            try:
                sent_bytes += self.socket.send(data[sent_bytes % len(data) :])
                stalls = 0
            except BlockingIOError:
                stalls += 1
            await asyncio.sleep(STEP_SECONDS if stalls else 0)
        return sent_bytes

    async def receive(self, size_bytes: int) -> bytes:
        """Receive this many bytes, or fewer if the connection ends."""
        received = bytearray()
        while len(received) < size_bytes:
            data = await self._loop.sock_recv(self.socket, min(size_bytes - len(received), 1 << 20))
            if not data:
                break
            received += data
        return bytes(received)

    async def receive_frame(self) -> bytes:
        prefix = await self.receive(LENGTH_BYTES)
        return await self.receive(int.from_bytes(prefix))

    async def ask(self, body: bytes) -> bytes:
        await self.send(frame(body))
        return await self.receive_frame()

    async def receive_all(self) -> bytes:
        """Receive until the server closes the connection, with or without an RST."""
        try:
            return await self.receive(1 << 40)
        except ConnectionError:
            return b""

    async def is_closed(self) -> bool:
        return await self.receive_all() == b""

    def send_no_more(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close so that the server gets an RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def close(self) -> None:
        self.socket.close()
