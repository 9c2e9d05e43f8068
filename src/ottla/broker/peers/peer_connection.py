"""A connection to another broker, with requests in flight by correlation id.

Both ends are Ottla brokers: the caller chooses the version. When the connection ends, waiting
requests fail with a `ConnectionError`; a late response is a `TimeoutError`, after which the caller
should close the connection.
"""

import asyncio
from collections import deque
from typing import Any, Final, NamedTuple, TypeVar, cast

from ottla.broker.transport.buffer_pool import SpareBodies
from ottla.broker.transport.frame_reader import Incoming, new_scratch
from ottla.environment.network import Network, StreamSocket
from ottla.wire.apis import api_of, key_of
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader, read_response_header
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.schema import Message

FRAME_BYTES_MAX: Final = 256 << 20
"""A longer response is invalid: a batch alone may have up to a hundred megabytes."""
_CORRELATION_ID_MAX: Final = 2**31 - 1
R = TypeVar("R", bound=Message)


class _Pending(NamedTuple):
    """A request in flight: the type of its response, and the future that receives it."""

    api_key: int
    version: int
    answer: "asyncio.Future[Message]"


class PeerConnection:
    """An open connection. Belongs to one event loop."""

    def __init__(self, connected: StreamSocket, client_id: str) -> None:
        self._socket = connected
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._incoming = Incoming(FRAME_BYTES_MAX, new_scratch(), SpareBodies())
        self._unsent: deque[memoryview] = deque()
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._end: str | None = None
        self._loop.add_reader(connected, self._read)

    @classmethod
    async def open(
        cls, network: Network, host: str, port: int, *, client_id: str, timeout_ms: int
    ) -> "PeerConnection":
        """Connect; `OSError` if that is refused, or times out."""
        async with asyncio.timeout(timeout_ms / 1000):
            return cls(await network.connect(host, port), client_id)

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._end is None

    async def ask(self, request: Message, version: int, answer: type[R], *, timeout_ms: int) -> R:
        """Send a request and return its response, which must be of the matching type."""
        if self._end is not None:
            raise ConnectionError(self._end)
        api_key = key_of(type(request))
        assert api_of(api_key).response is answer, answer
        self._correlation_id = number = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        pending = _Pending(api_key, version, self._loop.create_future())
        self._pending[number] = pending
        try:
            self._send(
                encode_request(RequestHeader(api_key, version, number, self._client_id), request)
            )
            async with asyncio.timeout(timeout_ms / 1000):
                return cast("R", await pending.answer)
        finally:
            del self._pending[number]

    def close(self, reason: str = "the connection was closed here") -> None:
        """End the connection; requests that wait fail."""
        if self._end is not None:
            return
        self._end = reason
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._unsent.clear()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(ConnectionError(reason))

    def _send(self, pieces: list[Any]) -> None:
        was_idle = not self._unsent
        self._unsent.extend(map(memoryview, pieces))
        if was_idle:
            self._write()

    def _write(self) -> None:
        try:
            while self._unsent:
                piece = self._unsent[0]
                sent = self._socket.send(piece)
                if sent < len(piece):
                    self._unsent[0] = piece[sent:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._write)
        except OSError as error:
            self.close(f"the connection broke: {error}")
        else:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            size = self._socket.recv_into(self._incoming.room())
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"the connection broke: {error}")
            return
        if size == 0:
            self.close("the other broker closed the connection")
            return
        self._incoming.received(size)
        try:
            while (frame := self._incoming.take_frame()) is not None:
                self._take(frame)
        except ProtocolError as error:
            self.close(f"what answers is no broker: {error}")

    def _take(self, frame: memoryview) -> None:
        """Hand a response to its request; ProtocolError if it cannot be read."""
        header, _ = read_response_header(0, frame)
        pending = self._pending.get(header.correlation_id)
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(decode_response(pending.api_key, pending.version, frame)[1])
