"""Failures of the simulated disk; tests/contracts/test_disk.py tests its normal operation."""

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.simulation.world.disk import SimulatedDisk, SimulatedFile
from ottla.simulation.world.disk_nodes import (
    PAGE_BYTES,
    SECTOR_BYTES,
    Operation,
    OperationKind,
    SimulatedCrash,
)

SEEDS = range(500)


def durable_file(disk: SimulatedDisk, content: bytes = b"") -> SimulatedFile:
    """Make /file with this content, all of it durable."""
    file = disk.create_file("/file")
    file.write_at(0, content)
    file.sync()
    disk.sync_directory("/")
    return file


def content_of(disk: SimulatedDisk, path: str = "/file") -> bytes:
    return bytes(disk.map_file(path))


def outcomes(scenario: Callable[[SimulatedDisk], None]) -> set[bytes]:
    """Return the contents of /file after different power cuts in one scenario."""
    found = set()
    for seed in SEEDS:
        disk = SimulatedDisk(Random(seed))
        scenario(disk)
        disk.crash("random")
        found.add(content_of(disk))
    return found


class TestPowerCut:
    @pytest.mark.parametrize("kept", ["lose_all", "keep_all", "random"])
    def test_what_was_synced_survives(self, kept: str) -> None:
        disk = SimulatedDisk(Random(1))
        durable_file(disk, b"precious")
        disk.crash(kept)
        assert content_of(disk) == b"precious"

    def test_what_was_not_synced_can_be_lost_or_kept(self) -> None:
        for kept, left in (("lose_all", b"old"), ("keep_all", b"old new")):
            disk = SimulatedDisk()
            durable_file(disk, b"old").write_at(3, b" new")
            disk.crash(kept)
            assert content_of(disk) == left

    def test_the_last_write_is_torn_at_any_byte(self) -> None:
        def scenario(disk: SimulatedDisk) -> None:
            durable_file(disk, b"old").write_at(3, b"12345")

        torn = outcomes(scenario)
        assert {b"old12345"[:size] for size in range(3, 9)} <= torn

    def test_a_later_sector_can_be_there_without_an_earlier_one(self) -> None:
        one, two = b"1" * SECTOR_BYTES, b"2" * SECTOR_BYTES

        def scenario(disk: SimulatedDisk) -> None:
            file = durable_file(disk)
            file.write_at(0, one)
            file.write_at(SECTOR_BYTES, two)

        assert {b"", one, one + two, bytes(SECTOR_BYTES) + two} <= outcomes(scenario)

    def test_the_size_can_be_there_without_the_data(self) -> None:
        found = outcomes(lambda disk: durable_file(disk, b"old").write_at(3, b"new"))
        assert b"old\0\0\0" in found

    def test_an_overwritten_file_can_be_half_old_and_half_new(self) -> None:
        def scenario(disk: SimulatedDisk) -> None:
            durable_file(disk, b"o" * 2 * SECTOR_BYTES).write_at(0, b"n" * 2 * SECTOR_BYTES)

        assert b"o" * SECTOR_BYTES + b"n" * SECTOR_BYTES in outcomes(scenario)

    def test_a_lost_truncation_brings_back_what_it_cut_off(self) -> None:
        old = b"o" * (PAGE_BYTES + 10)

        def scenario(disk: SimulatedDisk) -> None:
            file = durable_file(disk, old)
            file.truncate(100)
            file.write_at(100, b"new")

        found = outcomes(scenario)
        assert {old, old[:100], old[:100] + b"new"} <= found
        # The page holds its content from the cache; the page after it holds its old content.
        new_page = (old[:100] + b"new").ljust(SECTOR_BYTES, b"\0")
        assert any(left.startswith(new_page) and left.endswith(b"o") for left in found)
        assert not any(left.startswith(old[:100] + b"newo") for left in found)

    def test_what_follows_a_lost_truncation_finds_no_room_behind_its_page(self) -> None:
        old = b"o" * 2 * PAGE_BYTES

        def scenario(disk: SimulatedDisk) -> None:
            file = durable_file(disk, old)
            file.truncate(100)
            file.write_at(100, b"n" * PAGE_BYTES)

        truncation_was_lost = {left for left in outcomes(scenario) if len(left) == len(old)}
        assert any(b"n" in left for left in truncation_was_lost)
        for left in outcomes(scenario):
            behind = left[PAGE_BYTES:]
            assert b"n" not in behind if left in truncation_was_lost else b"o" not in left[100:]

    def test_the_room_behind_the_first_lost_truncation_is_not_given_by_the_next(self) -> None:
        def scenario(disk: SimulatedDisk) -> None:
            file = durable_file(disk, b"o" * 3 * PAGE_BYTES)
            file.truncate(100)
            file.truncate(3 * PAGE_BYTES)
            file.write_at(2 * PAGE_BYTES, b"n")

        found = outcomes(scenario)
        assert any(b"n" in left for left in found)
        for left in found:
            was_lost = left[PAGE_BYTES : PAGE_BYTES + 1] == b"o"
            assert not (was_lost and b"n" in left)

    def test_the_next_one_takes_what_was_not_synced_since(self) -> None:
        disk = SimulatedDisk()
        durable_file(disk, b"old")
        disk.crash("keep_all")
        disk.open_file("/file").write_at(0, b"new")
        disk.create_file("/other")
        disk.crash("lose_all")
        assert content_of(disk) == b"old"
        assert disk.list_directory("/") == ["file"]

    def test_the_same_seed_leaves_the_same(self) -> None:
        def left(seed: int) -> bytes:
            disk = SimulatedDisk(Random(seed))
            file = durable_file(disk)
            for position in range(0, 20 * SECTOR_BYTES, 300):
                file.write_at(position, bytes([position % 251]) * 300)
            disk.crash("random")
            return content_of(disk)

        assert [left(seed) for seed in range(20)] == [left(seed) for seed in range(20)]

    def test_open_files_die_with_the_machine(self) -> None:
        disk = SimulatedDisk()
        file = durable_file(disk, b"old")
        disk.crash()
        with pytest.raises(OSError, match="Bad file"):
            file.write_at(0, b"x")
        with pytest.raises(OSError, match="Bad file"):
            file.read_at(0, 1)
        file.close()
        assert disk.open_file("/file").read_at(0, 3) == b"old"

    def test_a_process_that_dies_leaves_what_it_wrote(self) -> None:
        disk = SimulatedDisk()
        file = disk.create_file("/file")
        file.write_at(0, b"never synced")
        disk.kill()
        assert content_of(disk) == b"never synced"
        with pytest.raises(OSError, match="Bad file"):
            file.sync()


