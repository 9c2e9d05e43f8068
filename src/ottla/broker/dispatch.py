"""From a frame to the pieces of its response: header, version, handler, header again."""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Self

from ottla.broker.requests.request_context import (
    ANONYMOUS,
    NOT_INTRODUCED,
    Introduction,
    RequestContext,
)
from ottla.broker.requests.request_limits import SHORT_BYTES, SHORT_ITEMS, RequestLimits, limits_of
from ottla.broker.requests.request_metrics import VERSION_BITS, Meters
from ottla.broker.requests.routes import Route, Routes, offered_versions
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.clock import Clock
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import (
    ITEMS_PER_PIECE,
    decode_request_in_slices,
    decode_short_request,
    encode_response,
    encode_response_in_slices,
    encode_short_response,
)
from ottla.wire.headers import RequestHeader, read_request_header
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.schema import Message

NS_PER_MS: Final = 1_000_000
INTRODUCED_SINCE: Final = 3
"""The version of ApiVersions since which clients send their name and version."""
SOFTWARE_CHARACTERS_MAX: Final = 257
LARGE_REQUESTS_BYTES_MAX: Final = 80 << 20
"""For the objects of all large requests: one of the largest, and several smaller ones. Their
responses take about as much again."""
ITEMS_PER_STEP: Final = 100
"""The number of items decoded per time check: about 0.2 ms."""
_log = logging.getLogger(__name__)


