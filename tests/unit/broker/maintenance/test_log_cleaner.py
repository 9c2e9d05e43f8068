"""The log cleaner: log selection, checkpoints, and error handling."""

import asyncio
import errno
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.maintenance.cleaner_throttle import CleanerThrottle, CleaningStoppedError
from ottla.broker.maintenance.log_cleaner import CleanerSettings, LogCleaner
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import CleanupPolicy, TopicConfig
from ottla.replication.partition import Partition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.wire.records.batch import batches
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record, records_of
from tests.metadata_building import FixedClock

COMPACTED = TopicConfig(
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    segment_bytes=1000,
    min_cleanable_dirty_ratio=0.1,
    file_delete_delay_ms=0,
)
ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 0)
CHECKPOINT = "/data/cleaner-offset-checkpoint"


class World:
    """Partitions on a simulated disk, and a cleaner that the test runs by hand."""

    def __init__(self, disk: SimulatedDisk | None = None, **settings: Any) -> None:
        self.clock = FixedClock()
        self.disk = disk or SimulatedDisk()
        self.partitions = HostedPartitions()
        self.dirs = LogDirs(self.disk, ["/data"])
        self.dirs.open(lambda _: COMPACTED, self.clock.now_ms())
        for folder in self.dirs.dirs:
            for name, hosted in folder.hosted.items():
                self.host(name, hosted.log)
        self.cleaner = LogCleaner(
            self.partitions, self.dirs, self.clock, CleanerSettings(**settings)
        )

    def host(self, name: TopicPartition, log: Any) -> Partition:
        partition = Partition(name, bytes(range(16)), log, lambda _: None)
        partition.lead(0)
        self.partitions.add(partition)
        return partition

    def add(self, name: TopicPartition, config: TopicConfig = COMPACTED) -> Partition:
        log = self.dirs.create(name, bytes(range(16)), config, self.clock.now_ms())
        return self.host(name, log)

    def clean(self) -> bool:
        """Compact the next due log, if any."""
        return run(self.cleaner.clean_dirtiest())

    def checkpoint(self) -> str:
        file = self.disk.open_file(CHECKPOINT)
        return file.read_at(0, file.size_bytes()).decode()


def run(work: Coroutine[Any, Any, bool]) -> bool:
    async def within() -> bool:
        return await work

    return asyncio.run(within())


def fill(partition: Partition, count: int, keys: int, *, flush: bool = True) -> dict[bytes, bytes]:
    """Append values to a few keys in turn; return the last value of each key."""
    last = {}
    for number in range(count):
        key, value = b"key %d" % (number % keys), b"value %d" % number
        batch = build_batch([Record(0, 1_000_000, key, value)])
        partition.append_as_leader(memoryview(batch), 1_000_000)
        last[key] = value
    if flush:
        partition.log.flush(1_000_000)
    return last


def state_of(partition: Partition) -> dict[bytes | None, bytes | None]:
    records = all_records(partition)
    return {record.key: record.value for record in records}


def all_records(partition: Partition) -> list[Record]:
    offset, found = partition.log.log_start_offset, []
    while offset < partition.log.end_offset:
        part = partition.log.read(offset, partition.log.end_offset, 1 << 20)
        data = part.file.read_at(part.position, len(part))
        for batch in batches(memoryview(data)):
            found += [record for record in records_of(batch) if record.offset >= offset]
            offset = batch.end_offset
    return found


def test_a_dirty_log_keeps_the_last_value_of_each_key_and_the_checkpoint_says_so() -> None:
    world = World()
    orders = world.add(ORDERS)
    last = fill(orders, 100, keys=3)
    closed_end_offset = orders.log.segments.closed_end_offset
    assert world.clean()
    assert state_of(orders) == last
    assert len(all_records(orders)) < 30
    assert world.checkpoint() == f"0\n1\norders 0 {closed_end_offset}\n"
    assert not world.clean()


