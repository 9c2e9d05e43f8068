"""The number of mapped indexes stays within its limit, for any searches."""

from pathlib import Path

from ottla.storage.files.mappings import Mappings

from ottla.runtime.disk import KernelDisk
from ottla.storage.indexes.offset_index import OffsetIndex
from tests.log_building import LogFolder, batch, tiny

MAPPINGS_MAX = 4
INDEXES = 20
SEGMENTS = 30


def mapping_count(folder: Path) -> int:
    """Return how many files below a directory this process has mapped."""
    return Path("/proc/self/maps").read_text().count(str(folder))


def filled(path: Path, mappings: Mappings) -> OffsetIndex:
    """Make an index with two entries in its file."""
    index = OffsetIndex(KernelDisk(), str(path), 0, 100, mappings)
    for number in (1, 2, 3):
        index.append(10 * number, 100 * number)
    index.persist()
    return index


def test_the_oldest_mapping_is_dropped_and_made_again_when_it_is_searched(tmp_path: Path) -> None:
    mappings = Mappings(MAPPINGS_MAX)
    indexes = [filled(tmp_path / f"{number}.index", mappings) for number in range(INDEXES)]
    for _ in range(2):
        for index in indexes:
            assert index.lookup(25) == (20, 200)
            assert mapping_count(tmp_path) <= MAPPINGS_MAX
    assert len(mappings) == mapping_count(tmp_path) == MAPPINGS_MAX


def test_indexes_that_are_gone_are_not_held(tmp_path: Path) -> None:
    mappings = Mappings(MAPPINGS_MAX)
    filled(tmp_path / "gone.index", mappings).lookup(25)
    assert mapping_count(tmp_path) == 0
    for number in range(INDEXES):
        filled(tmp_path / f"{number}.index", mappings).lookup(25)
    assert len(mappings) == MAPPINGS_MAX


def test_a_log_of_many_segments_is_read_with_few_mappings(tmp_path: Path) -> None:
    folder = LogFolder(KernelDisk(), tiny(segment_bytes=600), folder=str(tmp_path))
    log = folder.start()
    folder.files.mappings = log.segments.active.offset_index._mappings = Mappings(MAPPINGS_MAX)
    while len(log.segments) < SEGMENTS:
        log.append_as_leader(batch(), 0, 0)
    for offset in range(log.end_offset):
        assert log.read(offset, log.end_offset, 1).read()
        assert mapping_count(tmp_path) <= MAPPINGS_MAX
