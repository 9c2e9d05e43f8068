"""The length prefix of a frame: four bytes, big-endian. `rpc/frame_reader.py` cuts frames."""

from struct import Struct as Layout
from typing import Final

from ottla.wire.protocol_error import ProtocolError

_LENGTH: Final = Layout(">i")
LENGTH_BYTES: Final = _LENGTH.size


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
