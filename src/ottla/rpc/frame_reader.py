"""Cuts the received bytes of a connection into frames. Performs no I/O.

An idle connection of a broker has no buffer: bytes are received into a scratch buffer that all
connections share, and an incomplete frame is moved to its own memory afterwards. The rest of a
large frame is received in place: in a pooled buffer (`buffer_pool.py`), or in a buffer that grows
as bytes arrive, each time by no more than its size, or `ROOM_BYTES`. So a length field alone,
however large, costs next to nothing.

A client has no pool, and trusts its broker's lengths: a frame gets all of its memory at once.
Freeing buffers of a megabyte raises malloc's threshold for mmap, so malloc reuses them, and other
large allocations too. With a pool, a consumer had six times the page faults and took a third more
CPU time.
"""

from collections.abc import Callable
from mmap import mmap
from typing import Final

from ottla.rpc.buffer_pool import BufferPool
from ottla.wire.frames import LENGTH_BYTES, frame_bytes_at
from ottla.wire.protocol_error import MessageTooLargeError

SCRATCH_BYTES: Final = 1 << 16
ROOM_BYTES: Final = 1 << 16
"""Room made for the rest of a frame of which less than this has arrived."""
API_KEY_BYTES: Final = 2
"""Of the beginning of each request: how large it may be depends on it."""
BODY_AT: Final = 2048
"""The offset of a large frame in a pooled, page-aligned buffer. A peer mostly sends from a page
boundary: copies between addresses half a page apart are several times as fast as between addresses
at almost the same position in their pages (decision 0033)."""
_ZEROS: Final = memoryview(bytes(1 << 20))  # room comes from here: cheaper than new zeros each time
_NOTHING: Final = memoryview(b"")


def new_scratch() -> memoryview:
    """Return a scratch, to be shared by the connections of one event loop."""
    return memoryview(mmap(-1, BODY_AT + SCRATCH_BYTES))[BODY_AT:]


class FrameReader:
    """Cuts frames on request. Each is writable memory of its own, as long as it is used.

    One round: `room`, `received`, `take_frame` while frames are wanted, and `release_scratch`
    if other connections use the same scratch buffer.
    """

    __slots__ = (
        "_body",
        "_body_at",
        "_body_end",
        "_bytes_max_of",
        "_chunk",
        "_end",
        "_filled_end",
        "_frame_bytes_max",
        "_pool",
        "_position",
        "_scratch",
        "frame_count",
    )

    def __init__(
        self,
        frame_bytes_max: int,
        scratch: memoryview,
        pool: BufferPool | None = None,
        bytes_max_of: Callable[[int], int | None] | None = None,
    ) -> None:
        """`bytes_max_of` returns the limit of one API, for frames that are requests."""
        self._frame_bytes_max = frame_bytes_max
        self._bytes_max_of = bytes_max_of
        self._body_at = 0 if pool is None else BODY_AT
        self._scratch = scratch
        self._pool = pool
        self._chunk = _NOTHING  # received bytes, except the body
        self._position = self._end = 0
        self._body: bytearray | None = None  # a frame of which a part is here, from _body_at on
        self._filled_end = self._body_end = 0
        self.frame_count = 0

    @property
    def has_unread(self) -> bool:
        """Whether anything is here that has not been taken: frames, or a part of one."""
        return self._body is not None or self._position < self._end

    @property
    def held_bytes(self) -> int:
        """How much memory is held besides the scratch."""
        body_bytes = 0 if self._body is None else len(self._body)
        return body_bytes + self._end - self._position

    def room(self) -> memoryview:
        """Return where to receive next. Forget it before asking again: the memory moves."""
        body = self._body
        if body is None:
            return self._room_in_scratch()
        filled_end = self._filled_end
        assert filled_end < self._body_end, "more is received only when this is taken"
        if filled_end == len(body):
            ahead_bytes = max(ROOM_BYTES, filled_end)
            body += _ZEROS[: min(ahead_bytes, self._body_end - filled_end)]
        return memoryview(body)[filled_end : self._body_end]

    def _room_in_scratch(self) -> memoryview:
        """Move the first bytes of an incomplete length to the start of the scratch buffer."""
        kept = self._chunk[self._position : self._end]
        assert len(kept) < LENGTH_BYTES + API_KEY_BYTES, "all frames that are here were taken"
        self._chunk = self._scratch
        self._position, self._end = 0, len(kept)
        self._scratch[: len(kept)] = kept
        return self._scratch[len(kept) :]

    def received(self, size_bytes: int) -> None:
        """Say how much has been received into the room."""
        if self._body is None:
            self._end += size_bytes
        else:
            self._filled_end += size_bytes

    def take_frame(self) -> memoryview | None:
        """Return the next whole frame, without its length; None if it is not all here.

        A length out of bounds is a ProtocolError, each time; so is one above the limit of the API.
        """
        if self._body is not None:
            return self._take_body()
        begin = self._position + LENGTH_BYTES
        if begin > self._end:
            return None
        size_bytes = frame_bytes_at(self._chunk, self._position, self._frame_bytes_max)
        end = begin + size_bytes
        if end > self._end:
            if begin + API_KEY_BYTES <= self._end:
                self._check_size(begin, size_bytes)
                self._begin_body(begin, size_bytes)
            return None
        self._position = end
        self.frame_count += 1
        return memoryview(bytearray(self._chunk[begin:end]))

    def _check_size(self, begin: int, size_bytes: int) -> None:
        """Refuse a frame that is too large for its API, before there is room for it."""
        if self._bytes_max_of is None:
            return
        api_key = int.from_bytes(self._chunk[begin : begin + API_KEY_BYTES])
        bytes_max = self._bytes_max_of(api_key)
        if bytes_max is not None and size_bytes > bytes_max:
            raise MessageTooLargeError(
                f"a request of API {api_key} with {size_bytes} bytes: the limit is {bytes_max}"
            )

    def _begin_body(self, begin: int, size_bytes: int) -> None:
        here = self._chunk[begin : self._end]
        body_at = self._body_at
        filled_end, body_end = body_at + len(here), body_at + size_bytes
        if self._pool is None:
            self._body = bytearray(body_end)
        else:
            self._body = self._pool.take(body_end) or bytearray(_ZEROS[:filled_end])
        self._body[body_at:filled_end] = here
        self._filled_end, self._body_end = filled_end, body_end
        self._position = self._end

    def _take_body(self) -> memoryview | None:
        if self._body is None or self._filled_end < self._body_end:
            return None
        frame = memoryview(self._body)[self._body_at : self._body_end]
        if self._pool is not None:
            self._pool.keep(self._body)
        self._body = None
        self.frame_count += 1
        return frame

    def release_scratch(self) -> None:
        """Release the scratch buffer; incomplete frames in it move to memory of their own."""
        if self._position == self._end:
            self._chunk = _NOTHING
        elif self._chunk is self._scratch:
            self._chunk = memoryview(bytes(self._chunk[self._position : self._end]))
        else:
            return
        self._end -= self._position
        self._position = 0

    def clear(self) -> None:
        """Forget everything that is here."""
        self._body = None
        self._chunk = _NOTHING
        self._position = self._end = 0