changes = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1500), st.binary(min_size=1, max_size=1200)),
    st.tuples(st.just("truncate"), st.integers(0, 3000), st.just(b"")),
)


@settings(deadline=None)
@given(st.binary(max_size=2000), st.lists(changes, max_size=6), st.integers(0, 2**32))
def test_a_power_cut_invents_nothing(
    synced: bytes, life: list[tuple[str, int, bytes]], seed: int
) -> None:
    """Each byte was at its position at some time since the sync, or is zero in new space."""
    disk = SimulatedDisk(Random(seed))
    file = durable_file(disk, synced)
    versions = [synced]
    for step, number, content in life:
        if step == "write":
            file.write_at(number, content)
        else:
            file.truncate(number)
        versions.append(content_of(disk))
    disk.crash("random")
    left = content_of(disk)
    assert len(left) <= max(map(len, versions))
    for position in range(len(left)):
        byte = left[position : position + 1]
        assert byte in {version[position : position + 1] or b"\0" for version in versions}


class TestDirectories:
    def test_a_file_vanishes_if_its_name_was_not_synced(self) -> None:
        disk = SimulatedDisk()
        file = disk.create_file("/file")
        file.write_at(0, b"synced, in vain")
        file.sync()
        disk.crash("lose_all")
        assert not disk.exists("/file")

    def test_a_name_that_was_synced_is_no_content(self) -> None:
        disk = SimulatedDisk()
        disk.create_file("/file").write_at(0, b"unsynced")
        disk.sync_directory("/")
        disk.crash("lose_all")
        assert content_of(disk) == b""

    def test_a_rename_is_lost_or_kept_but_never_halved(self) -> None:
        found = set()
        for seed in SEEDS:
            disk = SimulatedDisk(Random(seed))
            durable_file(disk, b"content")
            disk.rename("/file", "/renamed")
            disk.crash("random")
            (name,) = disk.list_directory("/")
            assert content_of(disk, f"/{name}") == b"content"
            found.add(name)
        assert found == {"file", "renamed"}

    def test_changes_reach_the_disk_in_their_order(self) -> None:
        found = set()
        for seed in SEEDS:
            disk = SimulatedDisk(Random(seed))
            disk.create_file("/a")
            disk.create_file("/b")
            disk.remove("/a")
            disk.crash("random")
            found.add(tuple(disk.list_directory("/")))
        assert found == {(), ("a",), ("a", "b"), ("b",)}

    def test_a_removed_file_is_back_if_the_removal_was_not_synced(self) -> None:
        disk = SimulatedDisk()
        durable_file(disk, b"content")
        disk.remove("/file")
        disk.crash("lose_all")
        assert content_of(disk) == b"content"
        disk.remove("/file")
        disk.sync_directory("/")
        disk.crash("lose_all")
        assert not disk.exists("/file")

    def test_a_directory_takes_what_is_in_it_along(self) -> None:
        disk = SimulatedDisk()
        disk.make_directory("/data/topic-0")
        disk.create_file("/data/topic-0/file")
        disk.sync_directory("/data/topic-0")
        disk.sync_directory("/")
        disk.crash("lose_all")
        assert disk.list_directory("/") == ["data"]
        assert disk.list_directory("/data") == []


