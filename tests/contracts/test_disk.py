"""Both disks keep one contract: each promise alone, then long random runs compared."""

import errno
import gc
import posixpath
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.environment.disk import Disk, File
from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from tests.examples import examples


@pytest.fixture(params=[KernelDisk, SimulatedDisk])
def disk(request: pytest.FixtureRequest) -> Disk:
    return request.param()


@pytest.fixture
def home(disk: Disk, tmp_path: Path) -> str:
    home = str(tmp_path / "data")
    disk.make_directory(home)
    return home


def put(disk: Disk, path: str, content: bytes) -> None:
    file = disk.create_file(path)
    file.write_at(0, content)
    file.close()


def test_a_file_holds_what_was_written_where_it_was_written(disk: Disk, home: str) -> None:
    file = disk.create_file(f"{home}/file")
    file.write_at(0, b"hello")
    file.write_at(4, bytearray(b"p me"))
    file.write_at(5, memoryview(b"-it"))
    assert file.read_at(0, 100) == b"hellp-it"
    assert file.size_bytes() == 8


def test_a_read_ends_where_the_file_ends(disk: Disk, home: str) -> None:
    file = disk.create_file(f"{home}/file")
    file.write_at(0, b"hello")
    assert file.read_at(2, 2) == b"ll"
    assert file.read_at(3, 10) == b"lo"
    assert file.read_at(5, 1) == b""
    assert file.read_at(500, 1) == b""
    assert file.read_at(0, 0) == b""


def test_a_file_knows_when_it_was_modified(disk: Disk, home: str) -> None:
    file = disk.create_file(f"{home}/file")
    file.set_modified_ms(1_234_567)
    disk.rename(f"{home}/file", f"{home}/renamed")
    again = disk.open_file(f"{home}/renamed")
    assert again.read_at(0, 1) == b""
    assert again.modified_ms() == 1_234_567
    for change in (partial(again.write_at, 0, b"hello"), partial(again.truncate, 3)):
        again.set_modified_ms(1_234_567)
        change()
        assert file.modified_ms() == again.modified_ms() != 1_234_567


def test_writing_past_the_end_leaves_zeros_between(disk: Disk, home: str) -> None:
    file = disk.create_file(f"{home}/file")
    file.write_at(3, b"x")
    assert file.read_at(0, 10) == b"\0\0\0x"


def test_writing_nothing_past_the_end_leaves_the_file_as_it_is(disk: Disk, home: str) -> None:
    file = disk.create_file(f"{home}/file")
    file.write_at(3, b"")
    assert file.size_bytes() == 0


def test_truncating_cuts_and_grows_with_zeros(disk: Disk, home: str) -> None:
    file = disk.create_file(f"{home}/file")
    file.write_at(0, b"hello")
    file.truncate(2)
    assert file.read_at(0, 10) == b"he"
    file.truncate(4)
    assert file.read_at(0, 10) == b"he\0\0"


def test_two_handles_of_a_file_see_each_others_writes(disk: Disk, home: str) -> None:
    first = disk.create_file(f"{home}/file")
    second = disk.open_file(f"{home}/file")
    first.write_at(0, b"hello")
    assert second.read_at(0, 5) == b"hello"
    first.close()
    second.write_at(5, b"!")
    assert disk.map_file(f"{home}/file") == b"hello!"


def test_creating_a_file_that_is_there_keeps_it(disk: Disk, home: str) -> None:
    put(disk, f"{home}/file", b"hello")
    assert disk.create_file(f"{home}/file").read_at(0, 5) == b"hello"


def test_a_closed_file_refuses_everything_but_closing(disk: Disk, home: str) -> None:
    file = disk.create_file(f"{home}/file")
    file.close()
    file.close()
    uses = [
        lambda: file.write_at(0, b"x"),
        lambda: file.read_at(0, 1),
        file.size_bytes,
        file.modified_ms,
        lambda: file.set_modified_ms(0),
        lambda: file.truncate(0),
        file.sync,
        file.fileno,
    ]
    for use in uses:
        with pytest.raises(OSError, match=r"Bad file descriptor|not supported"):
            use()


def test_a_map_shows_the_file_and_cannot_be_written(disk: Disk, home: str) -> None:
    put(disk, f"{home}/file", b"hello")
    view = disk.map_file(f"{home}/file")
    assert view.readonly
    assert view.format == "B"
    assert view == b"hello"


