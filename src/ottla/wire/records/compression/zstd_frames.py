"""Zstandard: one frame written, one or several read, with limits on the window and on the output.

Four bytes of Zstandard can stand for 128 KiB. The library has a reader with a bound, which does not
detect a missing end, and a reader that does, without a bound. So frames with blocks that cannot
hold much go to the second reader at once; for other frames the first reader counts the output
before.
"""

from collections.abc import Iterator

import zstandard

from ottla.wire.records.compression.inflation import (
    PIECE_BYTES,
    Buffer,
    check_size,
    corrupt,
    kept_bytes_max,
)

LEVEL_MIN = -(1 << 17)
DEFAULT_LEVEL = 3
REUSED_LEVEL_MAX = 9
"""Above it a context holds tens of megabytes, and making it is the lesser part of the work."""
WIDE_WINDOW_LEVEL = 20
LEVEL_MAX = 22
FRAMES_MAX = 100
BLOCKS_LOOKED_AT_MAX = 1024
BLOCK_HEADER_BYTES = 3
BLOCK_CONTENT_BYTES_MAX = 128 << 10
RAW_BLOCK = 0
RUN_LENGTH_BLOCK = 1
CHECKSUM_BYTES = 4
WINDOW_LOG_MAX = 23
WINDOW_BYTES_MAX = 1 << WINDOW_LOG_MAX
"""8 MiB: RFC 8878 asks every decoder to support it, and all levels up to 19 need no more."""
WIDE_WINDOW_BYTES_MAX = 128 << 20
"""Levels 20 to 22 ask for up to this much, however small the data. It is granted to content of at
most `WINDOW_BYTES_MAX`, which is then all that is ever touched of it."""

# Making a context costs more than using it for a small batch, and a context is not thread-safe.
# So a caller removes one from the pool, and returns it unless an error left it in an unknown state.
_idle_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}
_idle_decompressors: list[zstandard.ZstdDecompressor] = []


def compress(data: Buffer, level: int | None) -> bytes:
    """Write one frame. `level` is Kafka's: up to 22, 0 for the default."""
    level = level or DEFAULT_LEVEL
    assert LEVEL_MIN <= level <= LEVEL_MAX, f"zstd has no level {level}"
    idle = _idle_compressors.setdefault(level, [])
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = _new_compressor(level)
    compressed = compressor.compress(data)
    if level <= REUSED_LEVEL_MAX:
        idle.append(compressor)
    return compressed


def _new_compressor(level: int) -> zstandard.ZstdCompressor:
    if level < WIDE_WINDOW_LEVEL:
        return zstandard.ZstdCompressor(level=level)
    parameters = zstandard.ZstdCompressionParameters.from_level(level, window_log=WINDOW_LOG_MAX)
    return zstandard.ZstdCompressor(compression_params=parameters)


def decompress(data: Buffer, limit_bytes: int) -> bytes:
    """Read all frames; ProtocolError if a frame is damaged or the content is over the limit."""
    try:
        if zstandard.get_frame_parameters(data).window_size > WINDOW_BYTES_MAX:
            wide = zstandard.ZstdDecompressor(max_window_size=WIDE_WINDOW_BYTES_MAX)
            return _decompress(wide, data, min(limit_bytes, WINDOW_BYTES_MAX))
        try:
            decompressor = _idle_decompressors.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        content = _decompress(decompressor, data, limit_bytes)
    except zstandard.ZstdError as error:
        raise corrupt("zstd", str(error)) from None
    _idle_decompressors.append(decompressor)
    return content


def _decompress(decompressor: zstandard.ZstdDecompressor, data: Buffer, limit_bytes: int) -> bytes:
    if not _is_surely_within(data, min(limit_bytes, kept_bytes_max(len(data)))):
        _count(decompressor, data, limit_bytes)
    contents = list(_contents(decompressor, data))
    content = contents[0] if len(contents) == 1 else b"".join(contents)
    check_size("zstd", data, len(content), limit_bytes)
    return content


def _contents(decompressor: zstandard.ZstdDecompressor, data: Buffer) -> Iterator[bytes]:
    for _ in range(FRAMES_MAX):
        decoder = decompressor.decompressobj(write_size=PIECE_BYTES)
        yield decoder.decompress(data)
        if not decoder.eof:
            raise corrupt("zstd", "ends in the middle of a frame")
        data = decoder.unused_data
        if not data:
            return
    raise corrupt("zstd", f"more than {FRAMES_MAX} frames")


def _is_surely_within(data: Buffer, size_bytes_max: int) -> bool:
    """Whether the blocks' headers prove one whole frame with at most this content."""
    view = memoryview(data)
    position = zstandard.frame_header_size(data)
    has_checksum = zstandard.get_frame_parameters(data).has_checksum
    content_bytes = 0
    for _ in range(BLOCKS_LOOKED_AT_MAX):
        header = int.from_bytes(view[position : position + BLOCK_HEADER_BYTES], "little")
        kind = header >> 1 & 3
        size_bytes = header >> 3
        content_bytes += (
            size_bytes if kind in {RAW_BLOCK, RUN_LENGTH_BLOCK} else BLOCK_CONTENT_BYTES_MAX
        )
        position += BLOCK_HEADER_BYTES + (1 if kind == RUN_LENGTH_BLOCK else size_bytes)
        if content_bytes > size_bytes_max or position > len(view):
            return False
        if header & 1:
            return position + CHECKSUM_BYTES * has_checksum == len(view)
    return False


def _count(decompressor: zstandard.ZstdDecompressor, data: Buffer, limit_bytes: int) -> None:
    reader = decompressor.stream_reader(data, read_across_frames=True)
    scratch = bytearray(PIECE_BYTES)
    size_bytes = 0
    while read_bytes := reader.readinto(scratch):
        size_bytes += read_bytes
        check_size("zstd", data, size_bytes, limit_bytes)
