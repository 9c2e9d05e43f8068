"""The wrong header checksum of LZ4 frames in Kafka's first message format (KIP-57).

    04 22 4D 18 | FLG | BD | [content size int64] | [dictionary id int32] | HC | blocks | end mark

HC is the second byte of XXH32 over all from FLG up to HC. Writers of magic 0 sets hashed the four
bytes of the frame's magic number, too, and their readers expect no better.
"""

from ottla.wire.records.compression.inflation import Buffer

FRAME_MAGIC = b"\x04\x22\x4d\x18"
FLAGS_BYTES = 2
CONTENT_SIZE_FLAG = 0x08
CONTENT_SIZE_BYTES = 8
DICTIONARY_FLAG = 0x01
DICTIONARY_BYTES = 4

_XXH32_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_MASK_32 = 0xFFFFFFFF


def with_right_header_checksum(frame: Buffer) -> bytes:
    """Return the frame with its header checksum replaced by the correct value."""
    return _with_header_checksum(frame, hashed_from=len(FRAME_MAGIC))


def with_wrong_header_checksum(frame: Buffer) -> bytes:
    """Return the frame with the header checksum that readers of magic 0 sets expect."""
    return _with_header_checksum(frame, hashed_from=0)


def _with_header_checksum(frame: Buffer, hashed_from: int) -> bytes:
    changed = bytearray(frame)
    flags = changed[len(FRAME_MAGIC)] if len(changed) > len(FRAME_MAGIC) else 0
    position = len(FRAME_MAGIC) + FLAGS_BYTES
    position += CONTENT_SIZE_BYTES if flags & CONTENT_SIZE_FLAG else 0
    position += DICTIONARY_BYTES if flags & DICTIONARY_FLAG else 0
    if position < len(changed):
        changed[position] = _xxh32(changed[hashed_from:position]) >> 8 & 0xFF
    return bytes(changed)


def _xxh32(short: bytearray) -> int:
    # Sixteen bytes and more are hashed in another way, which no header here is long enough for.
    assert len(short) < 16, len(short)
    prime_1, prime_2, prime_3, prime_4, prime_5 = _XXH32_PRIMES
    state = prime_5 + len(short)
    words_end = len(short) & ~3
    for start in range(0, words_end, 4):
        word = int.from_bytes(short[start : start + 4], "little")
        state = _rotated(state + word * prime_3, 17) * prime_4
    for byte in short[words_end:]:
        state = _rotated(state + byte * prime_5, 11) * prime_1
    state &= _MASK_32
    state = (state ^ state >> 15) * prime_2 & _MASK_32
    state = (state ^ state >> 13) * prime_3 & _MASK_32
    return state ^ state >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK_32
    return (value << bits | value >> 32 - bits) & _MASK_32
