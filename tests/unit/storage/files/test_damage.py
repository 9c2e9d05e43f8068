"""The record of a segment's damaged ranges."""

import pytest

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.checkpoints import CorruptCheckpointError
from ottla.storage.files.damage import Damage, damage_path, read_damage, write_damage

PATH = "/00000000000000000042.damage"
NOTED = (Damage(0, 76, 42, 43), Damage(152, 2**31 - 1, 44, 2**63 - 1))


def test_it_lies_beside_the_batches() -> None:
    assert damage_path("/00000000000000000042.log") == PATH


def test_noted_offsets_are_read() -> None:
    disk = SimulatedDisk()
    assert read_damage(disk, PATH) == ()
    write_damage(disk, PATH, NOTED)
    disk.crash("lose_all")
    assert read_damage(disk, PATH) == NOTED


def test_without_damage_there_is_no_file() -> None:
    disk = SimulatedDisk()
    write_damage(disk, PATH, NOTED)
    write_damage(disk, PATH, ())
    disk.crash("lose_all")
    assert not disk.exists(PATH)


def test_every_flipped_bit_is_noticed() -> None:
    disk = SimulatedDisk()
    write_damage(disk, PATH, NOTED)
    for byte in range(len(disk.map_file(PATH))):
        for bit in range(8):
            disk.flip_bit(PATH, byte, bit)
            with pytest.raises(CorruptCheckpointError):
                read_damage(disk, PATH)
            disk.flip_bit(PATH, byte, bit)
    assert read_damage(disk, PATH) == NOTED
