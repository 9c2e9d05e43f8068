"""Where replicas are to be: plans for moves between brokers, made without asking any.

Two plans, each a new list of brokers for the partitions that change, the first of them to lead:

    spread    partitions over some brokers: in as many racks as can be, then as evenly as the racks
              allow, then by few moves: mostly the fewest, rarely one more than it takes
    drain     every replica off one broker, and no other: to racks that the partition is not in,
              to the least loaded broker there

Both keep replication factors, and never put two replicas of a partition on one broker.

A plan can be kept in a file, in the JSON format of Kafka's kafka-reassign-partitions:

    {"version": 1, "partitions": [{"topic": "letters", "partition": 0, "replicas": [1, 2]}]}

`log_dirs` is accepted if every directory is "any".
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.model.identifiers import TopicPartition

Assignment = Mapping[TopicPartition, Sequence[int]]
"""The replicas of each partition."""
Plan = dict[TopicPartition, tuple[int, ...]]
_Step = tuple[TopicPartition, int, int]
"""The move of a replica or a leadership from one broker to another."""
_EVEN = 1
"""The allowed difference between the most and the least loaded broker."""

VERSION: Final = 1
ANY_LOG_DIR: Final = "any"


@dataclass(frozen=True, slots=True)
class Site:
    """A broker for replicas. Brokers without a rack share one."""

    broker_id: int
    rack: str | None = None


class ImpossiblePlanError(ValueError):
    """There are not enough brokers; the message is for users."""


def spread(
    current: Assignment, sites: Sequence[Site], elsewhere: Mapping[int, int] | None = None
) -> Plan:
    """Assign these partitions to these brokers.

    `elsewhere` is the number of other replicas per broker: of two otherwise equal brokers, the
    broker with fewer is chosen. ImpossiblePlanError if there are too few brokers.
    """
    for name, replicas in current.items():
        if len(replicas) > len(sites):
            raise ImpossiblePlanError(
                f"{name} has {len(replicas)} replicas: they need as many brokers, not {len(sites)}"
            )
    board = _Board(current, sites, elsewhere or {})
    for name in sorted(current, key=lambda name: (-len(current[name]), name)):
        board.fill(name)  # partitions with the least choice first
    for name in sorted(current):
        board.spread_over_racks(name)
    board.even_out_replicas()
    board.even_out_leaders()
    return _changed(current, board.replicas_by_partition)


def drain(
    current: Assignment, leaving: int, sites: Sequence[Site], to: Collection[int] | None = None
) -> Plan:
    """Move every replica off one broker.

    `current` has every partition of the cluster, `sites` the other brokers. Replicas may go to the
    brokers in `to`, or by default to all sites. ImpossiblePlanError if a replication factor cannot
    be kept.
    """
    racks = {site.broker_id: site.rack for site in sites}
    open_to = set(racks if to is None else to) - {leaving}
    choices = {
        name: _choices(name, replicas, leaving, open_to, racks)
        for name, replicas in sorted(current.items())
        if leaving in replicas
    }
    chosen = _least_loaded(choices, loads(current))
    return {
        name: tuple(heir if one == leaving else one for one in current[name])
        for name, heir in chosen.items()
    }


def loads(current: Assignment, *, without: Iterable[TopicPartition] = ()) -> Counter[int]:
    """Count the replicas of each broker, leaving out some partitions."""
    left_out = set(without)
    return Counter(
        one for name, replicas in current.items() if name not in left_out for one in replicas
    )


def _choices(
    name: TopicPartition,
    replicas: Sequence[int],
    leaving: int,
    open_to: Collection[int],
    racks: Mapping[int, str | None],
) -> list[int]:
    """Return the brokers that may take over a replica, from racks with the fewest replicas."""
    count_by_rack = Counter(racks.get(one) for one in replicas if one != leaving)
    candidates = sorted(one for one in open_to if one not in replicas)
    if not candidates:
        raise ImpossiblePlanError(
            f"{name} has {len(replicas)} replicas, and no other broker can take the replica of "
            f"broker {leaving}"
        )
    fewest = min(count_by_rack[racks[one]] for one in candidates)
    return [one for one in candidates if count_by_rack[racks[one]] == fewest]


def _least_loaded(
    choices: Mapping[TopicPartition, Sequence[int]], load: Counter[int]
) -> dict[TopicPartition, int]:
    """Choose a broker for each partition; repeat while another choice improves the balance."""
    chosen: dict[TopicPartition, int] = {}
    is_better = bool(choices)
    while is_better:
        is_better = False
        for name, candidates in choices.items():
            best = min(candidates, key=lambda one: (load[one], one))
            before = chosen.get(name)
            if before is not None and load[before] - load[best] <= _EVEN:
                continue
            if before is not None:
                load[before] -= 1
            chosen[name] = best
            load[best] += 1
            is_better = True
    return chosen


class _Board:
    """The assignment during planning; None stands for a replica without a broker."""

    def __init__(
        self, current: Assignment, sites: Sequence[Site], elsewhere: Mapping[int, int]
    ) -> None:
        self._before = {name: frozenset(replicas) for name, replicas in current.items()}
        self._elsewhere = elsewhere
        self._rack = {site.broker_id: site.rack for site in sites}
        self._places: dict[TopicPartition, list[int | None]] = {}
        self._kept: dict[int, set[TopicPartition]] = {one: set() for one in self._rack}
        for name, replicas in current.items():
            self._places[name] = [one if one in self._rack else None for one in replicas]
            for one in set(replicas) & set(self._rack):
                self._kept[one].add(name)

    @property
    def replicas_by_partition(self) -> Plan:
        """The replicas of each partition, once all have a broker."""
        return {
            name: tuple(one for one in places if one is not None)
            for name, places in self._places.items()
        }

    def fill(self, name: TopicPartition) -> None:
        """Find brokers for the replicas on brokers that are not sites."""
        places = self._places[name]
        for position, one in enumerate(places):
            if one is None:
                count_by_rack = self._racks_of(name)
                candidates = self._others(name)
                best = min(
                    candidates, key=lambda one: (count_by_rack[self._rack[one]], *self._load(one))
                )
                places[position] = best
                self._kept[best].add(name)

    def spread_over_racks(self, name: TopicPartition) -> None:
        """Move replicas out of a rack that has at least two more than another rack would have."""
        while True:
            count_by_rack = self._racks_of(name)
            fullest = max(
                self._brokers_of(name),
                key=lambda one: (count_by_rack[self._rack[one]], *self._load(one)),
            )
            others = self._others(name)
            if not others:
                return
            best = min(others, key=lambda one: (count_by_rack[self._rack[one]], *self._load(one)))
            gap = count_by_rack[self._rack[fullest]] - count_by_rack[self._rack[best]]
            if gap <= _EVEN:
                return
            self._move(name, fullest, best)

    def even_out_replicas(self) -> None:
        """Move replicas from more to less loaded brokers, while that improves the balance."""
        while found := self._evening_move():
            self._move(*found)

    def even_out_leaders(self) -> None:
        """Balance the preferred leaders by reordering replicas, which moves no data."""
        leads: dict[int, set[TopicPartition]] = {one: set() for one in self._rack}
        for name, replicas in self.replicas_by_partition.items():
            leads[replicas[0]].add(name)
        while chain := self._evening_chain(leads):
            for name, most, least in chain:
                places = self._places[name]
                position = places.index(least)
                places[0], places[position] = least, most
                leads[most].remove(name)
                leads[least].add(name)

    def _evening_move(self) -> _Step | None:
        """Return the cheapest move between the brokers with the largest difference."""
        for most, least in _uneven_pairs({one: len(kept) for one, kept in self._kept.items()}):
            movable = [name for name in self._kept[most] if self._may_move(name, most, least)]
            if movable:
                return min(movable, key=lambda name: self._cost(name, most, least)), most, least
        return None

    def _evening_chain(self, leads: Mapping[int, set[TopicPartition]]) -> Sequence[_Step]:
        """Return a chain of swaps that moves a leadership to a broker with at least two fewer."""
        for most, least in _uneven_pairs({one: len(led) for one, led in leads.items()}):
            chains = self._chains_from(most, leads)
            if least in chains:
                return chains[least]
        return ()

    def _chains_from(
        self, most: int, leads: Mapping[int, set[TopicPartition]]
    ) -> dict[int, tuple[_Step, ...]]:
        """Return the shortest path to each broker; brokers in between pass replicas on.

        A broker can hand the leadership of a partition to any of its replicas.
        """
        chains: dict[int, tuple[_Step, ...]] = {most: ()}
        waiting = [most]
        for giver in waiting:  # grows as more brokers are reached
            for taker in sorted(leads.keys() - chains.keys()):
                if shared := leads[giver] & self._kept[taker]:
                    chains[taker] = (*chains[giver], (min(shared), giver, taker))
                    waiting.append(taker)
        return chains

    def _may_move(self, name: TopicPartition, most: int, least: int) -> bool:
        """Whether a replica may move between the brokers without overfilling a rack."""
        if name in self._kept[least]:
            return False
        if self._rack[most] == self._rack[least]:
            return True
        count_by_rack = self._racks_of(name)
        return count_by_rack[self._rack[least]] < count_by_rack[self._rack[most]]

    def _cost(
        self, name: TopicPartition, most: int, least: int
    ) -> tuple[int, bool, TopicPartition]:
        """Rank moves: a replica's return, then a partition that moves anyway, then a follower."""
        before = self._before[name]
        return (most in before) - (least in before), self._places[name][0] == most, name

    def _move(self, name: TopicPartition, source: int, target: int) -> None:
        places = self._places[name]
        places[places.index(source)] = target
        self._kept[source].remove(name)
        self._kept[target].add(name)

    def _brokers_of(self, name: TopicPartition) -> list[int]:
        return [one for one in self._places[name] if one is not None]

    def _others(self, name: TopicPartition) -> list[int]:
        return [one for one in self._rack if name not in self._kept[one]]

    def _racks_of(self, name: TopicPartition) -> Counter[str | None]:
        return Counter(self._rack[one] for one in self._brokers_of(name))

    def _load(self, broker_id: int) -> tuple[int, int, int]:
        return len(self._kept[broker_id]), self._elsewhere.get(broker_id, 0), broker_id


