"""One thread updates a checkpoint, and other threads write it."""

from contextlib import nullcontext

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.files.checkpoints import OffsetCheckpoint, read_offsets

PATH = "/data/recovery-point-offset-checkpoint"
ORDERS = TopicPartition("orders", 0)


def table_on(disk: SimulatedDisk) -> OffsetCheckpoint:
    disk.make_directory("/data")
    return OffsetCheckpoint(disk, PATH, nullcontext())


def test_an_earlier_write_does_not_replace_a_later_write() -> None:
    disk = SimulatedDisk()
    table = table_on(disk)
    write_high, write_low = table.told({ORDERS: 100}), table.told({ORDERS: 20})
    write_low()
    write_high()
    assert read_offsets(disk, PATH) == {ORDERS: 20}


def test_offsets_are_written_as_they_were_when_given() -> None:
    disk = SimulatedDisk()
    offsets = {ORDERS: 100}
    write = table_on(disk).told(offsets)
    offsets[ORDERS] = 200
    write()
    assert read_offsets(disk, PATH) == {ORDERS: 100}


def test_a_failed_write_does_not_count_as_written() -> None:
    disk = SimulatedDisk()
    table = table_on(disk)
    write_high, write_low = table.told({ORDERS: 100}), table.told({ORDERS: 20})
    disk.faults.fail_on(OperationKind.SYNC)
    with pytest.raises(OSError, match="Input/output"):
        write_low()
    disk.faults.heal()
    write_high()
    assert read_offsets(disk, PATH) == {ORDERS: 100}