class TestPlannedCrash:
    def test_operations_are_recorded_by_kind_and_path(self) -> None:
        disk = SimulatedDisk()
        disk.make_directory("/data/x")
        file = disk.create_file("/data/x/file")
        disk.create_file("/data/x/file").read_at(0, 1)
        file.write_at(0, b"hello")
        file.truncate(1)
        file.sync()
        disk.rename("/data/x/file", "/data/x/other")
        disk.sync_directory("/data/x")
        disk.remove("/data/x/other")
        disk.remove_directory("/data/x")
        assert disk.faults.operations == [
            Operation(OperationKind.MAKE_DIRECTORY, "/data"),
            Operation(OperationKind.MAKE_DIRECTORY, "/data/x"),
            Operation(OperationKind.CREATE, "/data/x/file"),
            Operation(OperationKind.WRITE, "/data/x/file"),
            Operation(OperationKind.TRUNCATE, "/data/x/file"),
            Operation(OperationKind.SYNC, "/data/x/file"),
            Operation(OperationKind.RENAME, "/data/x/file"),
            Operation(OperationKind.SYNC_DIRECTORY, "/data/x"),
            Operation(OperationKind.REMOVE, "/data/x/other"),
            Operation(OperationKind.REMOVE_DIRECTORY, "/data/x"),
        ]

    @pytest.mark.parametrize(
        ("moment", "left"), [("before", b""), ("during", b"12"), ("after", b"1234")]
    )
    def test_it_comes_before_during_or_after_a_write(self, moment: str, left: bytes) -> None:
        disk = SimulatedDisk()
        file = disk.create_file("/file")
        disk.faults.crash_at(1, moment)
        with pytest.raises(SimulatedCrash, match="operation 1"):
            file.write_at(0, b"1234")
        disk.kill()
        assert content_of(disk) == left

    @pytest.mark.parametrize(("moment", "left"), [("before", b""), ("after", b"1234")])
    def test_it_comes_before_or_after_a_sync(self, moment: str, left: bytes) -> None:
        disk = SimulatedDisk()
        file = durable_file(disk)
        file.write_at(0, b"1234")
        disk.faults.crash_at(len(disk.faults.operations), moment)
        with pytest.raises(SimulatedCrash):
            file.sync()
        disk.crash("lose_all")
        assert content_of(disk) == left

    def test_a_sync_that_was_cut_off_may_have_been_enough(self) -> None:
        disk = SimulatedDisk()
        file = durable_file(disk)
        file.write_at(0, b"1234")
        disk.faults.crash_at(len(disk.faults.operations), "during")
        with pytest.raises(SimulatedCrash):
            file.sync()
        disk.crash("keep_all")
        assert content_of(disk) == b"1234"

    def test_a_write_that_finds_no_room_crashes_all_the_same(self) -> None:
        disk = SimulatedDisk(capacity_bytes=2)
        file = disk.create_file("/file")
        disk.faults.crash_at(1, "after")
        with pytest.raises(SimulatedCrash):
            file.write_at(0, b"1234")

    def test_nothing_in_the_code_that_dies_gets_hold_of_it(self) -> None:
        disk = SimulatedDisk()
        file = disk.create_file("/file")
        disk.faults.crash_at(1)
        with pytest.raises(SimulatedCrash), suppress(Exception):
            file.write_at(0, b"1234")

    def test_the_machine_stays_down_until_it_is_started(self) -> None:
        disk = SimulatedDisk()
        disk.make_directory("/data")
        file = disk.create_file("/file")
        disk.faults.crash_at(2)
        with pytest.raises(SimulatedCrash):
            file.write_at(0, b"1234")
        uses: list[Callable[[], object]] = [
            lambda: file.write_at(0, b"x"),
            lambda: file.read_at(0, 1),
            file.size_bytes,
            lambda: disk.exists("/file"),
            lambda: disk.remove("/missing"),
            lambda: disk.rename("/file", "/other"),
            lambda: disk.make_directory("/data"),
            lambda: disk.sync_directory("/"),
            lambda: disk.free_bytes("/"),
        ]
        for use in uses:
            with pytest.raises(SimulatedCrash):
                use()
        file.close()
        disk.kill()
        assert disk.list_directory("/") == ["data", "file"]
        assert content_of(disk) == b""


