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


def test_what_was_told_first_does_not_replace_what_was_told_later() -> None:
    disk = SimulatedDisk()
    table = table_on(disk)
    write_high, write_low = table.told({ORDERS: 100}), table.told({ORDERS: 20})
    write_low()
    write_high()
    assert read_offsets(disk, PATH) == {ORDERS: 20}


def test_what_was_told_is_written_as_it_was_then() -> None:
    disk = SimulatedDisk()
    offsets = {ORDERS: 100}
    write = table_on(disk).told(offsets)
    offsets[ORDERS] = 200
    write()
    assert read_offsets(disk, PATH) == {ORDERS: 100}


def test_what_could_not_be_written_is_not_taken_for_written() -> None:
    disk = SimulatedDisk()
    table = table_on(disk)
    write_high, write_low = table.told({ORDERS: 100}), table.told({ORDERS: 20})
    disk.faults.fail_on(OperationKind.SYNC)
    with pytest.raises(OSError, match="Input/output"):
        write_low()
    disk.faults.heal()
    write_high()
    assert read_offsets(disk, PATH) == {ORDERS: 100}
