"""Background work: scheduled retention, and the failures that it survives."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.maintenance.periodic_tasks import PeriodicTasks
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.replication.partition import Partition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record
from tests.metadata_building import FixedClock

CONFIG = TopicConfig(segment_bytes=200, retention_ms=1000, flush_ms=0, file_delete_delay_ms=0)
ORDERS = TopicPartition("orders", 0)


def filled(clock: FixedClock) -> tuple[HostedPartitions, LogDirs]:
    dirs = LogDirs(SimulatedDisk(), ["/data"])
    dirs.open(lambda _: CONFIG, clock.now_ms())
    log = dirs.create(ORDERS, bytes(range(16)), CONFIG, clock.now_ms())
    partition = Partition(ORDERS, bytes(range(16)), log, lambda _: None)
    partition.lead(0)
    for number in range(10):
        batch = build_batch([Record(0, clock.now_ms(), b"key", b"value %d" % number)])
        partition.append_as_leader(memoryview(batch), clock.now_ms())
    partitions = HostedPartitions()
    partitions.add(partition)
    return partitions, dirs


def with_background(
    clock: FixedClock, partitions: HostedPartitions, dirs: LogDirs
) -> PeriodicTasks:
    threads = ThreadPoolExecutor(1)
    return PeriodicTasks(partitions, dirs, LogFlusher(threads, clock), clock, threads)


def test_old_segments_go_when_their_time_has_come_and_not_before() -> None:
    clock = FixedClock()
    partitions, dirs = filled(clock)
    background = with_background(clock, partitions, dirs)
    log = partitions.get(ORDERS).log
    asyncio.run(background.retain())
    assert log.log_start_offset == 0
    clock.time_ms += 5000
    asyncio.run(background.retain())
    assert log.log_start_offset == log.end_offset == 10


def test_logs_are_flushed_when_flush_ms_has_passed_and_the_checkpoint_says_so() -> None:
    clock = FixedClock()
    partitions, dirs = filled(clock)
    background = with_background(clock, partitions, dirs)
    clock.time_ms += 1
    asyncio.run(background.flush())
    log = partitions.get(ORDERS).log
    assert log.recovery_point == 10
    asyncio.run(background.checkpoint())
    disk = log.files.disk
    content = disk.open_file("/data/recovery-point-offset-checkpoint").read_at(0, 1000)
    assert content == b"0\n1\norders 0 10\n"


def test_a_log_that_is_offline_is_passed_over() -> None:
    clock = FixedClock()
    partitions, dirs = filled(clock)
    background = with_background(clock, partitions, dirs)
    partitions.get(ORDERS).log.take_offline(OSError("gone"))
    clock.time_ms += 5000
    asyncio.run(background.retain())
    assert partitions.get(ORDERS).log.is_offline


def test_closed_segments_become_durable_though_nothing_asks_for_a_flush() -> None:
    clock = FixedClock()
    partitions, dirs = filled(clock)
    background = with_background(clock, partitions, dirs)
    log = partitions.get(ORDERS).log
    log.config = TopicConfig(segment_bytes=200)
    asyncio.run(background.flush())
    assert 0 < log.recovery_point == log.segments.closed_end_offset < log.end_offset


def test_a_flush_that_the_disk_refuses_is_told_and_tried_again() -> None:
    clock = FixedClock()
    partitions, _ = filled(clock)
    partition = partitions.get(ORDERS)
    flushing = LogFlusher(ThreadPoolExecutor(1), clock)
    clock.time_ms += 1
    disk = partition.log.files.disk
    assert isinstance(disk, SimulatedDisk)
    disk.capacity_bytes = 0
    assert asyncio.run(flushing.flush_where_due([partition])) == [partition]
    assert not partition.log.is_offline
    disk.capacity_bytes = None
    assert asyncio.run(flushing.flush_where_due([partition])) == []
    assert partition.log.recovery_point == 10


def test_a_partition_whose_segments_are_being_replaced_keeps_them() -> None:
    clock = FixedClock()
    partitions, dirs = filled(clock)
    threads = ThreadPoolExecutor(1)
    flushing = LogFlusher(threads, clock)
    busy = PeriodicTasks(partitions, dirs, flushing, clock, threads, lambda _: True)
    clock.time_ms += 5000
    asyncio.run(busy.retain())
    assert partitions.get(ORDERS).log.log_start_offset == 0
