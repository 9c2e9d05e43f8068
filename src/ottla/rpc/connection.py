"""A connection to one broker, with many requests in flight.

Opening it asks the broker for its versions (ApiVersions), unless the caller knows them; every
request is then written in the highest version that both sides support. The correlation id matches a
response with its request.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeVar, cast

from ottla.concurrency.sleep import pause
from ottla.environment.network import StreamSocket
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.rpc.buffer_pool import BufferPool
from ottla.rpc.errors import NoResponseError, UnreachableError, check
from ottla.rpc.metrics import NetworkCounts
from ottla.rpc.stream import FrameStream
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import api_of, key_of
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader, read_response_header
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.schema import EVERY_VERSION, Message

SOFTWARE_NAME: Final = "ottla"
SOFTWARE_VERSION: Final = "0.1.0"
_CORRELATION_ID_MAX: Final = 2**31 - 1
_SIZE_BYTES: Final = 4
"""The size field before each frame."""
R = TypeVar("R", bound=Message)
Connect = Callable[[str, int], Awaitable[StreamSocket]]
"""Opens a socket to a host and port, or raises OSError: `Network.connect`."""
TakeAnswer = Callable[[Message | None, Exception | None], None]
"""Called once, with the response or with the error that ended the connection; must not raise."""


@dataclass(slots=True)
class Pending:
    """A request in flight: the type of its response, and the future that receives it."""

    api_key: int
    version: int
    answer: "asyncio.Future[Message] | _Told"
    sent_at: float | None = None
    """The time of sending, on the loop's clock; None if the latency is not measured."""


class _Told:
    """A substitute for a future: it calls back at once, without an iteration of the loop."""

    __slots__ = ("_take",)

    def __init__(self, take: TakeAnswer) -> None:
        self._take: TakeAnswer | None = take

    def done(self) -> bool:
        return self._take is None

    def set_result(self, answer: Message) -> None:
        self._tell(answer, None)

    def set_exception(self, error: Exception) -> None:
        self._tell(None, error)

    def exception(self) -> None:
        """Do nothing: the error was passed to the callback."""

    def _tell(self, answer: Message | None, error: Exception | None) -> None:
        take, self._take = self._take, None
        if take is not None:
            take(answer, error)


