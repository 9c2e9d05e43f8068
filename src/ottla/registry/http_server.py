"""A strict and small HTTP/1.1 server protocol: bounded requests in, whole responses out.

Measured with `GET /schemas/ids/1` of the registry: 36 microseconds of CPU a request here, 176 with
uvicorn and h11, which is 27,900 and 5,700 requests a second on a core. The goal of 5,000 does not
need this protocol; it leaves room for rights and larger answers, and has the limits below.

It knows keep-alive, pipelining, Content-Length and chunked bodies, HEAD, and
`Expect: 100-continue`. It drops trailers, and knows neither upgrades nor streamed responses.

A request that breaks RFC 9112, or a limit, gets one error response and the connection is closed:
after it, the place where the next request begins is not certain. Requests of a connection are
handled one after the other, in their order.
"""

import asyncio
import logging
import re
from asyncio import AbstractEventLoop, Transport
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from socket import socket
from ssl import SSLContext
from typing import Final, cast

HEAD_BYTES_MAX: Final = 16 << 10
"""The request line and the headers."""
BODY_BYTES_MAX: Final = 2 << 20
CHUNK_LINE_BYTES_MAX: Final = 256
TRAILER_BYTES_MAX: Final = 4 << 10
CONNECTIONS_MAX: Final = 2048
"""Further connections are closed at once."""
BODIES_BYTES_MAX: Final = 64 << 20
"""The unread input of all connections; the connection that exceeds it gets 503."""
IDLE_SECONDS_MAX: Final = 60.0
"""Between two requests of a connection."""
REQUEST_SECONDS_MAX: Final = 20.0
"""From the first byte of a request to its last."""
SENDING_SECONDS_MAX: Final = 20.0
"""Until the peer has read a response."""
DISCARDING_SECONDS_MAX: Final = 2.0
DISCARDED_BYTES_MAX: Final = 4 << 20
"""After an error, input is read and dropped: a reset would destroy the response on its way."""
SWEEP_SECONDS: Final = 0.5
READ_AHEAD_BYTES_MAX: Final = 64 << 10
"""Pipelined input beyond this is left to the kernel while a request is handled."""

_log = logging.getLogger(__name__)

