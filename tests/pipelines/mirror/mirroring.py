"""Two clusters, copying without Spark, and views of the copied records."""

import asyncio
from bisect import bisect_left
from typing import NamedTuple

from ottla import Admin, Consumer, OffsetSpec, TopicPartition
from ottla.pipelines.mirror.options import MirrorOptions
from ottla.pipelines.mirror.planning import Planner, ranges_of
from ottla.pipelines.mirror.running import Following
from ottla.pipelines.mirror.source import CopyTask, copy_ranges

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


class Seen(NamedTuple):
    """A committed record as a reader sees it, without its position."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def options_of(source: str, target: str, *topics: str, **others: object) -> MirrorOptions:
    """Return the options of a mirror of these topics."""
    places = {"bootstrap.servers": source}, {"bootstrap.servers": target}
    return MirrorOptions(*places, topics, **others)  # type: ignore[arg-type]


def mirror(options: MirrorOptions) -> Following:
    """Copy all existing records as a Spark query would; return the mirror's state."""
    following = Following(options.checked())
    with following:
        asyncio.run(copy_all(options))
        following.follow()
    return following


async def copy_all(options: MirrorOptions) -> list[dict[str, dict[str, int]]]:
    """Plan and copy until nothing is left; return the plans."""
    planner, plans = Planner(options), []
    try:
        last, start = await planner.last_ends(), {}
        while (end := await planner.ends(start, last)) != start:
            plans.append(end)
            tasks = ranges_of(await planner.ranges(start, end), options.task_count)
            notes = await planner.notes_topic()
            for ranges in tasks:
                await copy_ranges(CopyTask(options.to_json(), notes, ranges))
            start = end
    finally:
        (await planner._meet())[0].close()
    return plans


def records_by_partition(servers: str, topic: str) -> dict[int, dict[int, Seen]]:
    """Read all committed records, by partition and offset."""
    with Admin(bootstrap_servers=servers) as admin:
        count = len(admin.topics.describe(topic)[topic].partitions)
        names = [TopicPartition(topic, number) for number in range(count)]
        ends = admin.offsets.find(dict.fromkeys(names, OffsetSpec.LATEST), is_committed_only=True)
    found: dict[int, dict[int, Seen]] = {number: {} for number in range(count)}
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with Consumer(settings, bootstrap_servers=servers) as consumer:
        consumer.assign(names)
        while any(consumer.position(name) < end.offset for name, end in ends.items()):
            for row in consumer.poll(timeout=1.0):
                headers = tuple((header.key, header.value) for header in row.headers)
                seen = Seen(row.key, row.value, headers, row.timestamp)
                assert row.offset not in found[row.partition], "an offset came twice"
                found[row.partition][row.offset] = seen
    return found


def contents(servers: str, topic: str) -> dict[int, list[Seen]]:
    """Read all committed records, by partition and in order."""
    by_offset = records_by_partition(servers, topic)
    return {number: list(rows.values()) for number, rows in by_offset.items()}


class Truth:
    """The correct positions of groups, from a comparison of a partition in both clusters."""

    def __init__(self, source: dict[int, Seen], target: dict[int, Seen]) -> None:
        self._here, self._there = sorted(source), sorted(target)
        assert [source[one] for one in self._here] == [target[one] for one in self._there]

    def translate(self, offset: int) -> int:
        """Return the target's offset of the first record at or after an offset of the source."""
        place = bisect_left(self._here, offset)
        return self._there[place] if place < len(self._there) else self._there[-1] + 1