class LargeRequests:
    """Decodes large requests, and encodes long responses, in slices. Belongs to one event loop.

    A request counts as large if it has more array items than are decoded at once. Its objects take
    many times its frame, so all decoded requests without a response share a budget. Requests beyond
    it wait in FIFO order, each with its frame, which is counted by `connection_limits.py`.
    """

    def __init__(self, slices: TimeSlices, bytes_max: int = LARGE_REQUESTS_BYTES_MAX) -> None:
        self._slices = slices
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.taken_bytes = 0
        """The maximum memory of the large requests in progress."""

    async def take(self, size_bytes: int) -> None:
        """Wait until there is room, and take it; `give_back` the same."""
        assert size_bytes <= self._bytes_max, (
            "the limit of one request is above the limit of all requests"
        )
        if not self._waiting and self._has_room(size_bytes):
            self.taken_bytes += size_bytes
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # it got its room at the same time
                self.give_back(size_bytes)
            else:
                self._let_in()
            raise

    def give_back(self, size_bytes: int) -> None:
        """Release the memory."""
        self.taken_bytes -= size_bytes
        assert self.taken_bytes >= 0, f"{size_bytes} bytes were never taken"
        self._let_in()

    def _has_room(self, size_bytes: int) -> bool:
        return self.taken_bytes + size_bytes <= self._bytes_max

    def _let_in(self) -> None:
        while self._waiting:
            size_bytes, future = self._waiting[0]
            if not future.done():
                if not self._has_room(size_bytes):
                    return
                self.taken_bytes += size_bytes
                future.set_result(None)
            self._waiting.popleft()

    async def decode(
        self, header: RequestHeader, frame: memoryview, position: int, limits: RequestLimits
    ) -> Message:
        """Read a request; ProtocolError, too, if it breaks a limit."""
        reading = decode_request_in_slices(
            header,
            frame,
            position,
            memory_max=limits.decoded_bytes_max,
            items_max=limits.items_max,
        )
        budget = self._slices.begin(steps_per_look=1)
        while True:
            last = deque(islice(reading, ITEMS_PER_STEP), maxlen=1)
            if last and last[0] is not None:
                return last[0]
            await budget.yield_if_spent()

    async def encode(self, header: RequestHeader, response: Message) -> list[Any]:
        """Write the frame of a response as pieces, length first."""
        pieces: list[Any] = []
        writing = encode_response_in_slices(
            header.api_key, header.api_version, header.correlation_id, response, pieces
        )
        budget = self._slices.begin(steps_per_look=max(1, ITEMS_PER_STEP // ITEMS_PER_PIECE))
        for _ in writing:
            await budget.yield_if_spent()
        return pieces


@dataclass(slots=True)
class Peer:
    """The other end of a connection, and how it has introduced itself."""

    address: str
    listener: str
    introduction: Introduction = NOT_INTRODUCED

    def introduce(self, request: ApiVersionsRequest) -> None:
        """Remember which software this is, as far as names of software are that long."""
        self.introduction = Introduction(
            self.introduction.port,
            request.client_software_name[:SOFTWARE_CHARACTERS_MAX],
            request.client_software_version[:SOFTWARE_CHARACTERS_MAX],
        )


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Answers frames. A ProtocolError means that the peer cannot be talked to any more."""

    routes: Routes
    clock: Clock
    meters: Meters
    slices: TimeSlices
    large_requests: LargeRequests

    @classmethod
    def of(cls, routes: Routes, clock: Clock, meters: Meters, slices: TimeSlices) -> Self:
        """Make one with a budget of its own for large requests."""
        return cls(routes, clock, meters, slices, LargeRequests(slices))

    async def __call__(self, peer: Peer, frame: memoryview) -> list[Any] | None:
        """Return the pieces of the response, length first; None if the request has none."""
        header, position = read_request_header(frame)
        route = self.routes.get(header.api_key)
        if route is None or header.api_version not in route.versions:
            return self._unsupported(header)
        started_ns = self.clock.monotonic_ns()
        if len(frame) > SHORT_BYTES and header.api_key != ApiKey.PRODUCE and self.slices.is_over:
            await self.slices.begin().yield_now()
        limits = limits_of(header.api_key)
        request = decode_short_request(header, frame, position, limits.short_items_max)
        taken_bytes = 0
        if request is None:
            taken_bytes = limits.decoded_bytes(len(frame))
            await self.large_requests.take(taken_bytes)
        try:
            if request is None:
                request = await self.large_requests.decode(header, frame, position, limits)
            pieces = await self._answer(peer, header, route, request, started_ns)
        finally:
            if taken_bytes:
                self.large_requests.give_back(taken_bytes)
        meter = self.meters[header.api_key << VERSION_BITS | header.api_version]
        elapsed_ns = self.clock.monotonic_ns() - started_ns
        meter.buckets[(elapsed_ns * elapsed_ns).bit_length()] += 1
        meter.total_ns += elapsed_ns
        meter.request_bytes += len(frame)
        return pieces

    async def _answer(
        self, peer: Peer, header: RequestHeader, route: Route, request: Message, started_ns: int
    ) -> list[Any] | None:
        """Handle a request, and write its response."""
        if isinstance(request, ApiVersionsRequest) and header.api_version >= INTRODUCED_SINCE:
            peer.introduce(request)
        context = RequestContext(
            ANONYMOUS,
            header.client_id,
            peer.address,
            peer.listener,
            header.api_version,
            started_ns // NS_PER_MS,
            peer.introduction,
        )
        response = await route.handle(context, request)
        if response is None:
            return None
        pieces = encode_short_response(
            header.api_key, header.api_version, header.correlation_id, response, SHORT_ITEMS
        )
        meter = self.meters[header.api_key << VERSION_BITS | header.api_version]
        codes = () if meter.find_errors is None else meter.find_errors(response)
        if pieces is not None:
            self.meters.count_errors(header.api_key, codes)
            return pieces
        budget = self.slices.begin()
        for code in codes:
            self.meters.errors[header.api_key, code] += 1
            await budget.yield_if_spent()
        return await self.large_requests.encode(header, response)

    def _unsupported(self, header: RequestHeader) -> list[Any]:
        """Respond to an unknown version of ApiVersions in version 0; refuse all other APIs."""
        if header.api_key != ApiKey.API_VERSIONS:
            raise ProtocolError(
                f"{ApiKey(header.api_key).name} v{header.api_version} is not offered",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        _log.debug("ApiVersions v%d asked for: answered in version 0", header.api_version)
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=offered_versions(self.routes)
        )
        return encode_response(ApiKey.API_VERSIONS, 0, header.correlation_id, response)
