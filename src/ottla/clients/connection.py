"""A connection to one broker: requests go out as they come, answers find their way back.

Opening asks the broker which versions it speaks (ApiVersions); every request is then written in
the highest version that both sides know. Requests overlap: answers are told apart by their number.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar, cast

from ottla.clients.errors import NoAnswerError, UnreachableError, check
from ottla.clients.sockets import Connect
from ottla.clients.stream import FrameStream
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader, read_response_header
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.schema import EVERY_VERSION, Message

SOFTWARE_NAME: Final = "ottla"
SOFTWARE_VERSION: Final = "0.1.0"
_KEY_BY_REQUEST: Final = {api.request: key for key, api in API_BY_KEY.items()}
_CORRELATION_ID_MAX: Final = 2**31 - 1
R = TypeVar("R", bound=Message)


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class _Pending:
    """A request on its way: what its answer will be read as, and who waits for it."""

    api_key: int
    version: int
    answer: asyncio.Future[Message]


class Connection:
    """An open connection. Whatever ends it fails the requests that wait, with one reason."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self._client_id = client_id
        self._stream: FrameStream | None = None
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._end: UnreachableError | None = None

    @classmethod
    async def open(
        cls, address: Address, connect: Connect, *, client_id: str, timeout_ms: int
    ) -> "Connection":
        """Connect and agree on versions; UnreachableError says why that could not be."""
        connection = cls(address, client_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connected = await connect(address.host, address.port)
                connection._stream = FrameStream(
                    connected, connection._take_frame, connection._fail
                )
                await connection._agree_on_versions(timeout_ms)
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
            if not connection.versions_by_api:
                connection.close()
        return connection

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._end is None

    @property
    def versions_by_api(self) -> dict[int, tuple[int, int]]:
        """What the broker speaks: the first and the last version by the number of the API."""
        return self._versions

    def version_for(self, request: type[Message], version_max: int = EVERY_VERSION) -> int:
        """Return the highest version that both sides know, at most version_max.

        ApiError with UNSUPPORTED_VERSION if there is none.
        """
        name = request.__name__.removesuffix("Request")
        if (offered := self._versions.get(_KEY_BY_REQUEST[request])) is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} does not offer {name}")
        first, last = request.versions
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
        answer: type[R],
        *,
        timeout_ms: int,
        version_max: int = EVERY_VERSION,
    ) -> R:
        """Send a request and return its answer, which must be of the type that belongs to it."""
        version = self.version_for(type(request), version_max)
        assert API_BY_KEY[_KEY_BY_REQUEST[type(request)]].response is answer, answer
        return cast("R", await self._exchange(request, version, timeout_ms))

    async def tell(self, request: Message, *, version_max: int = EVERY_VERSION) -> None:
        """Send a request that is not answered: Produce with acks 0."""
        version = self.version_for(type(request), version_max)
        await self._send(request, version, self._next_correlation_id())

    def close(self) -> None:
        """End the connection; requests that wait fail."""
        if self._stream is not None:
            self._stream.close(UnreachableError("the connection was closed here"))

    async def _agree_on_versions(self, timeout_ms: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        answer = cast(
            "ApiVersionsResponse",
            await self._exchange(request, ApiVersionsRequest.versions[1], timeout_ms),
        )
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = [row.max_version for row in answer.api_keys if row.api_key == 18]
            version = min(known[0] if known else 0, ApiVersionsRequest.versions[1])
            answer = cast("ApiVersionsResponse", await self._exchange(request, version, timeout_ms))
        check(answer.error_code, "the broker does not tell which versions it speaks")
        self._versions = {
            row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
        }

    async def _exchange(self, request: Message, version: int, timeout_ms: int) -> Message:
        correlation_id = self._next_correlation_id()
        pending = _Pending(
            _KEY_BY_REQUEST[type(request)], version, asyncio.get_running_loop().create_future()
        )
        self._pending[correlation_id] = pending
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._send(request, version, correlation_id)
                return await pending.answer
        except TimeoutError:
            name = type(request).__name__.removesuffix("Request")
            raise NoAnswerError(
                f"{self.address} did not answer {name} within {timeout_ms / 1000:g} s"
            ) from None
        finally:
            self._pending.pop(correlation_id, None)

    async def _send(self, request: Message, version: int, correlation_id: int) -> None:
        if self._end is not None or self._stream is None:
            raise self._end or UnreachableError(f"{self.address}: not connected")
        header = RequestHeader(
            _KEY_BY_REQUEST[type(request)], version, correlation_id, self._client_id
        )
        await self._stream.send(encode_request(header, request))

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        return self._correlation_id

    def _take_frame(self, frame: memoryview) -> None:
        """Give a frame to who waits for it; ProtocolError if it cannot be read."""
        header, _ = read_response_header(0, frame)
        pending = self._pending.get(header.correlation_id)
        if pending is None or pending.answer.done():
            return  # nobody waits any more
        pending.answer.set_result(_decoded(pending, frame))

    def _fail(self, reason: UnreachableError) -> None:
        self._end = UnreachableError(f"{self.address}: {reason}")
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(self._end)


def _decoded(pending: _Pending, frame: memoryview) -> Message:
    if pending.api_key == ApiKey.API_VERSIONS and _is_unsupported_version(frame):
        return decode_response(pending.api_key, 0, frame)[1]
    return decode_response(pending.api_key, pending.version, frame)[1]


def _is_unsupported_version(frame: Any) -> bool:
    """Whether ApiVersions is answered in version 0, because ours is not known there (KIP-511)."""
    if len(frame) < 6:
        raise ProtocolError(f"an answer of {len(frame)} bytes")
    return int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


def _why_refused(address: Address, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on {address}: is the broker running?"
    return f"{address} cannot be reached: {error.strerror or error}"
