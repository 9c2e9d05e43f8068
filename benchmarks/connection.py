"""The cost of a connection to the server: its CPU time, not the client's, over a loopback socket.

The responses are ready at once, so this is reading, framing, ordering and sending, without a
broker's request handling. The client is a thread that hardly runs any Python; only the thread of
the event loop is timed. Where uvloop is installed, it is measured, too.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.comparison import MEGABYTES, Case, Peer, Unit, Work
from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.broker.transport.response_writer import Piece
from ottla.broker.transport.server import Server
from ottla.broker.transport.shared import Dispatching
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.settings.listeners import Listener
from ottla.runtime import cold_reads
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.network import KernelNetwork
from ottla.storage.files.log_slice import LogSlice
from ottla.wire.frames import LENGTH_BYTES, frame_prefix

TITLE = "A connection, CPU time of the server"
REQUESTS = 2000
REQUEST = frame_prefix(150) + bytes(150)
ANSWER = frame_prefix(60) + bytes(60)
SLICE_BYTES = 1 << 20
SLICES = 32
EACH = Unit("\N{MICRO SIGN}s", 1e6 / REQUESTS, is_time=True)

Answer = Coroutine[Any, Any, list[Piece]]
Serving = Callable[[asyncio.AbstractEventLoop], AbstractContextManager[int]]


def cases() -> Iterator[Case]:
    """Yield small requests, pipelined and one by one, then large requests and large responses."""
    with ExitStack() as stack, TemporaryDirectory() as folder:
        for name, loop in _loops(stack):
            yield from _small_requests(stack, name, loop)
            yield from _large(stack, name, loop, folder)


def _loops(stack: ExitStack) -> Iterator[tuple[str, asyncio.AbstractEventLoop]]:
    yield "asyncio", stack.enter_context(asyncio.Runner()).get_loop()
    if find_spec("uvloop") is not None:
        new_loop = import_module("uvloop").new_event_loop
        yield "uvloop", stack.enter_context(asyncio.Runner(loop_factory=new_loop)).get_loop()


def _small_requests(stack: ExitStack, name: str, loop: asyncio.AbstractEventLoop) -> Iterator[Case]:
    shapes = (("pipelined", _pipelined, 10), ("one by one", _one_by_one, None))
    for shape, talk, asked in shapes:
        yield Case(
            work=f"small request, {shape}, {name}",
            unit=EACH,
            ours=_work(stack, loop, _ours(_answer_at_once), talk),
            peers=(Peer("streams", _work(stack, loop, _streams, talk)),),
            asked=asked,
            clock=time.thread_time,
        )


def _large(
    stack: ExitStack, name: str, loop: asyncio.AbstractEventLoop, folder: str
) -> Iterator[Case]:
    file = KernelDisk().create_file(str(Path(folder) / "segment.log"))
    file.write_at(0, bytes(SLICE_BYTES))
    part = LogSlice(file, 0, SLICE_BYTES)
    data = bytes(SLICE_BYTES)
    case = partial(
        Case, unit=MEGABYTES, amount=SLICES * SLICE_BYTES, clock=time.thread_time, rounds=5
    )
    yield case(
        work=f"requests of 1 MB, {name}",
        ours=_work(stack, loop, _ours(_answer_at_once), _large_requests),
    )
    yield case(
        work=f"answers of 1 MB from a file, {name}",
        ours=_work(stack, loop, _ours(partial(_answer_with, part)), _large_answers),
        peers=(
            Peer(
                "from memory",
                _work(stack, loop, _ours(partial(_answer_with, data)), _large_answers),
            ),
        ),
    )


# The server's prepared responses.


def _answer_at_once(_peer: object, _frame: memoryview) -> Answer:
    return _at_once([ANSWER])


def _answer_with(piece: Piece, _peer: object, _frame: memoryview) -> Answer:
    return _at_once([frame_prefix(len(piece)), piece])


async def _at_once(pieces: list[Piece]) -> list[Piece]:
    return pieces


# Servers.


def _ours(answer: Dispatching) -> Serving:
    @contextmanager
    def serving(loop: asyncio.AbstractEventLoop) -> Iterator[int]:
        with ThreadPoolExecutor(1) as threads:
            server, port = loop.run_until_complete(_started(answer, threads))
            yield port
            loop.run_until_complete(server.stop())

    return serving


async def _started(answer: Dispatching, threads: ThreadPoolExecutor) -> tuple[Server, int]:
    clock = SystemClock()
    server = Server(
        answer, TimeSlices(clock), ConnectionLimits(), clock, cold_reads, threads, KernelNetwork()
    )
    port = await server.bind(Listener("PLAINTEXT", "127.0.0.1", 0))
    server.start()
    return server, port


@contextmanager
def _streams(loop: asyncio.AbstractEventLoop) -> Iterator[int]:
    """Do the same with asyncio's streams, one request at a time."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                prefix = await reader.readexactly(LENGTH_BYTES)
                await _answer_at_once(
                    None, memoryview(await reader.readexactly(int.from_bytes(prefix)))
                )
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    yield server.sockets[0].getsockname()[1]
    server.close()
    loop.run_until_complete(server.wait_closed())


# Clients.


def _work(
    stack: ExitStack,
    loop: asyncio.AbstractEventLoop,
    serving: Serving,
    talk: Callable[[socket.socket], None],
) -> Work:
    """Return a round of requests to a server, which ends when the client has all responses."""
    port = stack.enter_context(serving(loop))
    thread = stack.enter_context(ThreadPoolExecutor(1))
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def work() -> None:
        loop.run_until_complete(loop.run_in_executor(thread, talk, client))

    return work


def _pipelined(client: socket.socket) -> None:
    client.sendall(REQUEST * REQUESTS)
    _receive(client, len(ANSWER) * REQUESTS)


def _one_by_one(client: socket.socket) -> None:
    for _ in range(REQUESTS):
        client.send(REQUEST)
        _receive(client, len(ANSWER))


def _large_requests(client: socket.socket) -> None:
    request = frame_prefix(SLICE_BYTES) + bytes(SLICE_BYTES)
    for _ in range(SLICES):
        client.sendall(request)
    _receive(client, len(ANSWER) * SLICES)


def _large_answers(client: socket.socket) -> None:
    client.sendall(REQUEST * SLICES)
    _receive(client, (SLICE_BYTES + LENGTH_BYTES) * SLICES)


def _receive(client: socket.socket, size_bytes: int) -> None:
    room = bytearray(min(size_bytes, 1 << 18))
    while size_bytes > 0:
        size_bytes -= client.recv_into(room)
