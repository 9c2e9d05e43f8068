"""Kafka's hash of keys, in plain Python: the fallback of _murmur2.pyx."""

from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key: MurmurHash2 with Kafka's seed, as unsigned 32 bits."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        hashed = (hashed * _MIX & _MASK) ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition for a key, as Kafka's default partitioner does."""
    if partition_count <= 0:
        raise ValueError(f"{partition_count} partitions")
    return (murmur2(key) & _POSITIVE) % partition_count
