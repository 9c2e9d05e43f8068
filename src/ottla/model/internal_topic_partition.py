"""Maps names to partitions of an internal topic."""

from functools import lru_cache
from struct import unpack
from typing import Final

NAMES_KEPT_MAX: Final = 10_000
"""The size of the cache: names in use are mapped several times per transaction and heartbeat."""


@lru_cache(NAMES_KEPT_MAX)
def partition_of_name(name: str, partition_count: int) -> int:
    """Return the number of the partition, as Kafka finds it for groups and transactions."""
    return abs(_java_hash(name)) % partition_count


def _java_hash(text: str) -> int:
    """Return the result of Java's String.hashCode, as a signed number."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for unit in unpack(f">{len(units) // 2}H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    # Kafka's abs() maps the smallest number, which has no positive counterpart, to 0.
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else signed