def test_the_dirtiest_log_comes_first() -> None:
    world = World()
    fill(world.add(ORDERS), 100, keys=3)
    assert world.clean()
    fill(world.partitions.get(ORDERS), 50, keys=3)
    fill(world.add(PAYMENTS), 100, keys=3)
    assert world.clean()
    assert "payments" in world.checkpoint()
    assert world.clean()
    assert not world.clean()


def test_records_that_are_not_durable_are_not_compacted() -> None:
    world = World()
    orders = world.add(ORDERS)
    fill(orders, 100, keys=3, flush=False)
    assert not world.clean()
    orders.log.flush(0)
    assert world.clean()


def test_a_log_that_is_only_deleted_from_is_left_alone() -> None:
    world = World()
    fill(world.add(ORDERS, TopicConfig(segment_bytes=1000)), 100, keys=3)
    assert not world.clean()


def test_after_a_restart_only_later_records_are_dirty() -> None:
    world = World()
    last = fill(world.add(ORDERS), 100, keys=3)
    assert world.clean()
    world.dirs.close(world.clock.now_ms(), 1)
    again = World(world.disk)
    assert not again.clean()
    last |= fill(again.partitions.get(ORDERS), 100, keys=3)
    assert again.clean()
    assert state_of(again.partitions.get(ORDERS)) == last


def test_a_cut_lowers_what_is_noted_before_anything_is_cut() -> None:
    world = World()
    orders = world.add(ORDERS)
    fill(orders, 100, keys=3)
    assert world.clean()
    orders.log.truncate_to(20)
    assert world.dirs.dirs[0].first_dirty_offsets[ORDERS] <= 20
    noted = int(world.checkpoint().split()[-1])
    assert noted <= 20


def test_a_log_that_lost_its_end_in_a_crash_is_dirty_from_there() -> None:
    world = World()
    orders = world.add(ORDERS)
    fill(orders, 100, keys=3)
    assert world.clean()
    world.dirs.close(world.clock.now_ms(), 1)
    world.disk.create_file(CHECKPOINT).write_at(0, b"0\n1\norders 0 999\n")
    again = World(world.disk)
    assert again.checkpoint() == "0\n1\norders 0 100\n"


def test_the_note_of_a_deleted_topic_does_not_count_for_another_of_that_name() -> None:
    world = World()
    fill(world.add(ORDERS), 100, keys=3)
    assert world.clean()
    folder = world.dirs.dirs[0]
    world.partitions.remove(ORDERS)
    folder.remove_deleted(folder.delete(ORDERS, bytes(16)))
    for write in folder.finish_deletes():
        write()
    assert world.checkpoint() == "0\n0\n"
    fill(world.add(ORDERS), 200, keys=3)
    assert ORDERS not in folder.first_dirty_offsets
    assert world.clean()


def test_a_damaged_log_is_left_alone_and_all_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    orders = world.add(ORDERS)
    fill(orders, 100, keys=3)
    fill(world.add(PAYMENTS), 30, keys=3)
    world.disk.flip_bit(f"/data/orders-0/{0:020d}.log", 100, 1)
    with caplog.at_level(logging.WARNING):
        assert world.clean()
        assert world.clean()
    assert "orders-0: compaction has met damage" in caplog.text
    assert orders.log.suspect_paths == {f"/data/orders-0/{0:020d}.log"}
    assert "payments" in world.checkpoint()
    assert not world.clean()


def test_a_folder_survives_a_checkpoint_that_a_full_disk_refuses() -> None:
    world = World()
    fill(world.add(ORDERS), 100, keys=3)
    checkpoint = "/data/cleaner-offset-checkpoint"
    world.disk.faults.fail_on(OperationKind.WRITE, f"{checkpoint}.tmp", errno.ENOSPC)
    assert world.clean()
    assert not world.partitions.get(ORDERS).log.is_offline
    assert world.cleaner.uncleanable == []


