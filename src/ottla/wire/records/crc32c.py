"""CRC-32C (Castagnoli), the checksum of a record batch: `crc32c(data, value=0)`.

`value` is the checksum of the bytes before these. Any contiguous buffer will do; the extension
copies nothing, the package that replaces a missing extension has to copy all but bytes.
"""

from typing import TYPE_CHECKING

import google_crc32c


def packaged_crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Compute it without the extension, which may be missing or unsupported by the processor."""
    checksum: int = google_crc32c.extend(value, data if isinstance(data, bytes) else bytes(data))
    return checksum


if TYPE_CHECKING:
    crc32c = packaged_crc32c
else:
    try:
        from ottla.wire.records._crc32c import crc32c
    except ImportError:
        crc32c = packaged_crc32c
