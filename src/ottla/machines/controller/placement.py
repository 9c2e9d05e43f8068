"""Which brokers keep a new partition: the first of its replicas is to lead it.

Leaders go round-robin over the brokers from a random start. The other replicas follow on the same
ring, first in racks that the partition has fewest replicas in; each time around they begin one
broker further away, so that the partitions of one broker are not all kept by the same others:

    ring 0 1 2 3, start 0     0 1 2    1 2 3    2 3 0    3 0 1    0 2 3    1 3 0    2 0 1 …

Neighbours on the ring are in different racks as far as possible. A fenced broker leads nothing,
and follows only where its rack, or the lack of others, leaves no choice. A cordoned broker gets
nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from ottla.metadata.image import BrokerImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId


def place(
    brokers: Iterable[BrokerImage], partition_count: int, replication_factor: int, start: int
) -> list[tuple[BrokerId, ...]]:
    """Return the brokers of each partition, for new partitions of one topic.

    `start` is any number that is not negative, drawn at random. ApiError
    INVALID_REPLICATION_FACTOR where there are too few brokers.
    """
    ring = _ring(broker for broker in brokers if not broker.is_cordoned)
    leaders = [position for position, broker in enumerate(ring) if broker.is_active]
    _check_factor(replication_factor, len(ring), len(leaders))
    replicas_by_turn: dict[tuple[int, int], tuple[BrokerId, ...]] = {}
    placed = []
    for turn in range(start, start + partition_count):
        key = leaders[turn % len(leaders)], (turn - start) // len(leaders) % max(len(ring) - 1, 1)
        if key not in replicas_by_turn:
            replicas_by_turn[key] = _replicas(ring, *key, replication_factor)
        placed.append(replicas_by_turn[key])
    return placed


def _ring(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """Order the brokers so that each rack occurs once before any occurs again."""
    seen_by_rack: Counter[str | None] = Counter()
    ranked = []
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        ranked.append((seen_by_rack[broker.rack], broker.rack or "", broker.broker_id, broker))
        seen_by_rack[broker.rack] += 1
    return [broker for *_, broker in sorted(ranked, key=lambda item: item[:3])]


def _check_factor(replication_factor: int, broker_count: int, active_count: int) -> None:
    if replication_factor < 1:
        raise _invalid(f"{replication_factor} replicas; there must be at least 1")
    if replication_factor > broker_count:
        raise _invalid(f"{replication_factor} replicas, and {broker_count} brokers to keep them")
    if active_count == 0:
        raise _invalid("no broker is active")


def _replicas(
    ring: Sequence[BrokerImage], leads: int, shift: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    """Choose the brokers of a partition: the broker at a position of the ring, then later ones."""
    leader = ring[leads]
    others = [*ring[leads + 1 :], *ring[:leads]]
    others = others[shift:] + others[:shift]
    chosen = [leader]
    count_by_rack = Counter([leader.rack])
    for _ in range(replication_factor - 1):
        # Of equally good brokers the first: min keeps the order of the ring.
        best = min(others, key=lambda broker: (count_by_rack[broker.rack], not broker.is_active))
        others.remove(best)
        chosen.append(best)
        count_by_rack[best.rack] += 1
    return tuple(broker.broker_id for broker in chosen)


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, detail)
