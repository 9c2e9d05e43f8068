"""A pool of buffers for large frames, reused as soon as nothing refers to them any more.

Fresh memory for a megabyte comes from the kernel page by page, which takes longer than receiving
the data.
"""

from collections import deque
from typing import Final

SPARE_BYTES_MIN: Final = 1 << 16
"""Smaller buffers are not worth pooling."""
SPARE_BYTES_MAX: Final = 48 << 20
"""How much is kept in all: 32 producers of librdkafka have 28 MB of requests on the way."""


class BufferPool:
    """A pool of buffers of large frames, reused once free. Belongs to one event loop."""

    __slots__ = ("_bodies", "_bytes_max", "kept_bytes")

    def __init__(self, bytes_max: int = SPARE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bodies: deque[bytearray] = deque()
        self.kept_bytes = 0

    def keep(self, body: bytearray) -> None:
        """Keep a frame's buffer, which is still in use."""
        if not SPARE_BYTES_MIN <= len(body) <= self._bytes_max:  # nor would a larger one leave room
            return
        self._bodies.append(body)
        self.kept_bytes += len(body)
        while self.kept_bytes > self._bytes_max:
            self.kept_bytes -= len(self._bodies.popleft())

    def take(self, size_bytes: int) -> bytearray | None:
        """Return a free buffer that is large enough, the latest one if possible; or None."""
        bodies = self._bodies
        for number in range(len(bodies) - 1, -1, -1):
            body = bodies[number]
            if len(body) >= size_bytes and _is_free(body):
                del bodies[number]
                self.kept_bytes -= len(body)
                return body
        return None


def _is_free(body: bytearray) -> bool:
    """Return whether there is no view of it: its length could not be changed."""
    try:
        body.append(body.pop())
    except BufferError:
        return False
    return True