def test_an_empty_file_maps_to_an_empty_view(disk: Disk, home: str) -> None:
    put(disk, f"{home}/file", b"")
    assert len(disk.map_file(f"{home}/file")) == 0


def test_a_map_outlives_the_name(disk: Disk, home: str) -> None:
    put(disk, f"{home}/file", b"hello")
    view = disk.map_file(f"{home}/file")
    disk.remove(f"{home}/file")
    assert bytes(view) == b"hello"


def test_a_file_that_is_not_there_is_not_found(disk: Disk, home: str) -> None:
    uses = [
        disk.open_file,
        disk.map_file,
        disk.remove,
        disk.remove_directory,
        disk.list_directory,
        disk.sync_directory,
    ]
    for use in uses:
        with pytest.raises(FileNotFoundError):
            use(f"{home}/missing")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{home}/missing", f"{home}/other")
    with pytest.raises(FileNotFoundError):
        disk.create_file(f"{home}/missing/file")
    assert not disk.exists(f"{home}/missing")
    assert not disk.is_directory(f"{home}/missing")


def test_a_path_through_a_file_leads_nowhere(disk: Disk, home: str) -> None:
    put(disk, f"{home}/file", b"")
    assert disk.is_directory(home)
    assert not disk.is_directory(f"{home}/file")
    assert not disk.exists(f"{home}/file/below")
    assert not disk.is_directory(f"{home}/file/below")
    with pytest.raises(NotADirectoryError):
        disk.open_file(f"{home}/file/below")
    with pytest.raises(FileExistsError):
        disk.make_directory(f"{home}/file/below")


def test_directories_are_listed_sorted_and_made_with_their_parents(disk: Disk, home: str) -> None:
    disk.make_directory(f"{home}/z/y/x")
    disk.make_directory(f"{home}/z/y/x")
    put(disk, f"{home}/b", b"")
    put(disk, f"{home}/a", b"")
    assert disk.list_directory(home) == ["a", "b", "z"]
    assert disk.list_directory(f"{home}/z/y") == ["x"]
    assert disk.exists(f"{home}/z/y/x")


def test_a_rename_replaces(disk: Disk, home: str) -> None:
    put(disk, f"{home}/old", b"new content")
    put(disk, f"{home}/new", b"old content")
    reader = disk.open_file(f"{home}/new")
    disk.rename(f"{home}/old", f"{home}/new")
    assert disk.map_file(f"{home}/new") == b"new content"
    assert disk.list_directory(home) == ["new"]
    assert reader.read_at(0, 100) == b"old content"


def test_a_renamed_directory_takes_its_files_along(disk: Disk, home: str) -> None:
    disk.make_directory(f"{home}/topic-0")
    put(disk, f"{home}/topic-0/file", b"hello")
    disk.rename(f"{home}/topic-0", f"{home}/topic-0-delete")
    assert disk.map_file(f"{home}/topic-0-delete/file") == b"hello"
    assert not disk.exists(f"{home}/topic-0")


def test_nothing_is_renamed_into_another_directory(disk: Disk, home: str) -> None:
    put(disk, f"{home}/file", b"")
    with pytest.raises(AssertionError):
        disk.rename(f"{home}/file", posixpath.join(posixpath.dirname(home), "file"))


def test_a_removed_file_stays_readable_while_it_is_open(disk: Disk, home: str) -> None:
    put(disk, f"{home}/file", b"hello")
    file = disk.open_file(f"{home}/file")
    disk.remove(f"{home}/file")
    assert not disk.exists(f"{home}/file")
    file.write_at(5, b"!")
    file.sync()
    assert file.read_at(0, 10) == b"hello!"


def test_a_directory_with_something_in_it_is_not_removed(disk: Disk, home: str) -> None:
    put(disk, f"{home}/file", b"")
    with pytest.raises(OSError, match="not empty") as refused:
        disk.remove_directory(home)
    assert refused.value.errno == errno.ENOTEMPTY
    disk.remove(f"{home}/file")
    disk.remove_directory(home)
    assert not disk.exists(home)


def test_there_is_room(disk: Disk, home: str) -> None:
    assert 0 < disk.free_bytes(home) <= disk.total_bytes(home)


