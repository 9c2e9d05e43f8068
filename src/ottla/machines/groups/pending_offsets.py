"""Offsets committed in transactions that have not ended yet. Only replay writes here.

Of two offsets for the same partition the later in the log counts, whichever transaction ended
first: so the result does not depend on when a compacted log is loaded. A pending offset with a
later one behind it stays pending, and never counts.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ottla.machines.groups.group_memory import PENDING_OFFSET_BYTES, Usage, text_bytes
from ottla.machines.groups.group_records import CommittedOffset
from ottla.model.identifiers import ProducerId


class Place(NamedTuple):
    """The key of an offset."""

    group_id: str
    topic: str
    partition: int


class _Pending(NamedTuple):
    number: int
    committed: CommittedOffset
    is_overtaken: bool = False


class PendingOffsets:
    """Offsets by producer, and the producers that have some for a place."""

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, dict[Place, _Pending]] = {}
        # Dicts in place of sets, for their order.
        self._producers_by_place: dict[Place, dict[ProducerId, None]] = {}
        self._count_by_group: Counter[str] = Counter()
        self._next_number = 0
        self.usage = Usage()

    def has_group(self, group_id: str) -> bool:
        """Whether a transaction is open that commits something for a group."""
        return group_id in self._count_by_group

    def is_pending(self, place: Place) -> bool:
        """Whether a transaction is open that commits something for a place."""
        return place in self._producers_by_place

    def of_group(self, group_id: str) -> Iterator[Place]:
        """Yield the places for which something is pending in a group."""
        if group_id in self._count_by_group:
            yield from (place for place in self._producers_by_place if place.group_id == group_id)

    def of_topic(self, topic: str) -> Iterator[tuple[Place, CommittedOffset]]:
        """Iterate over the pending offsets for a topic."""
        for place, producers in self._producers_by_place.items():
            if place.topic == topic:
                for producer_id in producers:
                    yield place, self._by_producer[producer_id][place].committed

    def put(self, producer_id: ProducerId, place: Place, committed: CommittedOffset) -> None:
        """Remember an offset until the producer's transaction ends."""
        by_place = self._by_producer.setdefault(producer_id, {})
        if place not in by_place:
            self._count_by_group[place.group_id] += 1
            self._producers_by_place.setdefault(place, {})[producer_id] = None
        else:
            self.usage.charge(-pending_bytes(by_place[place].committed))
        self.usage.charge(pending_bytes(committed))
        by_place[place] = _Pending(self._next_number, committed)
        self._next_number += 1

    def overtake(self, place: Place, number: int | None = None) -> None:
        """Invalidate pending offsets written before this number, or before now."""
        for producer_id in self._producers_by_place.get(place, ()):
            by_place = self._by_producer[producer_id]
            pending = by_place[place]
            if number is None or pending.number < number:
                by_place[place] = pending._replace(is_overtaken=True)

    def forget(self, place: Place) -> None:
        """Remove the pending offsets of a key."""
        for producer_id in self._producers_by_place.pop(place, {}):
            by_place = self._by_producer[producer_id]
            self.usage.charge(-pending_bytes(by_place.pop(place).committed))
            self._count_down(place.group_id)
            if not by_place:
                del self._by_producer[producer_id]

    def end(
        self, producer_id: ProducerId, *, is_commit: bool
    ) -> list[tuple[Place, CommittedOffset | None]]:
        """End a producer's transaction: return its keys, with the offsets that count now."""
        ended = self._by_producer.pop(producer_id, {})
        for place, pending in ended.items():
            self.usage.charge(-pending_bytes(pending.committed))
            producers = self._producers_by_place[place]
            del producers[producer_id]
            if not producers:
                del self._producers_by_place[place]
            elif is_commit and not pending.is_overtaken:
                self.overtake(place, pending.number)
            self._count_down(place.group_id)
        return [
            (place, pending.committed if is_commit and not pending.is_overtaken else None)
            for place, pending in ended.items()
        ]

    def _count_down(self, group_id: str) -> None:
        self._count_by_group[group_id] -= 1
        if not self._count_by_group[group_id]:
            del self._count_by_group[group_id]


def pending_bytes(committed: CommittedOffset) -> int:
    """Return how much memory a pending offset takes."""
    return PENDING_OFFSET_BYTES + text_bytes(committed.metadata)