_REQUEST_LINE = re.compile(r"([A-Z]{1,20}) ([\x21-\x7e]+) HTTP/1\.([01])")
_VISIBLE: Final = r"\x21-\x7e\x80-\xff"
_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER = re.compile(rf"({_NAME}):[ \t]*((?:[{_VISIBLE}]+(?:[ \t]+[{_VISIBLE}]+)*)?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_CONTENT_LENGTH = re.compile(r"[0-9]{1,15}")
_SINGLE_HEADERS: Final = frozenset({"content-length", "host", "transfer-encoding", "content-type"})


@dataclass(slots=True)
class HttpRequest:
    """A whole request. Names of headers are in lower case; repeated ones are joined by commas."""

    method: str
    target: str
    """The path and the query, as they were sent."""
    headers: Mapping[str, str]
    body: bytes = b""
    keeps_alive: bool = True


class HttpResponse:
    """A whole response. It may be sent many times."""

    __slots__ = ("_head", "body", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.headers = tuple(headers)
        if content_type is not None:
            self.headers = ("Content-Type", content_type), *self.headers
        lines = [f"HTTP/1.1 {status} {_phrase(status)}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in self.headers]
        if status != HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {len(body)}\r\n")
        self._head = "".join(lines).encode("latin-1")

    def encoded(self, *, with_body: bool, keeps_alive: bool) -> bytes:
        """Return the bytes of the response."""
        end = b"\r\n" if keeps_alive else b"Connection: close\r\n\r\n"
        return self._head + end + self.body if with_body else self._head + end


Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


class BadRequestError(Exception):
    """The input breaks the protocol or a limit; the connection ends with this status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class _Body:
    """Where the body of a request ends: at a length, or after its last chunk."""

    length: int | None
    chunks: list[bytes]
    read_bytes: int = 0
    in_trailer: bool = False
    trailer_bytes: int = 0

    def take(self, buffer: bytearray) -> bytes | None:
        """Take input out of the buffer; return the body once it is complete."""
        if self.length is None:
            return self._take_chunks(buffer)
        if len(buffer) < self.length:
            return None
        body = bytes(memoryview(buffer)[: self.length])
        del buffer[: self.length]
        return body

    def _take_chunks(self, buffer: bytearray) -> bytes | None:
        while not self.in_trailer:
            end = _line_end(buffer, CHUNK_LINE_BYTES_MAX)
            if end < 0:
                return None
            matched = _CHUNK_SIZE.fullmatch(buffer[:end])
            if matched is None:
                raise BadRequestError(400, "the size of a chunk is not valid")
            size = int(matched[1], 16)
            self.in_trailer = size == 0
            self._check_size(size)
            if self.in_trailer:
                del buffer[: end + 2]
            elif not self._take_chunk(buffer, end + 2, size):
                return None
        return self._take_trailer(buffer)

    def _check_size(self, size: int) -> None:
        if self.read_bytes + size > BODY_BYTES_MAX:
            raise BadRequestError(413, f"the body is larger than {BODY_BYTES_MAX} bytes")

    def _take_chunk(self, buffer: bytearray, start: int, size: int) -> bool:
        end = start + size
        if len(buffer) < end + 2:
            return False
        if buffer[end : end + 2] != b"\r\n":
            raise BadRequestError(400, "a chunk does not end with a line break")
        self.chunks.append(bytes(memoryview(buffer)[start:end]))
        self.read_bytes += size
        del buffer[: end + 2]
        if len(self.chunks) > 1024:  # of single bytes, each would cost fifty
            self.chunks = [b"".join(self.chunks)]
        return True

    def _take_trailer(self, buffer: bytearray) -> bytes | None:
        while (end := _line_end(buffer, TRAILER_BYTES_MAX)) >= 0:
            line = buffer[:end].decode("latin-1")
            del buffer[: end + 2]
            if not line:
                return b"".join(self.chunks)
            self.trailer_bytes += end
            if _HEADER.fullmatch(line) is None or self.trailer_bytes > TRAILER_BYTES_MAX:
                raise BadRequestError(400, "the trailer is not valid")
        return None


def _line_end(buffer: bytearray, bytes_max: int) -> int:
    end = buffer.find(b"\r\n", 0, bytes_max)
    if end < 0 and len(buffer) >= bytes_max:
        raise BadRequestError(400, "a line of a chunked body is too long")
    return end


def parse_head(head: str) -> tuple[HttpRequest, int | None]:
    """Parse a head without its empty line; return the request, and the length of its body.

    A length of None is a chunked body. BadRequestError if the head is not valid.
    """
    lines = head.split("\r\n")
    matched = _REQUEST_LINE.fullmatch(lines[0])
    if matched is None:
        raise BadRequestError(400, "the request line is not valid")
    method, target, minor = matched.groups()
    headers: dict[str, str] = {}
    for line in lines[1:]:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequestError(400, "a header is not valid")
        name, value = header[1].lower(), header[2]
        if name in headers:
            if name in _SINGLE_HEADERS:
                raise BadRequestError(400, f"the header {name} is repeated")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    if minor == "1" and "host" not in headers:
        raise BadRequestError(400, "the header Host is missing")
    connection = headers.get("connection", "").lower()
    keeps_alive = "close" not in connection if minor == "1" else "keep-alive" in connection
    request = HttpRequest(method, target, headers, keeps_alive=keeps_alive)
    return request, _body_length(headers, minor)


def _body_length(headers: Mapping[str, str], minor: str) -> int | None:
    length = headers.get("content-length")
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if length is not None or minor == "0":
            raise BadRequestError(400, "Transfer-Encoding is not valid here")
        if coding.lower() != "chunked":
            raise BadRequestError(501, "the only known Transfer-Encoding is chunked")
        return None
    if length is None:
        return 0
    if _CONTENT_LENGTH.fullmatch(length) is None:
        raise BadRequestError(400, "Content-Length is not valid")
    if int(length) > BODY_BYTES_MAX:
        raise BadRequestError(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
    return int(length)


class _Connection(asyncio.Protocol):
    """A connection: reading a request → handling → sending, and again; discarding at its end."""

    def __init__(self, server: "HttpServer", loop: AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: Transport | None = None
        self._buffer = bytearray()
        self._request: HttpRequest | None = None
        self._body: _Body | None = None
        self._handling: asyncio.Future[HttpResponse] | None = None
        self._is_advancing = False
        self._is_writable = True
        self._is_discarding = False
        self._has_ended_input = False
        self._discarded_bytes = 0
        self._counted_bytes = 0
        self.deadline = 0.0

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections."""
        self._transport = cast("Transport", transport)
        if not self._server.add(self):
            self._transport.abort()
            return
        self.deadline = self._loop.time() + IDLE_SECONDS_MAX

    def connection_lost(self, _: Exception | None) -> None:
        """End. A request that is being handled is completed, without a response."""
        self._server.remove(self)
        self._transport = None
        self._buffer.clear()
        self._request = self._body = None
        self._count()

    def data_received(self, data: bytes) -> None:
        """Take input."""
        if self._is_discarding:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > DISCARDED_BYTES_MAX:
                self.abort()
            return
        if not self._buffer and self._request is None and self._handling is None:
            self.deadline = self._loop.time() + REQUEST_SECONDS_MAX
        self._buffer += data
        if self._handling is None and self._is_writable:
            self._advance()
        elif len(self._buffer) > READ_AHEAD_BYTES_MAX and self._transport is not None:
            self._count()
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Keep the connection until the received requests are answered."""
        self._has_ended_input = True
        return self._handling is not None and not self._is_discarding

    def pause_writing(self) -> None:
        """Handle no further request until the peer has read."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Go on."""
        self._is_writable = True
        if self._handling is None and not self._is_discarding:
            self._begin_reading()
            self._advance()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def expire(self) -> None:
        """End after the deadline: silently between requests, and with 408 within one."""
        if self._handling is not None and self._is_writable:
            return  # the handler has deadlines of its own
        has_begun = bool(self._buffer) or self._request is not None
        if self._is_discarding or not self._is_writable or not has_begun:
            self.abort()
        else:
            self._refuse(BadRequestError(408, "the request was not complete in time"))

    def _count(self) -> bool:
        unread_bytes = len(self._buffer) + (0 if self._body is None else self._body.read_bytes)
        change_bytes = unread_bytes - self._counted_bytes
        self._counted_bytes = unread_bytes
        return change_bytes == 0 or self._server.count(change_bytes)

    # Requests

    def _advance(self) -> None:
        """Handle the requests in the buffer, up to an incomplete or an asynchronous one."""
        if self._is_advancing:  # `pause_writing` and `resume_writing` come from within a write
            return
        self._is_advancing = True
        try:
            while self._is_ready() and (request := self._next_request()) is not None:
                self._handle(request)
        except BadRequestError as bad:
            self._refuse(bad)
        finally:
            self._is_advancing = False
        if not self._count():
            self._refuse(BadRequestError(503, "the server holds too many unread requests"))

    def _is_ready(self) -> bool:
        return (
            self._handling is None
            and self._is_writable
            and not self._is_discarding
            and self._transport is not None
        )

    def _next_request(self) -> HttpRequest | None:
        if self._request is None and not self._read_head():
            return None
        assert self._request is not None
        assert self._body is not None
        body = self._body.take(self._buffer)
        if body is None:
            return None
        request, self._request, self._body = self._request, None, None
        request.body = body
        return request

    def _read_head(self) -> bool:
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):  # RFC 9112, 2.2: some clients send one after a body
            del buffer[:2]
        end = buffer.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
        if end < 0:
            if len(buffer) >= HEAD_BYTES_MAX:
                raise BadRequestError(431, f"the head is larger than {HEAD_BYTES_MAX} bytes")
            return False
        head = buffer[:end].decode("latin-1")
        del buffer[: end + 4]
        self._request, length = parse_head(head)
        self._body = _Body(length, [])
        expectation = self._request.headers.get("expect")
        if expectation is not None:
            self._answer_expectation(expectation, length)
        return True

    def _answer_expectation(self, expectation: str, length: int | None) -> None:
        if expectation.lower() != "100-continue":
            raise BadRequestError(417, "the only known expectation is 100-continue")
        if self._transport is not None and length != 0 and not self._buffer:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _handle(self, request: HttpRequest) -> None:
        try:
            handled = self._server.handler(request)
        except Exception:  # noqa: BLE001 - logged, and answered with 500
            handled = self._failed(request)
        if isinstance(handled, HttpResponse):
            self._respond(request, handled)
            return
        self._handling = asyncio.ensure_future(handled)
        self._server.keep(self._handling)
        self._handling.add_done_callback(lambda done: self._on_handled(request, done))

    @staticmethod
    def _failed(request: HttpRequest) -> HttpResponse:
        _log.exception("Handling %s %.200s failed", request.method, request.target)
        return _error(500, "internal error")

    def _on_handled(self, request: HttpRequest, done: "asyncio.Future[HttpResponse]") -> None:
        self._handling = None
        if done.cancelled():
            self.abort()
            return
        failure = done.exception()
        if failure is not None:
            _log.error(
                "Handling %s %.200s failed", request.method, request.target, exc_info=failure
            )
        self._respond(request, done.result() if failure is None else _error(500, "internal error"))
        if self._is_ready():
            self._begin_reading()
            self._advance()

    def _respond(self, request: HttpRequest, response: HttpResponse) -> None:
        transport = self._transport
        if transport is None:
            return
        keeps_alive = request.keeps_alive and not (self._has_ended_input and not self._buffer)
        with_body = request.method != "HEAD"
        self.deadline = self._loop.time() + IDLE_SECONDS_MAX
        transport.write(response.encoded(with_body=with_body, keeps_alive=keeps_alive))
        if not self._is_writable:
            self.deadline = self._loop.time() + SENDING_SECONDS_MAX
        if not keeps_alive:
            self._discard()

    def _begin_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
        seconds = REQUEST_SECONDS_MAX if self._buffer else IDLE_SECONDS_MAX
        self.deadline = self._loop.time() + seconds

    def _refuse(self, bad: BadRequestError) -> None:
        if self._transport is not None and not self._is_discarding:
            response = _error(bad.status, str(bad))
            self._transport.write(response.encoded(with_body=True, keeps_alive=False))
            self._discard()

    def _discard(self) -> None:
        self._is_discarding = True
        self._buffer.clear()
        self._request = self._body = None
        self._count()
        self.deadline = self._loop.time() + DISCARDING_SECONDS_MAX
        transport = self._transport
        if transport is None:
            return
        transport.resume_reading()
        if transport.can_write_eof() and not self._has_ended_input:
            transport.write_eof()
        else:
            transport.close()


def _error(status: int, reason: str) -> HttpResponse:
    body = f'{{"error_code":{status},"message":"{reason}"}}'.encode()
    return HttpResponse(status, body, "application/json")


class HttpServer:
    """Serves a handler on listening sockets, on the running event loop."""

    def __init__(self, handler: Handler, *, connections_max: int = CONNECTIONS_MAX) -> None:
        self.handler = handler
        self._connections_max = connections_max
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Future[HttpResponse]] = set()
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    @property
    def connection_count(self) -> int:
        """The connections that are open."""
        return len(self._connections)

    async def start(self, sockets: Sequence[socket], ssl: SSLContext | None = None) -> None:
        """Begin to serve. Takes ownership of the sockets."""
        loop = asyncio.get_running_loop()
        for listener in sockets:
            server = await loop.create_server(
                lambda: _Connection(self, loop), sock=listener, ssl=ssl, backlog=512
            )
            self._servers.append(server)
        self._sweep = loop.call_later(SWEEP_SECONDS, self._sweep_once)

    async def stop(self) -> None:
        """Close the sockets and every connection; cancel the requests that are being handled."""
        if self._sweep is not None:
            self._sweep.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, connection: _Connection) -> bool:
        """Count a connection; False if there are too many."""
        if len(self._connections) >= self._connections_max:
            return False
        self._connections.add(connection)
        return True

    def remove(self, connection: _Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def keep(self, task: "asyncio.Future[HttpResponse]") -> None:
        """Hold a task until it is done: the event loop has weak references only."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def count(self, change_bytes: int) -> bool:
        """Count unread input that came or went; False if there is too much."""
        self._unread_bytes += change_bytes
        return change_bytes <= 0 or self._unread_bytes <= BODIES_BYTES_MAX

    def _sweep_once(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._sweep_once)
        now = loop.time()
        for connection in list(self._connections):
            if now > connection.deadline:
                connection.expire()