def _uneven_pairs(load: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of brokers with loads that differ by at least two, largest difference first."""
    ranked = sorted(load, key=lambda one: (load[one], one))
    for most in reversed(ranked):
        for least in ranked:
            if load[most] - load[least] <= _EVEN:
                break
            yield most, least


def _changed(current: Assignment, planned: Plan) -> Plan:
    return {
        name: planned[name] for name in sorted(planned) if planned[name] != tuple(current[name])
    }


class InvalidPlanError(ValueError):
    """A file is not a plan; the message is for users."""


def write_plan(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Return the JSON object of a plan."""
    return {
        "version": VERSION,
        "partitions": [
            {
                "topic": name.topic,
                "partition": name.partition,
                "replicas": list(replicas),
                "log_dirs": [ANY_LOG_DIR] * len(replicas),
            }
            for name, replicas in sorted(plan.items())
        ],
    }


def read_plan(text: str | bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse a plan; InvalidPlanError names the fault."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidPlanError(f"it is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("version", VERSION) != VERSION:
        raise InvalidPlanError(f"it is not an object with version {VERSION}")
    rows = content.get("partitions")
    if not isinstance(rows, list) or not rows:
        raise InvalidPlanError("it has no list of partitions")
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for row in rows:
        name, replicas = _read_row(row)
        if name in plan:
            raise InvalidPlanError(f"{name} is in it twice")
        plan[name] = replicas
    return plan


def _read_row(row: object) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise InvalidPlanError(f"{row!r} is not an object")
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise InvalidPlanError(f"{row!r} names no topic and partition")
    name = TopicPartition(topic, partition)
    if not isinstance(replicas, list) or not all(isinstance(one, int) for one in replicas):
        raise InvalidPlanError(f"{name} has no list of brokers")
    if not replicas or len(set(replicas)) != len(replicas):
        raise InvalidPlanError(f"{name} needs brokers, each of them once: {replicas}")
    if set(row.get("log_dirs", ())) - {ANY_LOG_DIR}:
        raise InvalidPlanError(
            f'{name} names a directory: only "any" can be asked for; '
            "`ottla partition move` moves between directories"
        )
    return name, tuple(replicas)