class Connection:
    """An open connection. When it ends, all requests in flight fail with the same reason."""

    def __init__(self, address: Address, client_id: str, counts: NetworkCounts) -> None:
        self.address = address
        self.counts = counts
        self._client_id = client_id
        self.stream: FrameStream | None = None
        self.pending: dict[int, Pending] = {}
        self._correlation_ids = count(1)
        self._versions: dict[int, tuple[int, int]] | None = None
        self._feature_levels: dict[str, int] = {}
        self._end: UnreachableError | None = None
        self.on_end: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self.used_at = self.heard_at = self._loop.time()
        self.muted_until = 0.0
        self._turn = asyncio.Lock()
        self._queue_count = 0

    @classmethod
    async def open(
        cls,
        address: Address,
        connect: Connect,
        *,
        client_id: str,
        timeout_ms: int,
        counts: NetworkCounts | None = None,
        asks_versions: bool = True,
        pool: BufferPool | None = None,
    ) -> "Connection":
        """Connect and agree on versions; UnreachableError with the reason if that fails.

        A caller that chooses each version itself needs no agreement, and saves a round trip.
        """
        connection = cls(address, client_id, counts or NetworkCounts())
        is_ready = False
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connected = await connect(address.host, address.port)
                connection.stream = FrameStream(
                    connected, connection._take_frame, connection._fail, pool
                )
                connection.counts.opened += 1
                if asks_versions:
                    await connection._agree_on_versions(timeout_ms)
            is_ready = True
        except TimeoutError:
            raise UnreachableError(
                f"{address} did not answer within {timeout_ms / 1000:g} s: is it a Kafka broker?"
            ) from None
        except ApiError as error:
            raise UnreachableError(f"{address} is not a Kafka broker ({error})") from None
        except UnreachableError:
            raise
        except OSError as error:
            raise UnreachableError(_why_refused(address, error)) from None
        finally:
            if not is_ready:
                connection.close()
        return connection

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._end is None

    @property
    def idle_ms(self) -> float:
        """The time since the last request or response; 0 while a request is in flight."""
        return 0.0 if self.pending else (self._loop.time() - self.used_at) * 1000

    @property
    def muted_ms(self) -> float:
        """The remaining throttle time from the broker, because of a quota (KIP-219)."""
        return max(self.muted_until - self._loop.time(), 0.0) * 1000

    @property
    def versions_by_api(self) -> dict[int, tuple[int, int]]:
        """The broker's first and last version by API number, if it was asked for them."""
        return self._versions or {}

    def feature_level(self, name: str) -> int:
        """Return the level of a cluster feature at the time of connecting; 0 if it has none."""
        return self._feature_levels.get(name, 0)

    def version_for(self, request: type[Message], version_max: int = EVERY_VERSION) -> int:
        """Return the highest version that both sides support, at most `version_max`.

        ApiError with UNSUPPORTED_VERSION if there is none.
        """
        first, last = request.versions
        if self._versions is None:
            return min(last, version_max)
        name = request.__name__.removesuffix("Request")
        if (offered := self._versions.get(key_of(request))) is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} does not offer {name}")
        version = min(last, offered[1], version_max)
        if version < max(first, offered[0]):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} speaks {name} {offered[0]} to {offered[1]}, this client up to "
                f"{min(last, version_max)}",
            )
        return version

    async def ask(
        self,
        request: Message,
        response_type: type[R],
        *,
        timeout_ms: int,
        version_max: int = EVERY_VERSION,
    ) -> R:
        """Send a request and return its response, which has this type.

        Waits first while the broker throttles. NoResponseError after the timeout; if nothing was
        received from the broker since the request, the connection is closed as well.
        """
        version = self.version_for(type(request), version_max)
        assert api_of(key_of(type(request))).response is response_type, response_type
        return cast("R", await self._exchange(request, version, timeout_ms))

    def ask_now(
        self, request: Message, take: TakeAnswer, *, version_max: int = EVERY_VERSION
    ) -> bool:
        """Send a request at once and have `take` called with its response, without a task.

        False, and nothing is sent, if the caller must wait: the broker throttles, other callers
        wait already, or too much is unsent. There is no time limit: the caller closes the
        connection when the response takes too long.
        """
        if self.stream is None or not self._is_free:
            return False
        version = self.version_for(type(request), version_max)
        correlation_id, pending = self.expect(type(request), version, take)
        self.pending[correlation_id] = pending
        self.stream.send_now(self._encoded(request, version, correlation_id))
        return True

    @property
    def _is_free(self) -> bool:
        """Whether a request can be sent at once without overtaking another."""
        if self._end is not None or self.stream is None or not self.stream.has_room:
            return False
        return not self._queue_count and self.muted_until <= self._loop.time()

    def expect(self, request: type[Message], version: int, take: TakeAnswer) -> tuple[int, Pending]:
        """Return a new correlation id, and the entry of `pending` for the request.

        Any thread may call this.
        """
        correlation_id = self._next_correlation_id()
        self.used_at = self._loop.time()

        def told(answer: Message | None, error: Exception | None) -> None:
            self.pending.pop(correlation_id, None)
            self.used_at = self._loop.time()
            take(answer, error)

        return correlation_id, Pending(key_of(request), version, _Told(told), self.used_at)

    async def tell(
        self, request: Message, *, timeout_ms: int, version_max: int = EVERY_VERSION
    ) -> None:
        """Send a request without a response (Produce with acks 0), until the kernel has all of it.

        NoResponseError after the timeout; the connection is closed as well.
        """
        version = self.version_for(type(request), version_max)
        try:
            async with asyncio.timeout(None) as limit:
                async with self._welcomed():
                    limit.reschedule(self._loop.time() + timeout_ms / 1000)
                    stream = await self._send(request, version, self._next_correlation_id())
                is_sent = await stream.all_sent()
        except TimeoutError:
            reason = f"{self.address} did not take a request within {timeout_ms / 1000:g} s"
            if self.stream is not None:
                self.stream.close(UnreachableError(reason))
            raise NoResponseError(reason) from None
        finally:
            self.used_at = self._loop.time()
        if not is_sent:
            raise self._end or UnreachableError(f"{self.address}: not connected")

    def close(self, reason: str = "the connection was closed here") -> None:
        """Close the connection; pending requests fail."""
        if self.stream is not None:
            self.stream.close(UnreachableError(reason))

    def abandon(self) -> None:
        """Close the connection soon, in its own loop; at once if that loop has ended."""
        if self._loop.is_closed():
            self.close()
        else:
            self._loop.call_soon_threadsafe(self.close)

    async def _agree_on_versions(self, timeout_ms: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        response = cast(
            "ApiVersionsResponse",
            await self._exchange(request, ApiVersionsRequest.versions[1], timeout_ms),
        )
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = [row.max_version for row in response.api_keys if row.api_key == 18]
            version = min(known[0] if known else 0, ApiVersionsRequest.versions[1])
            response = cast(
                "ApiVersionsResponse", await self._exchange(request, version, timeout_ms)
            )
        check(response.error_code, "the broker does not tell which versions it speaks")
        self._versions = {
            row.api_key: (row.min_version, row.max_version) for row in response.api_keys
        }
        self._feature_levels = {
            row.name: row.max_version_level for row in response.finalized_features
        }

    async def _exchange(self, request: Message, version: int, timeout_ms: int) -> Message:
        answer: asyncio.Future[Message] = self._loop.create_future()
        pending = Pending(key_of(type(request)), version, answer)
        correlation_id = self._next_correlation_id()
        sent_at = self._loop.time()
        try:
            async with asyncio.timeout_at(sent_at + timeout_ms / 1000) as limit:
                if self.stream is not None and self._is_free:
                    pending.sent_at = sent_at
                    self.pending[correlation_id] = pending
                    self.stream.send_now(self._encoded(request, version, correlation_id))
                    return await answer
                limit.reschedule(None)
                async with self._welcomed():
                    pending.sent_at = sent_at = self._loop.time()
                    limit.reschedule(sent_at + timeout_ms / 1000)
                    self.pending[correlation_id] = pending
                    await self._send(request, version, correlation_id)
                return await answer
        except TimeoutError:
            name = type(request).__name__.removesuffix("Request")
            reason = f"{self.address} did not answer {name} within {timeout_ms / 1000:g} s"
            if self.heard_at < sent_at and self.stream is not None:
                self.stream.close(UnreachableError(reason))
            raise NoResponseError(reason) from None
        finally:
            self.used_at = self._loop.time()
            self.pending.pop(correlation_id, None)

    @asynccontextmanager
    async def _welcomed(self) -> AsyncIterator[None]:
        """Wait while the broker throttles; callers are served in order.

        Waiting callers are counted: a lock that was just released looks free, although a caller is
        next.
        """
        self._queue_count += 1
        try:
            async with self._turn:
                while (muted_ms := self.muted_ms) > 0 and self._end is None:
                    await pause(muted_ms)
                yield
        finally:
            self._queue_count -= 1

    async def _send(self, request: Message, version: int, correlation_id: int) -> FrameStream:
        if self._end is not None or self.stream is None:
            raise self._end or UnreachableError(f"{self.address}: not connected")
        await self.stream.send(self._encoded(request, version, correlation_id))
        return self.stream

    def encoded(self, request: Message, version: int, correlation_id: int = 0) -> list[Any]:
        """Return an encoded request frame, in pieces."""
        header = RequestHeader(key_of(type(request)), version, correlation_id, self._client_id)
        return encode_request(header, request)

    def _encoded(self, request: Message, version: int, correlation_id: int) -> list[Any]:
        pieces = self.encoded(request, version, correlation_id)
        self.counts.requests += 1
        self.counts.bytes_out += sum(map(len, pieces))
        return pieces

    def _next_correlation_id(self) -> int:
        return next(self._correlation_ids) & _CORRELATION_ID_MAX

    def _take_frame(self, frame: memoryview) -> None:
        """Pass a response to its request; ProtocolError if it cannot be decoded."""
        self.heard_at = self._loop.time()
        self.counts.answers += 1
        self.counts.bytes_in += len(frame) + _SIZE_BYTES
        header, _ = read_response_header(0, frame)
        pending = self.pending.get(header.correlation_id)
        if pending is None or pending.answer.done():
            return  # the request has timed out
        if pending.sent_at is not None:
            self.counts.answered(pending.api_key, (self.heard_at - pending.sent_at) * 1000)
        response = _decoded(pending, frame)
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.counts.throttled_ms += throttle_ms
            self.muted_until = max(self.muted_until, self.heard_at + throttle_ms / 1000)
        pending.answer.set_result(response)

    def _fail(self, reason: UnreachableError) -> None:
        self._end = UnreachableError(f"{self.address}: {reason}")
        self.counts.closed += 1
        self.on_end()
        for pending in list(self.pending.values()):
            if not pending.answer.done():
                pending.answer.set_exception(self._end)
                pending.answer.exception()  # retrieved, because a caller that timed out will not


def _decoded(pending: Pending, frame: memoryview) -> Message:
    if pending.api_key == ApiKey.API_VERSIONS and _is_unsupported_version(frame):
        return decode_response(pending.api_key, 0, frame)[1]
    return decode_response(pending.api_key, pending.version, frame)[1]


def _is_unsupported_version(frame: Any) -> bool:
    """Whether ApiVersions was refused: the response has version 0 (KIP-511)."""
    if len(frame) < 6:
        raise ProtocolError(f"an answer of {len(frame)} bytes")
    return int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


def _why_refused(address: Address, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on {address}: is the broker running?"
    return f"{address} cannot be reached: {error.strerror or error}"
