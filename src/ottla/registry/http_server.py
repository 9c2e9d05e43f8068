"""A strict and small HTTP/1.1 server protocol: bounded requests in, responses out.

Measured with `GET /schemas/ids/1` of the registry: 36 microseconds of CPU a request here, 176 with
uvicorn and h11, which is 27,900 and 5,700 requests a second on a core. The goal of 5,000 does not
need this protocol; it leaves room for rights and larger answers, and has the limits below.

It knows keep-alive, pipelining, Content-Length and chunked bodies, HEAD, and
`Expect: 100-continue`. Responses may be streamed, and bodies of chosen targets, too. It drops
trailers, and knows no upgrades.

A request that breaks RFC 9112, or a limit, gets one error response and the connection is closed:
after it, the place where the next request begins is not certain. Requests of a connection are
handled one after the other, in their order.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Transport
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from socket import socket
from ssl import SSLContext
from typing import Any, Final, cast

from ottla.registry.http_messages import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    AnyResponse,
    BadRequestError,
    Body,
    BodyStream,
    HttpRequest,
    HttpResponse,
    StreamedResponse,
    parse_head,
)

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

Handler = Callable[[HttpRequest], AnyResponse | Awaitable[AnyResponse]]
StreamsBody = Callable[[HttpRequest], bool]
"""Whether the body of a request, of which only the head is known, is streamed."""


class _Connection(asyncio.Protocol):
    """A connection: reading a request → handling → sending, and again; discarding at its end."""

    def __init__(self, server: "HttpServer", loop: AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: Transport | None = None
        self._buffer = bytearray()
        self._request: HttpRequest | None = None
        self._body: Body | None = None
        self._input: BodyStream | None = None
        """The body of the request that is being handled, while it arrives."""
        self._is_input_cut = False
        self._handling: asyncio.Future[Any] | None = None
        self._sending: asyncio.Future[None] | None = None
        """The streamed response that is being sent."""
        self._sends_alone = False
        """Whether the request of the streamed response had no streamed body."""
        self._writable: asyncio.Future[None] | None = None
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
        if self._sending is not None:
            self._sending.cancel()
        self._end_input(ConnectionResetError("the peer has closed the connection"))
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
        if self._input is not None:
            self._feed()
        elif self._handling is None and self._is_writable:
            self._advance()
        elif len(self._buffer) > READ_AHEAD_BYTES_MAX and self._transport is not None:
            self._count()
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Keep the connection until the received requests are answered."""
        self._has_ended_input = True
        self._end_input(BadRequestError(400, "the body is cut off"))
        if self._sending is not None and self._sends_alone:
            # A stream may be silent for hours, and then no write would show that the peer is gone.
            return False
        return self._handling is not None and not self._is_discarding

    def pause_writing(self) -> None:
        """Handle no further request until the peer has read."""
        self._is_writable = False
        if self._sending is not None:
            self.deadline = self._loop.time() + SENDING_SECONDS_MAX

    def resume_writing(self) -> None:
        """Go on."""
        self._is_writable = True
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._handling is None and not self._is_discarding:
            self._begin_reading()
            self._advance()

    @property
    def is_handling(self) -> bool:
        """Whether a request waits for its response."""
        return self._handling is not None

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
        if self._server.streams_body(self._request):
            request, self._request = self._request, None
            request.stream = self._input = BodyStream(self._on_room)
            self._feed()
            return request
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
        bytes_max = self._server.body_bytes_max
        self._request, length = parse_head(head, bytes_max)
        self._body = Body(length, [], bytes_max)
        expectation = self._request.headers.get("expect")
        if expectation is not None:
            self._answer_expectation(expectation, length)
        return True

    def _answer_expectation(self, expectation: str, length: int | None) -> None:
        if expectation.lower() != "100-continue":
            raise BadRequestError(417, "the only known expectation is 100-continue")
        if self._transport is not None and length != 0 and not self._buffer:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _feed(self) -> None:
        """Move input into the streamed body."""
        body, stream = self._body, self._input
        assert body is not None
        assert stream is not None
        try:
            while stream.has_room:
                piece = body.take_piece(self._buffer)
                if piece is None:
                    return
                stream.put(piece)
                if not piece:
                    self._input = self._body = None
                    return
        except BadRequestError as bad:
            self._end_input(bad)
        if self._transport is not None:
            self._transport.pause_reading()

    def _on_room(self) -> None:
        if self._input is None or self._transport is None:
            return
        self._transport.resume_reading()
        self._feed()

    @property
    def _has_whole_input(self) -> bool:
        return self._input is None and not self._is_input_cut

    def _end_input(self, failure: Exception) -> None:
        """End a streamed body that is not complete; the connection closes after the response."""
        if self._input is not None:
            self._input.fail(failure)
            self._input = None
            self._is_input_cut = True

    def _handle(self, request: HttpRequest) -> None:
        try:
            handled = self._server.handler(request)
        except Exception:  # noqa: BLE001 - logged, and answered with 500
            handled = self._failed(request)
        if isinstance(handled, HttpResponse):
            self._respond(request, handled)
            return
        if isinstance(handled, StreamedResponse):
            self._begin_sending(request, handled)
            return
        self._handling = asyncio.ensure_future(handled)
        self._server.keep(self._handling)
        self._handling.add_done_callback(lambda done: self._on_handled(request, done))

    @staticmethod
    def _failed(request: HttpRequest) -> HttpResponse:
        _log.exception("Handling %s %.200s failed", request.method, request.target)
        return _error(500, "internal error")

    def _on_handled(self, request: HttpRequest, done: "asyncio.Future[AnyResponse]") -> None:
        self._handling = None
        if done.cancelled():
            self.abort()
            return
        failure = done.exception()
        if failure is not None:
            _log.error(
                "Handling %s %.200s failed", request.method, request.target, exc_info=failure
            )
        response = done.result() if failure is None else _error(500, "internal error")
        if isinstance(response, StreamedResponse):
            self._begin_sending(request, response)
            return
        self._respond(request, response)
        self._go_on()

    def _go_on(self) -> None:
        if self._is_ready():
            self._begin_reading()
            self._advance()

    def _begin_sending(self, request: HttpRequest, response: StreamedResponse) -> None:
        if self._transport is None:
            return
        self._sends_alone = request.stream is None
        self._handling = self._sending = asyncio.ensure_future(self._send(request, response))
        self._server.keep(self._sending)
        self._sending.add_done_callback(lambda done: self._on_sent(request, done))

    async def _send(self, request: HttpRequest, response: StreamedResponse) -> None:
        is_chunked = request.takes_chunks
        async with aclosing(response.pieces) as pieces:
            # A body that still arrives does not end at a certain place: no request follows it.
            request.keeps_alive = request.keeps_alive and is_chunked and self._has_whole_input
            await self._send_piece(
                response.head(is_chunked=is_chunked, keeps_alive=request.keeps_alive)
            )
            if request.method == "HEAD":
                return
            async for piece in pieces:
                if piece:
                    framed = b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece
                    await self._send_piece(framed)
            if is_chunked:
                await self._send_piece(b"0\r\n\r\n")

    async def _send_piece(self, piece: bytes) -> None:
        if self._transport is None:
            raise asyncio.CancelledError
        self._transport.write(piece)
        while not self._is_writable:
            self._writable = self._loop.create_future()
            await self._writable

    def _on_sent(self, request: HttpRequest, done: "asyncio.Future[None]") -> None:
        self._handling = self._sending = None
        failure = None if done.cancelled() else done.exception()
        if failure is not None:
            _log.error("Sending %s %.200s failed", request.method, request.target, exc_info=failure)
        if done.cancelled() or failure is not None:
            self.abort()
        elif not request.keeps_alive:
            self._discard()
        else:
            self._go_on()

    def _respond(self, request: HttpRequest, response: HttpResponse) -> None:
        transport = self._transport
        if transport is None:
            return
        keeps_alive = (
            request.keeps_alive
            and self._has_whole_input
            and not (self._has_ended_input and not self._buffer)
            and not self._server.is_draining
        )
        with_body = request.method != "HEAD"
        self.deadline = self._loop.time() + IDLE_SECONDS_MAX
        transport.write(response.encoded(with_body=with_body, keeps_alive=keeps_alive))
        if not self._is_writable:
            self.deadline = self._loop.time() + SENDING_SECONDS_MAX
        if self._server.is_draining:
            transport.close()  # after the response is sent
        elif not keeps_alive:
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
        self._end_input(ConnectionResetError("the response was sent"))
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

    def __init__(
        self,
        handler: Handler,
        *,
        connections_max: int = CONNECTIONS_MAX,
        body_bytes_max: int = BODY_BYTES_MAX,
        streams_body: StreamsBody = lambda _: False,
    ) -> None:
        self.handler = handler
        self.body_bytes_max = body_bytes_max
        self.streams_body = streams_body
        self._connections_max = connections_max
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._unread_bytes = 0
        self.is_draining = False
        self._drained = asyncio.Event()

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

    async def drain(self, seconds_max: float) -> None:
        """Accept no more requests, and answer the requests in progress; with a time limit.

        Idle connections are closed at once: their clients can repeat a request elsewhere.
        """
        self.is_draining = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            if not connection.is_handling:
                connection.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self._connections:
                    self._drained.clear()
                    await self._drained.wait()

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
        if not self._connections:
            self._drained.set()

    def keep(self, task: "asyncio.Future[Any]") -> None:
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
