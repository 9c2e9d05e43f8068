"""A coordinator's records in a partition, and loading them without blocking the event loop."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.broker.coordinators import coordinator_log
from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.group_records import (
    CommittedOffset,
    GroupRecord,
    offset_record,
    offset_tombstone,
)
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.settings import GroupSettings
from ottla.replication.partition import Partition
from ottla.wire.coordinator_records.codec import CONSUMER_OFFSETS, RecordCodec
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from tests.log_building import NOW_MS, PARTITION, batches_of, new_log
from tests.metadata_building import FixedClock
from tests.taking_turns import turns_of_others


class HastyClock(FixedClock):
    """A clock on which every reading uses up a time slice."""

    def monotonic_ms(self) -> int:
        self.time_ms += 5
        return self.time_ms


def new_partition(max_message_bytes: int = 1 << 20) -> Partition:
    log = new_log(
        segment_bytes=1 << 20,
        cleanup_policy=frozenset({"compact"}),
        max_message_bytes=max_message_bytes,
    )
    partition = Partition(PARTITION, bytes(16), log, lambda _: None)
    partition.lead(0)
    return partition


def committed(count: int, offset: int = 7) -> list[GroupRecord]:
    value = CommittedOffset(offset, 0, "a note", NOW_MS)
    return [offset_record("readers", "events", number, value) for number in range(count)]


def log_of(clock: FixedClock, compression: Compression = Compression.NONE) -> CoordinatorLog:
    return CoordinatorLog(RecordCodec(CONSUMER_OFFSETS), clock, ThreadPoolExecutor(1), compression)


async def loaded(log: CoordinatorLog, partition: Partition) -> GroupMachine:
    machine = GroupMachine(GroupSettings(), GroupMemory(128 << 20))
    await log.load(partition, machine.replay)
    return machine


def offsets(machine: GroupMachine) -> dict[int, int]:
    return {number: one.offset for _, number, one in machine.offsets_of("readers")}


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_a_large_decision_is_several_batches_and_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch, compression: Compression
) -> None:
    monkeypatch.setattr(coordinator_log, "BATCH_BYTES_MAX", 1_000)
    monkeypatch.setattr(coordinator_log, "LOAD_BYTES", 2_000)
    partition = new_partition()
    log = log_of(FixedClock(), compression)
    log.append(partition, committed(200))
    found = list(batches_of(partition.log))
    assert len(found) > 5
    assert {one.compression for one in found} == {compression}
    machine = asyncio.run(loaded(log, partition))
    assert offsets(machine) == dict.fromkeys(range(200), 7)


def test_no_batch_is_larger_than_its_topic_allows() -> None:
    partition = new_partition(max_message_bytes=1_000)
    log_of(FixedClock()).append(partition, committed(200))
    sizes = [one.size_bytes for one in batches_of(partition.log)]
    assert max(sizes) <= 1_000
    assert min(sizes[:-1]) > 800, "nor much smaller"


def test_the_last_record_of_a_key_counts() -> None:
    partition = new_partition()
    log = log_of(FixedClock())
    log.append(partition, committed(4))
    log.append(partition, committed(3, offset=9))
    log.append(partition, [offset_tombstone("readers", "events", 0)])
    machine = asyncio.run(loaded(log, partition))
    assert offsets(machine) == {1: 9, 2: 9, 3: 7}


def test_a_record_of_an_unknown_kind_is_passed_over_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = new_partition()
    log = log_of(FixedClock())
    builder = BatchBuilder()
    builder.append(NOW_MS, b"\x7f\xff", b"from the future")
    partition.append_as_leader(memoryview(builder.build()), NOW_MS)
    log.append(partition, committed(1))
    with caplog.at_level(logging.WARNING):
        machine = asyncio.run(loaded(log, partition))
    assert offsets(machine) == {0: 7}
    assert "unknown kind 32767" in caplog.text


def test_other_tasks_run_while_groups_are_loaded() -> None:
    partition = new_partition()
    log = log_of(HastyClock())
    log.append(partition, committed(320))
    _, turns = asyncio.run(turns_of_others(loaded(log, partition)))
    assert turns >= 320 // coordinator_log._RECORDS_PER_LOOK
