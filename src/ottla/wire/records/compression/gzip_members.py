"""Gzip, by ISA-L where it is installed, else by zlib: one member written, one or several read."""

import zlib
from collections.abc import Generator, Iterator
from typing import Any

from ottla.wire.records.compression.inflation import PIECE_BYTES, Buffer, corrupt, inflate

engine: Any
try:
    from isal import isal_zlib as engine
except ImportError:
    engine = zlib

GZIP_WINDOW_BITS = 31
DEFAULT_LEVEL = -1
ISAL_DEFAULT_LEVEL = 2
ISAL_LEVEL_MAX = 3
ZLIB_FROM_LEVEL = 7
MEMBERS_MAX = 100
INPUT_SLICE_BYTES = 1 << 20


def compress(data: Buffer, level: int | None) -> bytes:
    """Write one member.

    `level` is Kafka's: -1 for the default, or 1 to 9. ISA-L has levels up to 3, which stand for 1
    to 6; its default here is 2, since 3 costs twice the time for one percent. Levels 7 to 9 ask for
    the smallest output at any cost and use zlib.
    """
    level = DEFAULT_LEVEL if level is None else level
    assert level == DEFAULT_LEVEL or 1 <= level <= 9, f"gzip has no level {level}"
    if engine is zlib or level >= ZLIB_FROM_LEVEL:
        return zlib.compress(data, level, GZIP_WINDOW_BITS)
    isal_level = ISAL_DEFAULT_LEVEL if level == DEFAULT_LEVEL else min(level, ISAL_LEVEL_MAX)
    compressed: bytes = engine.compress(data, isal_level, GZIP_WINDOW_BITS)
    return compressed


def decompress(data: Buffer, limit_bytes: int) -> bytes | memoryview:
    """Read all members; ProtocolError if a member is damaged or the content is over the limit."""
    return inflate("gzip", _pieces, data, limit_bytes)


def _pieces(data: Buffer) -> Iterator[tuple[bytes, int]]:
    view = memoryview(data)
    position = 0
    for _ in range(MEMBERS_MAX):
        position = yield from _member(view, position)
        if position == len(view):
            return
    raise corrupt("gzip", f"more than {MEMBERS_MAX} members")


def _member(view: memoryview, position: int) -> Generator[tuple[bytes, int], None, int]:
    # Each call of the decoder copies its unused input, so the input comes one slice at a time.
    decoder = engine.decompressobj(GZIP_WINDOW_BITS)
    left_over = b""
    while not decoder.eof:
        given = left_over or view[position : position + INPUT_SLICE_BYTES]
        position += len(given) - len(left_over)
        try:
            piece = decoder.decompress(given, PIECE_BYTES)
        except engine.error as error:
            raise corrupt("gzip", str(error)) from None
        left_over = decoder.unconsumed_tail
        if piece:
            yield piece, position - len(left_over)
        elif len(left_over) == len(given) and not decoder.eof:
            raise corrupt("gzip", f"ends in the middle, after {position} bytes")
    return position - len(decoder.unused_data)
