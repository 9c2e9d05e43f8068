"""A range of a log that is referenced but not read."""

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.log_slice import LogSlice


def test_a_slice_is_as_long_as_it_says_and_reads_just_that() -> None:
    file = SimulatedDisk().create_file("/file")
    file.write_at(0, b"0123456789")
    part = LogSlice(file, 3, 4)
    assert len(part) == part.size_bytes == 4
    assert part.read() == b"3456"
    assert repr(part) == "<LogSlice of 4 bytes at 3>"


def test_later_appends_are_not_in_a_slice() -> None:
    file = SimulatedDisk().create_file("/file")
    file.write_at(0, b"0123")
    part = LogSlice(file, 0, 4)
    file.write_at(4, b"4567")
    assert part.read() == b"0123"


def test_an_empty_slice_reads_as_nothing() -> None:
    file = SimulatedDisk().create_file("/file")
    assert LogSlice(file, 0, 0).read() == b""
    assert not LogSlice(file, 0, 0)
