"""Snappy in xerial's framing, as Java clients write it, or bare. Both are read, the first written.

    82 'SNAPPY' 00 | version int32 | oldest compatible version int32 | (size int32 | snappy block)*

The magic decides: a bare block that began with it would begin by copying from before its start.
"""

import struct
from collections.abc import Iterator

import cramjam

from ottla.wire.records.compression.inflation import Buffer, check_size, corrupt

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
BLOCK_BYTES = 32 << 10
RATIO_MAX = 22
"""The densest element is a copy: 64 bytes for 3. A higher claimed ratio is invalid."""
BLOCKS_FREE = 1024
BLOCK_BYTES_MEAN_MIN = 64
"""Past the first thousand, blocks must be this large on average: to look at each has a price."""

_INT32 = struct.Struct(">i")


def compress(data: Buffer, level: int | None) -> bytes:
    """Write blocks of 32 KiB in xerial's framing. Snappy has no levels."""
    assert level is None, "snappy has no levels"
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress(data: Buffer, limit_bytes: int) -> bytes | memoryview:
    """Read all blocks; ProtocolError if a block is damaged or the content is over the limit."""
    view = memoryview(data)
    is_framed = view[: len(XERIAL_MAGIC)] == XERIAL_MAGIC
    blocks = list(_framed_blocks(view)) if is_framed else [view]
    sizes = [_content_bytes(block) for block in blocks]
    size_bytes = sum(sizes)
    check_size("snappy", data, size_bytes, limit_bytes)
    whole = memoryview(bytearray(size_bytes))
    position = 0
    for block, block_size in zip(blocks, sizes, strict=True):
        _decompress_into(block, whole[position : position + block_size])
        position += block_size
    return whole


def _framed_blocks(view: memoryview) -> Iterator[memoryview]:
    position = len(XERIAL_HEADER)
    if len(view) < position:
        raise corrupt("snappy", "ends inside the header")
    blocks_left = BLOCKS_FREE + len(view) // BLOCK_BYTES_MEAN_MIN
    while position < len(view):
        if len(view) - position < _INT32.size:
            raise corrupt("snappy", f"ends inside the size of a block at {position}")
        (block_bytes,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < block_bytes <= len(view) - position:
            raise corrupt("snappy", f"block of {block_bytes} bytes at {position} of {len(view)}")
        yield view[position : position + block_bytes]
        position += block_bytes
        blocks_left -= 1
        if blocks_left < 0:
            raise corrupt("snappy", f"too many small blocks in {len(view)} bytes")


def _content_bytes(block: memoryview) -> int:
    try:
        size_bytes: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise corrupt("snappy", str(error)) from None
    if size_bytes > RATIO_MAX * len(block):
        raise corrupt("snappy", f"block of {len(block)} bytes claims to hold {size_bytes}")
    return size_bytes


def _decompress_into(block: memoryview, target: memoryview) -> None:
    try:
        written = cramjam.snappy.decompress_raw_into(block, target)
    except cramjam.DecompressionError as error:
        raise corrupt("snappy", str(error)) from None
    if written != len(target):
        raise corrupt("snappy", f"block holds {written} bytes and claims {len(target)}")
