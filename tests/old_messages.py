"""Messages of the formats before record batches, built by hand.

So the writer under test is not its own judge.
"""

import struct
import zlib

from ottla.wire.records.compression.codecs import Compression, compress

LOG_APPEND_TIME = 0x08
NONE = 0
GZIP = 1


def message(
    offset: int,
    value: bytes | None = b"value",
    *,
    key: bytes | None = None,
    magic: int = 1,
    attributes: int = NONE,
    timestamp_ms: int = 1000,
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp_ms)
    for content in (key, value):
        body += struct.pack(">i", -1 if content is None else len(content)) + (content or b"")
    return sealed(offset, body)


def sealed(offset: int, body: bytes) -> bytes:
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def gzipped(
    offset: int,
    inner: bytes,
    *,
    magic: int = 1,
    attributes: int = GZIP,
    timestamp_ms: int = 1000,
) -> bytes:
    content = compress(Compression.GZIP, inner)
    return message(offset, content, magic=magic, attributes=attributes, timestamp_ms=timestamp_ms)
