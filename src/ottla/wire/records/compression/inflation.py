"""Decompress untrusted data: limits on the output and on the memory held meanwhile.

Sizes that the data claims allocate nothing. Output is decoded piece by piece. While it stays in
proportion to the input read, the pieces are kept. From there on they are only counted, so that a
bomb costs a few megabytes and the time to reach its limit. A stream that ends within the limit is
decoded a second time, into a buffer of the counted size.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError, TooLargeError

Buffer: TypeAlias = bytes | bytearray | memoryview
Pieces: TypeAlias = Callable[[Buffer], Iterator[tuple[bytes, int]]]
"""Decodes lazily: pieces of at most `PIECE_BYTES`, each with the number of input bytes read so far.
Raises ProtocolError at damage."""

PIECE_BYTES = 1 << 20
KEPT_FREE_BYTES = 4 << 20
KEPT_RATIO = 4


def corrupt(codec: str, what: str) -> ProtocolError:
    """Return the error for bytes that do not decode: the codec and the fault."""
    return ProtocolError(f"{codec}: {what}", ErrorCode.CORRUPT_MESSAGE)


def check_size(codec: str, data: Buffer, size_bytes: int, limit_bytes: int) -> None:
    """Raise TooLargeError if the decoded size of `data` is above the limit."""
    if size_bytes > limit_bytes:
        raise TooLargeError(f"{codec}: {len(data)} bytes decompress to more than {limit_bytes}")


def kept_bytes_max(read_bytes: int) -> int:
    """Return how much output may be held before all of it was counted, for an input size."""
    return KEPT_FREE_BYTES + KEPT_RATIO * read_bytes


def inflate(codec: str, pieces_of: Pieces, data: Buffer, limit_bytes: int) -> bytes | memoryview:
    """Return the decoded `data`; ProtocolError if damaged, TooLargeError over the limit."""
    kept: list[bytes] = []
    size_bytes = 0
    pieces = pieces_of(data)
    for piece, read_bytes in pieces:
        size_bytes += len(piece)
        if size_bytes > min(limit_bytes, kept_bytes_max(read_bytes)):
            break
        kept.append(piece)
    else:
        return kept[0] if len(kept) == 1 else b"".join(kept)
    kept.clear()
    check_size(codec, data, size_bytes, limit_bytes)
    for piece, _ in pieces:
        size_bytes += len(piece)
        check_size(codec, data, size_bytes, limit_bytes)
    return _filled(pieces_of(data), size_bytes)


def _filled(pieces: Iterable[tuple[bytes, int]], size_bytes: int) -> memoryview:
    whole = memoryview(bytearray(size_bytes))
    position = 0
    for piece, _ in pieces:
        whole[position : position + len(piece)] = piece
        position += len(piece)
    assert position == size_bytes, "the same input decoded to another size"
    return whole