def test_a_full_disk_is_tried_again() -> None:
    world = World()
    orders = world.add(ORDERS)
    last = fill(orders, 100, keys=3)
    world.disk.faults.fail_on(OperationKind.WRITE, "/data/orders-0", errno.ENOSPC)
    assert world.clean()
    assert world.cleaner.uncleanable == []
    assert not world.clean(), "it is put off"
    world.disk.faults.heal()
    assert run(world.cleaner.clean_all())
    assert state_of(orders) == last


def test_a_disk_that_fails_at_the_decision_takes_the_log_offline_until_a_restart() -> None:
    world = World()
    orders = world.add(ORDERS)
    last = fill(orders, 100, keys=3)
    world.disk.faults.fail_on(OperationKind.RENAME, "/data/orders-0", errno.EIO)
    assert world.clean()
    assert orders.log.is_offline
    world.disk.faults.heal()
    assert state_of(World(world.disk).partitions.get(ORDERS)) == last


def test_a_log_that_goes_offline_meanwhile_is_given_up() -> None:
    world = World(bytes_per_second=20_000.0)
    orders = world.add(ORDERS)
    fill(orders, 100, keys=3)

    async def story() -> None:
        cleaning = asyncio.create_task(world.cleaner.clean_dirtiest())
        await asyncio.sleep(0)
        orders.log.take_offline(OSError("gone"))
        assert await cleaning

    asyncio.run(story())
    assert world.cleaner.uncleanable == []


def test_stopping_ends_a_compaction_that_would_take_hours() -> None:
    world = World(bytes_per_second=1.0, backoff_ms=1)
    orders = world.add(ORDERS)
    last = fill(orders, 100, keys=3)

    async def story() -> None:
        world.cleaner.start()
        while not world.cleaner.in_progress:  # noqa: ASYNC110 - a thread sets it, without a notification
            await asyncio.sleep(0.001)
        await world.cleaner.stop()

    asyncio.run(story())
    assert state_of(orders) == last
    assert not [name for name in world.disk.list_directory("/data/orders-0") if "cleaned" in name]


def test_two_threads_take_two_logs() -> None:
    world = World(threads=2, backoff_ms=1)
    lasts = {name: fill(world.add(name), 100, keys=3) for name in (ORDERS, PAYMENTS)}

    async def story() -> None:
        world.cleaner.start()
        while len(world.dirs.dirs[0].first_dirty_offsets) < 2:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.001)
        await world.cleaner.stop()

    asyncio.run(story())
    for name, last in lasts.items():
        assert state_of(world.partitions.get(name)) == last


def test_the_pace_is_shared_and_a_stop_is_heard_by_all() -> None:
    clock = FixedClock()
    pace = CleanerThrottle(clock)
    pace.wait(1 << 30)
    pace.stop()
    with pytest.raises(CleaningStoppedError):
        pace.wait(1)


def test_more_threads_can_be_asked_for_while_it_runs() -> None:
    world = World(threads=0, backoff_ms=1)
    last = fill(world.add(ORDERS), 100, keys=3)

    async def story() -> None:
        world.cleaner.apply(CleanerSettings(threads=0, backoff_ms=1))
        world.cleaner.start()
        world.cleaner.apply(CleanerSettings(threads=1, backoff_ms=1))
        while not world.dirs.dirs[0].first_dirty_offsets:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.001)
        await world.cleaner.stop()

    asyncio.run(story())
    assert state_of(world.partitions.get(ORDERS)) == last


def test_a_partition_that_is_deleted_meanwhile_leaves_no_word_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(bytes_per_second=20_000.0)
    orders = world.add(ORDERS)
    fill(orders, 100, keys=3)
    folder = world.dirs.dirs[0]

    async def story() -> None:
        cleaning = asyncio.create_task(world.cleaner.clean_dirtiest())
        await asyncio.sleep(0)
        world.partitions.remove(ORDERS)
        folder.remove_deleted(folder.delete(ORDERS, bytes(16)))
        assert await cleaning

    asyncio.run(story())
    assert world.cleaner.uncleanable == []
    assert ORDERS not in folder.first_dirty_offsets
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
