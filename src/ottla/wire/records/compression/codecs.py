"""Kafka's four codecs behind two functions, with limits on the size of decompressed data.

The output of `decompress` has at most `size_bytes_max` bytes and, beyond 16 MiB, at most 1024 times
the bytes of the input. The first limit is the memory that the caller provides; the second makes the
sender pay for it. The formats end at ratios of 21 (Snappy), 255 (LZ4), 1032 (gzip) and 32,768
(Zstandard). Batches of equal records come close to that, so small outputs are always accepted:
16 MiB of zeros, 530 bytes in Zstandard, are legal. The limits are per batch: a caller that reads
many batches for one peer budgets for all of them together.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.compression.inflation import Buffer, check_size

DECOMPRESSED_BYTES_MAX = 128 << 20
RATIO_MAX = 1024
RATIO_FREE_BYTES = 16 << 20
CODEC_MASK = 0x07


class Compression(IntEnum):
    """A codec, by its number in the attributes of batches and messages."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The codec's name in producer and topic configs: `compression.type`."""
        return self.name.lower()


_BY_CONFIG_NAME = {codec.config_name: codec for codec in Compression} | {
    "uncompressed": Compression.NONE  # the value in topic settings for a producer's "none"
}
_BY_NUMBER = dict(enumerate(Compression))
_MODULES = {
    Compression.GZIP: "gzip_members",
    Compression.SNAPPY: "snappy_blocks",
    Compression.LZ4: "lz4_frame",
    Compression.ZSTD: "zstd_frames",
}


class _Codec(NamedTuple):
    compress: Callable[[Buffer, int | None], bytes]
    decompress: Callable[[Buffer, int], bytes | memoryview]


def compression_named(config_name: str) -> Compression:
    """Return the codec with this name in configs. Raises ValueError for an unknown name."""
    codec = _BY_CONFIG_NAME.get(config_name)
    if codec is None:
        raise ValueError(
            f"no compression is called {config_name!r}: one of {list(_BY_CONFIG_NAME)}"
        )
    return codec


def compression_in(attributes: int) -> Compression:
    """Return the codec in the attributes of a batch or message; ProtocolError if unknown."""
    codec = _BY_NUMBER.get(attributes & CODEC_MASK)
    if codec is None:
        raise ProtocolError(
            f"compression codec {attributes & CODEC_MASK} does not exist",
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    return codec


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress. Levels have Kafka's ranges and meanings; None is the codec's default."""
    if codec is Compression.NONE:
        return bytes(data)
    return _codec(codec).compress(data, level)


def decompress(
    codec: Compression, data: Buffer, *, size_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes | memoryview:
    """Decompress all of `data`. Raises ProtocolError if damaged, TooLargeError over a limit."""
    if codec is Compression.NONE:
        check_size("none", data, len(data), size_bytes_max)
        return memoryview(data)
    limit_bytes = min(size_bytes_max, max(RATIO_FREE_BYTES, RATIO_MAX * len(data)))
    return _codec(codec).decompress(data, limit_bytes)


@cache
def _codec(codec: Compression) -> _Codec:
    # Loaded at first use: the four libraries together take longer than the rest of the package.
    module = import_module(f"ottla.wire.records.compression.{_MODULES[codec]}")
    return _Codec(module.compress, module.decompress)
