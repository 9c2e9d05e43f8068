"""HTTP/1.1 to a schema registry: addresses, one exchange, and keep-alive connections.

One parser, h11, serves both kinds of clients. `exchange` is a generator without I/O; the transports
send its bytes through a socket of the calling thread, or through asyncio.
"""

import asyncio
import base64
import socket
import ssl
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http.client import responses as reason_by_status
from threading import Event
from typing import Any, Final, Protocol, TypeVar

import h11

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.schemas.schema_settings import RegistrySettings, Server
from ottla.concurrency.sleep import pause

T = TypeVar("T")

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ACCEPTED: Final = (
    f"{CONTENT_TYPE}, application/vnd.schemaregistry+json; q=0.9, application/json; q=0.5"
)
RESPONSE_BYTES_MAX: Final = 64 << 20
"""A longer response is an error; a page of schemas is far smaller."""
IDLE_CONNECTIONS_MAX: Final = 4
"""How many unused connections to one server stay open."""
RECEIVED_BYTES: Final = 64 << 10


class StaleConnectionError(ConnectionError):
    """The server closed a kept connection before it answered: a new connection may succeed."""


class ResponseError(ConnectionError):
    """The server's bytes are not HTTP, or too many."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request; `path` begins with a slash and has the query."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """The status and the whole body."""

    status: int
    body: bytes

    @property
    def reason(self) -> str:
        """The name of the status."""
        return reason_by_status.get(self.status, "unknown status")


def exchange(
    connection: h11.Connection, server: Server, request: Request
) -> Generator[bytes | None, bytes, Response]:
    """Yield bytes to send, or None to receive some; return the response.

    ResponseError if the response is not HTTP or too long; StaleConnectionError if the peer closes
    before its first byte.
    """
    try:
        yield _sent(connection, server, request)
        return (yield from _response(connection))
    except h11.ProtocolError as error:
        raise ResponseError(f"{server} does not speak HTTP: {error}") from None


def _sent(connection: h11.Connection, server: Server, request: Request) -> bytes:
    body = request.body or b""
    host = f"[{server.host}]" if ":" in server.host else server.host
    headers = [
        ("Host", f"{host}:{server.port}"),
        ("Accept", ACCEPTED),
        ("Content-Length", str(len(body))),
        # Without it, the registry leaves out the members that old clients reject, such as guid.
        ("Confluent-Accept-Unknown-Properties", "true"),
        *(request.headers or {}).items(),
    ]
    if request.body is not None:
        headers.append(("Content-Type", CONTENT_TYPE))
    start = h11.Request(method=request.method, target=server.path + request.path, headers=headers)
    events: list[h11.Event] = [start, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
    return b"".join(connection.send(event) or b"" for event in events)


def _response(connection: h11.Connection) -> Generator[bytes | None, bytes, Response]:
    status, body = 0, bytearray()
    is_first = True
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            received = yield None
            if not received and is_first:
                raise StaleConnectionError("the connection was closed before the response")
            is_first = False
            connection.receive_data(received)
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > RESPONSE_BYTES_MAX:
                raise ResponseError(f"the response has more than {RESPONSE_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return Response(status, bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise ResponseError("the connection was closed within the response")


def basic_authorization(user: str) -> str:
    """Return the header of basic authentication for `name:password`."""
    return "Basic " + base64.b64encode(user.encode()).decode()


def tls_context(settings: RegistrySettings) -> ssl.SSLContext | None:
    """Return the context for the settings' certificates, None to use the system's."""
    if not settings.ca_location and not settings.certificate_location:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_location)
        if settings.certificate_location:
            context.load_cert_chain(settings.certificate_location, settings.key_location)
    except OSError as error:
        raise InvalidClientSettingError(
            f"the certificates for the schema registry cannot be read: {error}"
        ) from None
    return context


class Transport(Protocol):
    """Sends requests, and waits, in one thread or in an event loop."""

    async def send(self, server: Server, request: Request, seconds: float) -> Response:
        """Send a request, and return the response; OSError, or TimeoutError after the seconds."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait before another attempt."""
        ...

    async def wait(self, future: Future[Any]) -> Any:
        """Wait for the result of another caller's request."""
        ...

    async def compute(self, work: Callable[[], T]) -> T:
        """Return the result of long work, without delaying other tasks."""
        ...

    def close(self) -> None:
        """Close all idle connections."""
        ...


class _Kept:
    """A kept connection: the state of its HTTP, and a socket or a pair of streams."""

    __slots__ = ("http", "is_used", "line")

    def __init__(self, line: Any) -> None:
        self.http = h11.Connection(our_role=h11.CLIENT)
        self.line = line
        self.is_used = False

    def is_reusable(self) -> bool:
        """Prepare for the next request; False if the connection must be closed."""
        if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
            self.is_used = True
            return True
        return False


