"""The number of open files stays within its limit."""

from pathlib import Path

import pytest

from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.open_files import Mappings, OpenFiles
from ottla.storage.indexes.offset_index import OffsetIndex
from tests.descriptors import is_open, no_more_descriptors
from tests.log_building import NOW_MS, LogFolder, batch, fill, tiny

MAPPINGS_MAX = 4
INDEXES = 20
SEGMENTS = 30


@pytest.fixture
def files() -> OpenFiles:
    disk = SimulatedDisk()
    for name in "abcd":
        disk.create_file(f"/{name}").write_at(0, name.encode())
    return OpenFiles(disk, count_max=2)


def test_a_file_is_opened_once(files: OpenFiles) -> None:
    assert files.get("/a") is files.get("/a")
    assert files.get("/a").read_at(0, 1) == b"a"


def test_there_are_never_more_than_allowed(files: OpenFiles) -> None:
    for name in "abcdab":
        files.get(f"/{name}")
        assert len(files) <= 2
    files.create("/e")
    assert len(files) == 2


def test_the_least_recently_used_file_is_closed(files: OpenFiles) -> None:
    a, b = files.get("/a"), files.get("/b")
    assert files.get("/a") is a
    files.get("/c")
    assert files.get("/a") is a
    assert files.get("/b") is not b


def test_a_user_of_a_dropped_file_goes_on_using_it(files: OpenFiles) -> None:
    a = files.get("/a")
    files.get("/b")
    files.get("/c")
    assert a.read_at(0, 1) == b"a"


def test_a_missing_file_is_not_made(files: OpenFiles) -> None:
    with pytest.raises(FileNotFoundError):
        files.get("/missing")
    assert not files.disk.exists("/missing")
    assert len(files) == 0


def test_a_file_that_was_forgotten_is_opened_again_under_its_new_name(files: OpenFiles) -> None:
    files.get("/a")
    files.forget("/a")
    files.forget("/never-opened")
    files.disk.rename("/a", "/z")
    assert files.get("/z").read_at(0, 1) == b"a"
    with pytest.raises(FileNotFoundError):
        files.get("/a")


def test_creating_reopens_a_file_that_may_have_been_removed(files: OpenFiles) -> None:
    files.get("/a")
    files.disk.remove("/a")
    files.create("/a")
    assert files.get("/a").read_at(0, 1) == b""


def test_a_dropped_descriptor_closes_after_its_last_user(tmp_path: Path) -> None:
    files = OpenFiles(KernelDisk(), count_max=1)
    sent_elsewhere = files.create(f"{tmp_path}/a")
    files.create(f"{tmp_path}/b")
    assert is_open(tmp_path / "a")
    del sent_elsewhere
    assert not is_open(tmp_path / "a")


def test_a_log_of_many_segments_keeps_few_files_open() -> None:
    folder = LogFolder(SimulatedDisk(), tiny())
    folder.files_max = 3
    log = folder.start()
    fill(log, 30)
    assert len(log.segments) == 10
    for offset in range(30):
        log.read(offset, 30, 1)
        assert len(folder.files) <= 3
    log.flush(NOW_MS)
    assert len(folder.files) <= 3


def test_without_descriptors_the_files_of_others_are_given_up(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        KernelDisk().create_file(path)
    files = OpenFiles(KernelDisk())
    first = files.get(paths[0])
    files.get(paths[1])
    with no_more_descriptors():
        third = files.get(paths[2])
        assert third.size_bytes() == 0
        assert first.size_bytes() == 0, "who has it goes on using it"
        assert len(files) == 1
        with pytest.raises(OSError, match="Too many open files"):
            KernelDisk().open_file(paths[1])


def test_files_that_are_in_use_elsewhere_are_counted(files: OpenFiles) -> None:
    assert files.has_spare
    held = [files.get(path) for path in ("/a", "/b", "/c", "/a")]
    assert not files.has_spare
    held.clear()
    assert files.has_spare


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