STEPS = ("write", "sync", "rename", "sync_directory")


def replace_file(disk: SimulatedDisk, steps: tuple[str, ...] = STEPS) -> None:
    """Replace /file as a checkpoint is replaced, perhaps without one of the steps."""
    file = disk.create_file("/file.tmp")
    if "write" in steps:
        file.write_at(0, b"new content")
    if "sync" in steps:
        file.sync()
    disk.rename("/file.tmp", "/file")
    if "sync_directory" in steps:
        disk.sync_directory("/")


def crash_everywhere(steps: tuple[str, ...]) -> set[bytes]:
    """Return the contents of /file after a power cut at each operation of a replacement."""
    counted = SimulatedDisk()
    replace_file(counted, steps)
    found = set()
    for number in range(len(counted.faults.operations) + 1):
        for seed, kept in enumerate(["lose_all", "keep_all", *["random"] * 20]):
            disk = SimulatedDisk(Random(seed))
            durable_file(disk, b"old")
            disk.faults.crash_at(len(disk.faults.operations) + number, "during")
            with suppress(SimulatedCrash):
                replace_file(disk, steps)
            disk.crash(kept)
            found.add(content_of(disk))
    return found


def test_crashing_at_each_operation_finds_the_step_that_was_left_out() -> None:
    assert crash_everywhere(STEPS) == {b"old", b"new content"}
    assert b"" in crash_everywhere(("write", "rename", "sync_directory"))


def test_a_replacement_is_final_only_when_it_is_synced_into_its_directory() -> None:
    for steps, left in ((STEPS[:-1], b"old"), (STEPS, b"new content")):
        disk = SimulatedDisk()
        durable_file(disk, b"old")
        replace_file(disk, steps)
        disk.crash("lose_all")
        assert content_of(disk) == left


