"""The memory budget of large requests, which are decoded, in slices, only within it.

A request counts as large if it has more array items than are decoded at once. Its objects take many
times its frame, so all decoded requests without a response share a budget. Requests beyond it wait
in FIFO order, each with its frame, which is counted by `request_memory_limit.py`.
"""

import asyncio
from collections import deque
from itertools import islice
from typing import Any, Final

from ottla.broker.requests.request_limits import RequestLimits
from ottla.broker.requests.time_slices import TimeSlices
from ottla.wire.codec import (
    ITEMS_PER_PIECE,
    decode_request_in_slices,
    encode_response_in_slices,
)
from ottla.wire.headers import RequestHeader
from ottla.wire.schema import Message

LARGE_REQUESTS_BYTES_MAX: Final = 80 << 20
"""For the objects of all large requests: one of the largest, and several smaller ones. Their
responses take about as much again."""
ITEMS_PER_STEP: Final = 100
"""The number of items decoded per time check: about 0.2 ms."""


class LargeRequests:
    """Decodes large requests, and encodes long responses, in slices. Belongs to one event loop."""

    def __init__(self, slices: TimeSlices, bytes_max: int = LARGE_REQUESTS_BYTES_MAX) -> None:
        self._slices = slices
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.taken_bytes = 0
        """The maximum memory of the large requests in progress."""

    async def take(self, size_bytes: int) -> None:
        """Wait until there is room, and take it; `give_back` the same."""
        assert size_bytes <= self._bytes_max, "a limit of requests is above that of all of them"
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
        request = self._slices.begin(steps_per_look=1)
        while True:
            last = deque(islice(reading, ITEMS_PER_STEP), maxlen=1)
            if last and last[0] is not None:
                return last[0]
            await request.pause()

    async def encode(self, header: RequestHeader, response: Message) -> list[Any]:
        """Write the frame of a response as pieces, length first."""
        pieces: list[Any] = []
        writing = encode_response_in_slices(
            header.api_key, header.api_version, header.correlation_id, response, pieces
        )
        request = self._slices.begin(steps_per_look=max(1, ITEMS_PER_STEP // ITEMS_PER_PIECE))
        for _ in writing:
            await request.pause()
        return pieces