def test_a_file_is_locked_once_and_again_when_it_is_closed(disk: Disk, home: str) -> None:
    first = disk.lock_file(f"{home}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock_file(f"{home}/.lock")
    with pytest.raises(BlockingIOError):  # the failed attempt has not released the lock
        disk.lock_file(f"{home}/.lock")
    first.close()
    second = disk.lock_file(f"{home}/.lock")
    del second
    gc.collect()
    disk.lock_file(f"{home}/.lock").close()


NAMES = ["a", "a/a", "a/b", "b", "b/a", "c"]
names = st.sampled_from(NAMES)
siblings = st.sampled_from(
    [
        (old, new)
        for old in NAMES
        for new in NAMES
        if posixpath.dirname(old) == posixpath.dirname(new)
    ]
)
positions = st.integers(0, 20)
steps = st.one_of(
    st.tuples(st.just("write"), st.tuples(names, positions, st.binary(max_size=10))),
    st.tuples(st.just("read"), st.tuples(names, positions, positions)),
    st.tuples(st.just("truncate"), st.tuples(names, positions)),
    st.tuples(st.just("rename"), siblings),
    st.tuples(
        st.sampled_from(
            [
                "open",
                "create",
                "size",
                "sync",
                "close",
                "map",
                "exists",
                "list",
                "make",
                "remove",
                "remove_directory",
                "sync_directory",
            ]
        ),
        st.tuples(names),
    ),
)
BEGINNING = [("make", ("a",)), ("create", ("a/a",)), ("create", ("c",)), ("make", ("b",))]


class Life:
    """One disk and the files opened on it, driven by the names of steps."""

    def __init__(self, disk: Disk, home: str) -> None:
        self.disk = disk
        self.home = home
        self.file_by_name: dict[str, File] = {}

    def take(self, step: str, arguments: tuple) -> object:
        """Return the result: a value, or the kernel's name of the error."""
        act = getattr(self, step, None) or partial(self._on_disk, step)
        try:
            return act(*arguments)
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def tree(self, path: str = "") -> dict[str, object]:
        found: dict[str, object] = {}
        for name in self.disk.list_directory(f"{self.home}{path}"):
            below = f"{path}/{name}"
            try:
                found[name] = self.tree(below)
            except NotADirectoryError:
                found[name] = bytes(self.disk.map_file(f"{self.home}{below}"))
        return found

    def open(self, name: str) -> None:
        self.file_by_name[name] = self.disk.open_file(f"{self.home}/{name}")

    def create(self, name: str) -> None:
        self.file_by_name[name] = self.disk.create_file(f"{self.home}/{name}")

    def write(self, name: str, position: int, content: bytes) -> None:
        self._file(name).write_at(position, content)

    def read(self, name: str, position: int, size_bytes: int) -> bytes:
        return self._file(name).read_at(position, size_bytes)

    def truncate(self, name: str, size_bytes: int) -> None:
        self._file(name).truncate(size_bytes)

    def size(self, name: str) -> int:
        return self._file(name).size_bytes()

    def sync(self, name: str) -> None:
        self._file(name).sync()

    def close(self, name: str) -> None:
        self._file(name).close()

    def map(self, name: str) -> bytes | None:
        path = f"{self.home}/{name}"
        self.disk.open_file(path)
        return bytes(self.disk.map_file(path))

    def rename(self, old: str, new: str) -> None:
        self.disk.rename(f"{self.home}/{old}", f"{self.home}/{new}")

    def _on_disk(self, step: str, name: str) -> object:
        method = {"list": "list_directory", "make": "make_directory"}.get(step, step)
        return getattr(self.disk, method)(f"{self.home}/{name}")

    def _file(self, name: str) -> File:
        if name not in self.file_by_name:
            raise FileNotFoundError(errno.ENOENT, "was never opened")
        return self.file_by_name[name]


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(steps, max_size=50))
def test_the_simulated_disk_does_what_the_kernel_does(life: list[tuple[str, tuple]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        simulated = SimulatedDisk()
        simulated.make_directory(home)
        real, twin = Life(KernelDisk(), home), Life(simulated, home)
        for step, arguments in [*BEGINNING, *life]:
            assert twin.take(step, arguments) == real.take(step, arguments), (step, arguments)
        assert twin.tree() == real.tree()