class TestErrors:
    def test_the_operation_of_a_number_fails(self) -> None:
        disk = SimulatedDisk()
        disk.faults.fail_at(1, errno.ENOSPC)
        file = disk.create_file("/file")
        with pytest.raises(OSError, match="No space") as failed:
            file.write_at(0, b"1234")
        assert failed.value.errno == errno.ENOSPC
        assert failed.value.filename == "/file"
        assert content_of(disk) == b"12"
        file.write_at(0, b"1234")
        assert content_of(disk) == b"1234"

    def test_everything_of_a_kind_fails_below_a_path(self) -> None:
        disk = SimulatedDisk()
        for directory in ("/disk1", "/disk10"):
            disk.make_directory(directory)
        bad, good = disk.create_file("/disk1/file"), disk.create_file("/disk10/file")
        disk.faults.fail_on(OperationKind.SYNC, under="/disk1")
        with pytest.raises(OSError, match="Input/output"):
            bad.sync()
        bad.write_at(0, b"x")
        good.sync()

    def test_a_broken_disk_fails_in_everything_until_it_is_healed(self) -> None:
        disk = SimulatedDisk()
        file = durable_file(disk, b"old")
        disk.faults.fail_on()
        uses: list[Callable[[], object]] = [
            lambda: file.write_at(0, b"x"),
            lambda: file.read_at(0, 1),
            file.sync,
            lambda: disk.open_file("/file"),
            lambda: disk.map_file("/file"),
            lambda: disk.exists("/file"),
            lambda: disk.list_directory("/"),
            lambda: disk.create_file("/other"),
            lambda: disk.make_directory("/other"),
            lambda: disk.remove("/file"),
        ]
        for use in uses:
            with pytest.raises(OSError, match="Input/output"):
                use()
        disk.faults.heal()
        assert disk.open_file("/file").size_bytes() == 3

    def test_a_failed_sync_forgets_what_it_could_not_write(self) -> None:
        disk = SimulatedDisk()
        file = durable_file(disk, b"old")
        file.write_at(3, b" lost")
        disk.faults.fail_at(len(disk.faults.operations))
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()
        assert file.read_at(0, 100) == b"old lost"
        disk.crash("keep_all")
        assert content_of(disk) == b"old"

    def test_a_failed_sync_of_a_directory_forgets_the_names(self) -> None:
        disk = SimulatedDisk()
        disk.create_file("/file")
        disk.faults.fail_at(1)
        with pytest.raises(OSError, match="Input/output"):
            disk.sync_directory("/")
        disk.sync_directory("/")
        disk.crash("keep_all")
        assert not disk.exists("/file")

    def test_a_write_that_does_not_fit_writes_what_does(self) -> None:
        disk = SimulatedDisk(capacity_bytes=10)
        file = disk.create_file("/file")
        file.write_at(0, b"12345678")
        assert disk.free_bytes("/") == 2
        with pytest.raises(OSError, match="No space"):
            file.write_at(6, b"abcdefgh")
        assert content_of(disk) == b"123456abcd"
        assert disk.free_bytes("/") == 0
        file.write_at(0, b"overwriting takes no room"[:10])
        file.truncate(4)
        file.write_at(4, b"fits")
        with pytest.raises(OSError, match="No space"):
            file.write_at(100, b"far away")
        assert file.size_bytes() == 8

    def test_removing_a_file_makes_room(self) -> None:
        disk = SimulatedDisk(capacity_bytes=10)
        disk.create_file("/file").write_at(0, bytes(10))
        disk.remove("/file")
        assert disk.free_bytes("/") == 10


class TestCorruption:
    def test_a_flipped_bit_is_one_flipped_bit(self) -> None:
        disk = SimulatedDisk()
        file = durable_file(disk, b"abc")
        disk.flip_bit("/file", 1, 7)
        assert file.read_at(0, 3) == b"a\xe2c"
        disk.crash("lose_all")
        assert content_of(disk) == b"a\xe2c"

    def test_it_stays_what_is_not_on_disk_yet_included(self) -> None:
        disk = SimulatedDisk()
        file = durable_file(disk, b"abc")
        file.write_at(3, b"def")
        disk.corrupt("/file", 2, b"XY")
        file.sync()
        disk.crash("lose_all")
        assert content_of(disk) == b"abXYef"
