"""Cuts a byte stream into frames: a four-byte big-endian length, then the body."""

from struct import Struct as Layout
from typing import Final

from ottla.wire.protocol_error import ProtocolError

_LENGTH: Final = Layout(">i")
LENGTH_BYTES: Final = _LENGTH.size


def frame_bytes_at(buffer: bytes | bytearray | memoryview, position: int, bytes_max: int) -> int:
    """Return the size of the frame whose length stands at a position.

    A length that is negative or above bytes_max is refused before anyone makes room for it.
    """
    size: int = _LENGTH.unpack_from(buffer, position)[0]
    if not 0 <= size <= bytes_max:
        raise ProtocolError(f"a frame of {size} bytes: the limit is {bytes_max}")
    return size


def frame_prefix(size_bytes: int) -> bytes:
    """Return the length that goes before a frame."""
    return _LENGTH.pack(size_bytes)


class FrameBuffer:
    """Holds received bytes until they make a whole frame. Performs no I/O.

    Each frame is handed out as a writable view of memory that is never used again, so record
    batches can be stamped in place and kept for as long as the view is.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._received = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes as they came from the peer, cut anywhere."""
        self._received += data

    def take_frames(self) -> list[memoryview]:
        """Return every whole frame that has arrived; keep the rest."""
        received = self._received
        frames = []
        view = memoryview(received)
        position = 0
        while position + LENGTH_BYTES <= len(received):
            begin = position + LENGTH_BYTES
            end = begin + frame_bytes_at(received, position, self._frame_bytes_max)
            if end > len(received):
                break
            frames.append(view[begin:end])
            position = end
        if frames:
            self._received = bytearray(view[position:])
        return frames
