"""Cuts a byte stream into frames: a four-byte big-endian length, then the body."""

from struct import Struct as Layout
from typing import Final

from ottla.wire.protocol_error import ProtocolError

_LENGTH: Final = Layout(">i")
LENGTH_BYTES: Final = _LENGTH.size
SCRATCH_BYTES: Final = 1 << 16
"""The size of one receive, unless the rest of a longer frame is awaited."""


def frame_bytes_at(buffer: bytes | bytearray | memoryview, position: int, bytes_max: int) -> int:
    """Return the size of a frame from its length prefix at a position.

    ProtocolError, before any allocation, if the length is negative or above bytes_max.
    """
    size: int = _LENGTH.unpack_from(buffer, position)[0]
    if not 0 <= size <= bytes_max:
        raise ProtocolError(f"a frame of {size} bytes: the limit is {bytes_max}")
    return size


def frame_prefix(size_bytes: int) -> bytes:
    """Return the length prefix of a frame."""
    return _LENGTH.pack(size_bytes)


class FrameBuffer:
    """Assembles received bytes into frames. Performs no I/O.

    One cycle is `room`, `received`, `take_frames`. Small frames are copied out of a reused buffer;
    the rest of a larger frame is received into its own buffer. Each frame is a writable view of
    separate memory, so record batches can be stamped in place and kept as long as the view.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._body: memoryview | None = None  # of an incomplete frame
        self._filled_bytes = 0  # of the body, or else of the scratch

    @property
    def is_empty(self) -> bool:
        """Whether no part of an unfinished frame is buffered."""
        return self._body is None and self._filled_bytes == 0

    def room(self) -> memoryview:
        """Return the buffer of the next receive, at least one byte."""
        into = self._scratch if self._body is None else self._body
        return into[self._filled_bytes :]

    def received(self, size_bytes: int) -> None:
        """Record the number of bytes received into the room."""
        self._filled_bytes += size_bytes

    def take_frames(self) -> list[memoryview]:
        """Return every complete frame; keep the rest.

        A length out of bounds is a ProtocolError.
        """
        if self._body is None:
            return self._cut_scratch()
        if self._filled_bytes < len(self._body):
            return []
        frames = [self._body]
        self._body, self._filled_bytes = None, 0
        return frames

    def _cut_scratch(self) -> list[memoryview]:
        scratch, position, filled = self._scratch, 0, self._filled_bytes
        frames = []
        while (begin := position + LENGTH_BYTES) <= filled:
            size_bytes = frame_bytes_at(scratch, position, self._frame_bytes_max)
            if begin + size_bytes > filled:
                self._body = memoryview(bytearray(size_bytes))
                scratch, position = self._body, begin
                break
            position = begin + size_bytes
            frames.append(memoryview(bytearray(scratch[begin:position])))
        self._filled_bytes = filled - position
        scratch[: self._filled_bytes] = self._scratch[position:filled]
        return frames
