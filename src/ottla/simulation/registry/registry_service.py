"""The registry of a simulated broker: the production registry behind frames in place of HTTP.

A request and its response are one frame each, on a connection of their own. The parser of HTTP is
tested elsewhere; here only the delays and the ends of connections matter. The registry runs on the
event loop of its broker, and parses large schemas there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ottla.broker.startup.broker_service import BrokerAccess, OpenService
from ottla.environment.network import ListeningSocket, Network, StreamSocket
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import REGISTRY_ENDPOINT, Listener
from ottla.registry.broker_registry import serve_on
from ottla.registry.http_messages import HttpRequest, HttpResponse
from ottla.registry.http_server import Handler
from ottla.rpc.errors import UnreachableError
from ottla.rpc.stream import FrameStream
from ottla.simulation.world.machine import Machine

PORT: Final = 8081
_LENGTH_BYTES: Final = 4
_CLOSED: Final = UnreachableError("the exchange is over")


class _Request(msgspec.Struct, array_like=True):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class _Response(msgspec.Struct, array_like=True):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


def registry_on(machine: Machine) -> OpenService:
    """Return the service of a broker on this machine."""

    async def open_service(_: BrokerConfig, __: str) -> "SimulatedRegistry":
        return SimulatedRegistry(await machine.network.listen(machine.name, PORT), machine)

    return open_service


async def exchange(network: Network, host: str, request: HttpRequest) -> HttpResponse:
    """Send a request to the registry of a broker and return its response; OSError if that fails."""
    connected = await network.connect(host, PORT)
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def failed(reason: UnreachableError) -> None:
        if not answered.done():
            answered.set_exception(reason)

    stream = FrameStream(connected, partial(_settle, answered), failed)
    try:
        sent = _Request(request.method, request.target, dict(request.headers), request.body)
        stream.send_now(_framed(sent))
        response = msgspec.msgpack.decode(await answered, type=_Response)
    finally:
        stream.close(_CLOSED)
    return HttpResponse(response.status, response.body, None, response.headers)


def _settle(answered: "asyncio.Future[bytes]", frame: memoryview) -> None:
    if not answered.done():
        answered.set_result(bytes(frame))


def _framed(message: msgspec.Struct) -> tuple[bytes, bytes]:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big"), body


class SimulatedRegistry:
    """The service of one life of a broker, and the frontend of its registry."""

    def __init__(self, listening: Sequence[ListeningSocket], machine: Machine) -> None:
        self.advertised = Listener(REGISTRY_ENDPOINT, machine.name, PORT)
        self._listening = listening
        self._network = machine.network
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._handling: dict[asyncio.Task[None], None] = {}
        self._streams: dict[FrameStream, None] = {}
        self._handler: Handler | None = None

    # -- the service ----------------------------------------------------------------------------

    def begin(self, broker: BrokerAccess) -> None:
        """Serve from now on."""
        work = serve_on(self, broker, self._forward, self._stopping, _run_here)
        self._serving = asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        """Answer the requests in progress, and serve no longer."""
        self._stopping.set()
        if self._serving is not None:
            await self._serving
        self._listen_no_longer()
        for stream in list(self._streams):
            stream.close(_CLOSED)

    async def _forward(self, url: str, request: HttpRequest) -> HttpResponse:
        host = urlsplit(url).hostname
        assert host is not None
        return await exchange(self._network, host, request)

    # -- the frontend ---------------------------------------------------------------------------

    async def use(self, handler: Handler) -> None:
        """Serve with this handler from now on."""
        if self._handler is None:
            loop = asyncio.get_running_loop()
            for listening in self._listening:
                loop.add_reader(listening, self._accept, listening)
        self._handler = handler

    async def drain(self, seconds_max: float) -> None:
        """Accept no more connections, and wait for the requests in progress."""
        self._listen_no_longer()
        if self._handling:
            await asyncio.wait(list(self._handling), timeout=seconds_max)

    def _listen_no_longer(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)
            listening.close()
        self._listening = ()

    def _accept(self, listening: ListeningSocket) -> None:
        try:
            connected: StreamSocket = listening.accept()[0]
        except OSError:
            return
        streams: list[FrameStream] = []

        def on_frame(frame: memoryview) -> None:
            work = self._handle(streams[0], bytes(frame))
            task = asyncio.get_running_loop().create_task(work)
            self._handling[task] = None
            task.add_done_callback(self._handling.pop)

        def on_end(_: UnreachableError) -> None:
            self._streams.pop(streams[0], None)

        streams.append(FrameStream(connected, on_frame, on_end))
        self._streams[streams[0]] = None

    async def _handle(self, stream: FrameStream, frame: bytes) -> None:
        asked = msgspec.msgpack.decode(frame, type=_Request)
        assert self._handler is not None
        handled = self._handler(HttpRequest(asked.method, asked.target, asked.headers, asked.body))
        response = await handled if isinstance(handled, Awaitable) else handled
        assert isinstance(response, HttpResponse)
        sent = _Response(response.status, list(response.headers), response.body)
        stream.send_now(_framed(sent))


async def _run_here(work: Callable[[], None]) -> None:  # noqa: RUF029 - a thread in production
    work()
