"""Helpers for the tests of both sparse indexes: both kinds, filled with the same numbers."""

import pytest

from ottla.environment.disk import Disk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import Dice
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex

BASE = 1000
PATH = "/log/00000000000000001000.index"
ENTRIES_MAX = 100_000
Index = OffsetIndex | TimeIndex
Kind = type[OffsetIndex] | type[TimeIndex]
KINDS: list[Kind] = [OffsetIndex, TimeIndex]
both = pytest.mark.parametrize("kind", KINDS)


def simulated_disk(dice: Dice | None = None) -> SimulatedDisk:
    disk = SimulatedDisk(dice)
    disk.make_directory("/log")
    disk.sync_directory("/")
    return disk


def opened(kind: Kind, disk: Disk, path: str = PATH) -> Index:
    return kind(disk, path, BASE, ENTRIES_MAX)


def fill(index: Index, count: int, start: int = 0) -> None:
    """Append the same entries to both kinds, apart from the order of their two fields."""
    for number in range(start, start + count):
        if isinstance(index, OffsetIndex):
            index.append(BASE + 1 + 10 * number, 4096 * (number + 1))
        else:
            index.append(4096 * (number + 1), BASE + 1 + 10 * number)


def check(index: Index) -> None:
    index.check(2**31)


def content(disk: Disk, path: str = PATH) -> bytes:
    return bytes(disk.map_file(path))


def write(disk: Disk, raw: bytes, path: str = PATH) -> None:
    file = disk.create_file(path)
    file.truncate(0)
    file.write_at(0, raw)
