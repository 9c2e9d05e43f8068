"""Partitioners: a key gets the same partition as with Kafka's own clients.

A partitioner is a function of the topic, the key as bytes, and the number of partitions. It
returns a partition, or None for any: the producer then uses one partition until a batch is full
(KIP-794).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from ottla.environment.randomness import Randomness

if TYPE_CHECKING:
    from ottla.clients.records._murmur2_python import murmur2, partition_for_key
else:
    try:
        from ottla.clients.records._murmur2 import murmur2, partition_for_key
    except ImportError:
        from ottla.clients.records._murmur2_python import murmur2, partition_for_key

__all__ = [
    "DEFAULT_PARTITIONER",
    "PARTITIONER_NAMES",
    "Partitioner",
    "find_partitioner",
    "make_partitioner",
    "murmur2",
    "partition_for_key",
]

Partitioner = Callable[[str, bytes | None, int], int | None]
"""From topic, key and number of partitions to a partition, or None for any."""
DEFAULT_PARTITIONER: Final = "murmur2_random"
_FNV_PRIME: Final = 0x01000193
_FNV_START: Final = 0x811C9DC5
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31


def _murmur2_random(_topic: str, key: bytes | None, count: int) -> int | None:
    return None if key is None else partition_for_key(key, count)


def _murmur2(_topic: str, key: bytes | None, count: int) -> int:
    return partition_for_key(key or b"", count)


def _consistent(_topic: str, key: bytes | None, count: int) -> int:
    return crc32(key or b"") % count


def _consistent_random(_topic: str, key: bytes | None, count: int) -> int | None:
    return crc32(key) % count if key else None


def fnv1a(data: bytes) -> int:
    """Return librdkafka's fnv1a hash: 32 bits, made positive as in Go's clients."""
    hashed = _FNV_START
    for byte in data:
        hashed = (hashed ^ byte) * _FNV_PRIME & _MASK
    return 2 * _SIGN - hashed if hashed >= _SIGN else hashed


def _fnv1a(_topic: str, key: bytes | None, count: int) -> int:
    return fnv1a(key or b"") % count


def _fnv1a_random(_topic: str, key: bytes | None, count: int) -> int | None:
    return None if key is None else fnv1a(key) % count


class _RoundRobin:
    """Each topic's partitions in turn, independent of the key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, _key: bytes | None, count: int) -> int:
        chosen = self._next.get(topic, 0)
        self._next[topic] = chosen + 1
        return chosen % count


class _Random:
    """A random partition, independent of the key."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def __call__(self, _topic: str, _key: bytes | None, count: int) -> int:
        return self._randomness.below(count)


def _sticky(_topic: str, _key: bytes | None, _count: int) -> int | None:
    return None


_BY_NAME: Final[dict[str, Partitioner]] = {
    DEFAULT_PARTITIONER: _murmur2_random,
    "murmur2": _murmur2,
    "consistent_random": _consistent_random,
    "consistent": _consistent,
    "fnv1a_random": _fnv1a_random,
    "fnv1a": _fnv1a,
    "sticky": _sticky,
}
_MADE: Final[dict[str, Callable[[Randomness], Partitioner]]] = {
    "random": _Random,
    "round_robin": lambda _randomness: _RoundRobin(),
}
PARTITIONER_NAMES: Final = ", ".join([*_BY_NAME, *_MADE])
_OTHER_NAMES: Final = {
    "default": "murmur2_random",
    "roundrobin": "round_robin",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
}


def find_partitioner(given: Any) -> str | Partitioner:
    """Return a partitioner's name or the given function; TypeError for anything else."""
    name = _OTHER_NAMES.get(given, given) if isinstance(given, str) else ""
    if name in _BY_NAME or name in _MADE:
        return name
    if isinstance(given, str | type) or not callable(given):
        raise TypeError(given)
    own: Partitioner = given
    return own


def make_partitioner(chosen: str | Partitioner, randomness: Randomness) -> Partitioner | None:
    """Make the partitioner from the result of `find_partitioner`.

    None is the default partitioner, which the accumulator has in compiled code.
    """
    if not isinstance(chosen, str):
        return chosen
    if chosen == DEFAULT_PARTITIONER:
        return None
    if chosen in _MADE:
        return _MADE[chosen](randomness)
    return _BY_NAME[chosen]
