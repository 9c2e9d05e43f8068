"""The scrubber: segment selection and schedule."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.maintenance.log_scrubber import (
    CHECKED_AGAIN_MS,
    LogScrubber,
    ScrubSettings,
    ScrubThreads,
)
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.simulation.world import cold_reads
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.files.damage import Damage
from tests.log_building import DIRECTORY, LogFolder, batch, fill
from tests.metadata_building import FixedClock

NAME = TopicPartition("events", 0)
SIZE = len(batch())


class World:
    """A partition on a simulated disk, and a scrubber that the test runs by hand."""

    def __init__(self, **settings: int) -> None:
        self.clock = FixedClock()
        self.disk = SimulatedDisk()
        self.folder = LogFolder(self.disk)
        fill(self.folder.start(), 10)
        self.partition = Partition(NAME, bytes(16), self.folder.log, lambda _: None)
        self.partition.lead(0)
        self.partitions = HostedPartitions()
        self.partitions.add(self.partition)
        self.threads = ScrubThreads(self.clock)
        self.scrubber = LogScrubber(
            self.partitions, cold_reads, self.clock, self.threads, ScrubSettings(**settings)
        )

    def flip(self, base_offset: int, byte: int) -> None:
        self.disk.flip_bit(f"{DIRECTORY}/{base_offset:020d}.log", byte, 0)

    @property
    def damage(self) -> list[Damage]:
        return [one for segment in self.partition.log.segments for one in segment.damage]

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        async def within() -> None:
            await work

        asyncio.run(within())


def test_a_round_reads_all_closed_segments_and_notes_damage() -> None:
    world = World()
    for base_offset in (0, 6):
        world.flip(base_offset, SIZE + 70)
    world.run(world.scrubber.scrub())
    assert [one[2:4] for one in world.damage] == [(1, 2), (7, 8)]
    counts = world.scrubber.counts
    assert counts.found_ranges == 2
    assert counts.scrubbed_bytes >= 9 * SIZE, "the active one is not read"
    world.run(world.scrubber.scrub())
    assert counts.found_ranges == 2


def test_only_suspect_segments_are_read_at_once_and_not_again_and_again() -> None:
    world = World()
    world.flip(3, 70)
    world.flip(6, 70)
    log = world.partition.log
    (path,) = [one.path for one in log.segments if one.base_offset == 3]
    world.run(world.scrubber.check_suspects())
    assert world.damage == []
    log.suspect_paths.add(path)
    world.run(world.scrubber.check_suspects())
    assert [one[2:4] for one in world.damage] == [(3, 4)]
    read_bytes = world.scrubber.counts.scrubbed_bytes
    log.suspect_paths.add(path)
    world.run(world.scrubber.check_suspects())
    assert world.scrubber.counts.scrubbed_bytes == read_bytes
    world.clock.time_ms += CHECKED_AGAIN_MS
    log.suspect_paths.add(path)
    world.run(world.scrubber.check_suspects())
    assert world.scrubber.counts.scrubbed_bytes > read_bytes


def test_a_disk_that_cannot_be_read_takes_the_log_offline() -> None:
    world = World()
    world.disk.faults.fail_on(OperationKind.READ, DIRECTORY, errno.EIO)
    world.run(world.scrubber.scrub())
    assert world.partition.log.is_offline


async def until(condition: Callable[[], object]) -> None:
    """Let threads work until a condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not come to be so")


def test_rounds_begin_after_the_interval_and_go_by_new_settings() -> None:
    world = World(interval_ms=-1)
    world.flip(0, 70)

    async def story() -> None:
        world.scrubber.start()
        await asyncio.sleep(0.02)
        assert world.damage == [], "it is off"
        world.scrubber.apply(ScrubSettings(interval_ms=1))
        await until(lambda: world.damage)
        await world.scrubber.stop()
        world.threads.join()

    asyncio.run(story())


def test_a_stop_ends_a_round_that_waits_for_its_pace() -> None:
    world = World(interval_ms=1, bytes_per_second=1)

    async def story() -> None:
        world.scrubber.start()
        await until(lambda: world.scrubber.counts.scrubbed_bytes)
        async with asyncio.timeout(30):
            await world.scrubber.stop()
        world.threads.join()

    asyncio.run(story())