class _Pool:
    """Idle connections by server. deque is safe in threads."""

    def __init__(self) -> None:
        self._idle: dict[Server, deque[_Kept]] = {}

    def take(self, server: Server) -> _Kept | None:
        """Return an idle connection, None if there is none."""
        with suppress(IndexError, KeyError):
            return self._idle[server].pop()
        return None

    def keep(self, server: Server, kept: _Kept) -> bool:
        """Keep a connection after a response; False if it must be closed."""
        idle = self._idle.setdefault(server, deque())
        if len(idle) >= IDLE_CONNECTIONS_MAX or not kept.is_reusable():
            return False
        idle.append(kept)
        return True

    def drain(self) -> list[_Kept]:
        """Remove and return all idle connections."""
        found = [kept for idle in self._idle.values() for kept in idle]
        self._idle.clear()
        return found


class SocketTransport:
    """Blocking sockets. Its coroutines never suspend: `complete` runs them to their end."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._pool = _Pool()

    async def send(self, server: Server, request: Request, seconds: float) -> Response:
        """Send a request in the calling thread."""
        kept = self._pool.take(server)
        if kept is not None:
            try:
                return self._exchanged(kept, server, request, seconds)
            except (StaleConnectionError, BrokenPipeError, ConnectionResetError):
                pass  # closed while it was idle
        return self._exchanged(_Kept(self._connected(server, seconds)), server, request, seconds)

    def _connected(self, server: Server, seconds: float) -> socket.socket:
        line = socket.create_connection((server.host, server.port), seconds)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if server.scheme == "http":
            return line
        try:
            context = self._tls or ssl.create_default_context()
            return context.wrap_socket(line, server_hostname=server.host)
        except BaseException:
            line.close()
            raise

    def _exchanged(self, kept: _Kept, server: Server, request: Request, seconds: float) -> Response:
        line: socket.socket = kept.line
        line.settimeout(seconds)
        steps = exchange(kept.http, server, request)
        received: bytes | None = None
        try:
            while True:
                to_send = steps.send(received)  # type: ignore[arg-type]  # None starts it
                if to_send is None:
                    received = line.recv(RECEIVED_BYTES)
                else:
                    line.sendall(to_send)
                    received = b""
        except StopIteration as done:
            if not self._pool.keep(server, kept):
                line.close()
            response: Response = done.value
            return response
        except BaseException:
            line.close()
            raise

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        Event().wait(seconds)

    async def wait(self, future: Future[Any]) -> Any:
        """Block until another thread has the response."""
        return future.result()

    async def compute(self, work: Callable[[], T]) -> T:
        """Work in this thread."""
        return work()

    def close(self) -> None:
        """Close all idle connections."""
        for kept in self._pool.drain():
            kept.line.close()


class AsyncTransport:
    """Streams of asyncio, for one event loop."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._pool = _Pool()

    async def send(self, server: Server, request: Request, seconds: float) -> Response:
        """Send a request in the running event loop."""
        async with asyncio.timeout(seconds):
            kept = self._pool.take(server)
            if kept is not None:
                try:
                    return await self._exchanged(kept, server, request)
                except (StaleConnectionError, BrokenPipeError, ConnectionResetError):
                    pass  # closed while it was idle
            return await self._exchanged(_Kept(await self._connected(server)), server, request)

    async def _connected(self, server: Server) -> Any:
        tls = None
        if server.scheme == "https":
            tls = self._tls or ssl.create_default_context()
        return await asyncio.open_connection(server.host, server.port, ssl=tls)

    async def _exchanged(self, kept: _Kept, server: Server, request: Request) -> Response:
        reader, writer = kept.line
        steps = exchange(kept.http, server, request)
        received: bytes | None = None
        try:
            while True:
                to_send = steps.send(received)  # type: ignore[arg-type]  # None starts it
                if to_send is None:
                    received = await reader.read(RECEIVED_BYTES)
                else:
                    writer.write(to_send)
                    await writer.drain()
                    received = b""
        except StopIteration as done:
            if not self._pool.keep(server, kept):
                writer.close()
            response: Response = done.value
            return response
        except BaseException:
            writer.close()
            raise

    async def pause(self, seconds: float) -> None:
        """Wait by the event loop's time."""
        await pause(seconds * 1000)

    async def wait(self, future: Future[Any]) -> Any:
        """Wait for another task; a cancellation here does not cancel that task's request."""
        return await asyncio.shield(asyncio.wrap_future(future))

    async def compute(self, work: Callable[[], T]) -> T:
        """Work in another thread: the event loop goes on."""
        return await asyncio.to_thread(work)

    def close(self) -> None:
        """Start to close all idle connections."""
        for kept in self._pool.drain():
            with suppress(RuntimeError):  # its event loop has ended
                kept.line[1].close()

    async def aclose(self) -> None:
        """Close all idle connections."""
        for kept in self._pool.drain():
            writer: asyncio.StreamWriter = kept.line[1]
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
