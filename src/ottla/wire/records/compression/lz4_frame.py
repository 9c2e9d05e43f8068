"""LZ4, as one frame with all the records of a batch."""

from collections.abc import Iterator

import lz4.frame

from ottla.wire.records.compression.inflation import PIECE_BYTES, Buffer, corrupt, inflate

KAFKA_DEFAULT_LEVEL = 9
KAFKA_LEVEL_MAX = 17
FAST_LEVEL = 0
LEVEL_MAX = 16


def compress(data: Buffer, level: int | None) -> bytes:
    """Write one frame of independent blocks of 64 KiB: Java clients refuse linked ones.

    `level` is Kafka's: 1 to 17. Its default, 9, is not the library's but the fast compressor.
    """
    assert level is None or 1 <= level <= KAFKA_LEVEL_MAX, f"lz4 has no level {level}"
    if level is None or level == KAFKA_DEFAULT_LEVEL:
        level = FAST_LEVEL
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=min(level, LEVEL_MAX),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def decompress(data: Buffer, limit_bytes: int) -> bytes | memoryview:
    """Read the only frame; ProtocolError if it is damaged or its content is over the limit."""
    return inflate("lz4", _pieces, data, limit_bytes)


def _pieces(data: Buffer) -> Iterator[tuple[bytes, int]]:
    view = memoryview(data)
    context = lz4.frame.create_decompression_context()
    position = 0
    is_at_end = False
    while not is_at_end:
        try:
            piece, read_bytes, is_at_end = lz4.frame.decompress_chunk(
                context, view[position:], max_length=PIECE_BYTES
            )
        except RuntimeError as error:
            raise corrupt("lz4", str(error)) from None
        position += read_bytes
        if piece:
            yield piece, position
        elif not is_at_end and position == len(view):
            raise corrupt("lz4", f"ends in the middle, after {position} bytes")
    if position != len(view):
        raise corrupt("lz4", f"{len(view) - position} bytes after the end of the frame")
