"""A full disk refuses writes and stays in use; a failed disk is not used again."""

import errno
from collections.abc import Callable

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.log.log import PartitionLog
from ottla.wire.records.control import ControlType
from tests.crashes.invariants import check_derived, knowledge
from tests.log_building import (
    DIRECTORY,
    NOW_MS,
    READ_BYTES,
    LogFolder,
    batch,
    contents,
    fill,
    joined,
    marker,
    refusal,
    stamped,
    tiny,
)

CONFIG = tiny(segment_bytes=200, index_interval_bytes=1)
STEPS: list[memoryview] = [
    stamped(batch(1, 500, producer_id=7, base_sequence=0), 0, 0),
    stamped(batch(1, 400, producer_id=8, base_sequence=0, is_transactional=True), 1, 0),
    joined(stamped(marker(ControlType.ABORT, 8), 2, 1), stamped(batch(1, 600), 3, 2)),
    stamped(batch(1, 300, producer_id=7, base_sequence=1), 4, 2),
    joined(
        stamped(batch(1, 900, producer_id=8, base_sequence=1, is_transactional=True), 5, 2),
        stamped(marker(ControlType.ABORT, 8), 6, 3),
    ),
    stamped(batch(1, 200), 7, 3),
]


def append(log: PartitionLog, step: memoryview) -> None:
    log.append_as_follower(memoryview(bytearray(step)), NOW_MS)


def started(disk: SimulatedDisk) -> LogFolder:
    folder = LogFolder(disk, CONFIG)
    folder.start()
    return folder


def storage_error() -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code is ErrorCode.KAFKA_STORAGE_ERROR)


def whole() -> LogFolder:
    folder = started(SimulatedDisk())
    for step in STEPS:
        append(folder.log, step)
    return folder


WHOLE = contents(whole().log)


def used_bytes(disk: SimulatedDisk) -> int:
    disk.capacity_bytes = 1 << 30
    return (1 << 30) - disk.free_bytes("/")


EMPTY_BYTES = used_bytes(started(SimulatedDisk()).disk)
FULL_BYTES = used_bytes(whole().disk)


def state_of(log: PartitionLog) -> tuple[object, ...]:
    """Return the state that a refused append keeps, apart from an epoch that begins at the end."""
    begun = [entry for entry in log.epochs.entries if entry.start_offset < log.end_offset]
    assert len(log.epochs.entries) - len(begun) <= 1
    known = log.producers.producers()
    return contents(log), log.end_offset, begun, known, log.aborted_transactions(0, log.end_offset)


def check_whole(folder: LogFolder) -> None:
    """Check that everything was appended once, and is still there after a restart."""
    assert contents(folder.log) == WHOLE
    check_derived(folder.log, WHOLE)
    before = knowledge(folder.log)
    folder.disk.kill()
    again = started(folder.disk)
    assert knowledge(again.log) == before
    assert again.findings.notes == []


class TestAFullDisk:
    """Disks of every size, from room for nothing to room for all batches."""

    def test_refused_batches_can_be_appended_once_there_is_room(self) -> None:
        refused = 0
        for capacity_bytes in range(EMPTY_BYTES, FULL_BYTES + 200):
            disk = SimulatedDisk()
            folder = started(disk)
            disk.capacity_bytes = capacity_bytes
            for step in STEPS:
                before = state_of(folder.log)
                code = refusal(append, folder.log, step)
                if code is not None:
                    assert code is ErrorCode.KAFKA_STORAGE_ERROR
                    assert not folder.log.is_offline
                    assert state_of(folder.log) == before
                    refused += 1
                    disk.capacity_bytes = None
                    append(folder.log, step)
            disk.capacity_bytes = None
            check_whole(folder)
        assert refused > 500

    def test_a_process_that_dies_with_its_disk_full_has_half_appended_nothing(self) -> None:
        for capacity_bytes in range(EMPTY_BYTES, FULL_BYTES, 7):
            disk = SimulatedDisk()
            folder = started(disk)
            disk.capacity_bytes = capacity_bytes
            appended: list[bytes] = []
            for step in STEPS:
                if refusal(append, folder.log, step) is not None:
                    break
                appended = contents(folder.log)
            disk.kill()
            disk.capacity_bytes = None
            again = started(disk)
            assert contents(again.log) == appended
            check_derived(again.log, appended)

    def test_a_flush_or_a_stop_that_is_refused_succeeds_when_there_is_room(self) -> None:
        for room_bytes in range(120):
            folder = whole()
            folder.disk.capacity_bytes = FULL_BYTES + room_bytes
            for act in (folder.log.flush, folder.log.close):
                assert refusal(act, NOW_MS) in {None, ErrorCode.KAFKA_STORAGE_ERROR}
                assert not folder.log.is_offline
                assert contents(folder.log) == WHOLE
            folder.disk.capacity_bytes = None
            folder.stop()
            folder.disk.crash("lose_all")
            again = started(folder.disk)
            assert again.was_clean
            assert contents(again.log) == WHOLE

    def test_a_truncation_that_is_refused_has_cut_nothing(self) -> None:
        folder = whole()
        folder.disk.capacity_bytes = FULL_BYTES
        with storage_error():
            folder.log.truncate_to(3)
        assert contents(folder.log) == WHOLE
        folder.disk.capacity_bytes = None
        folder.log.truncate_to(3)
        assert contents(folder.log) == WHOLE[:3]
        check_derived(folder.log, WHOLE)

    def test_letting_go_of_segments_is_possible_without_room(self) -> None:
        folder = whole()
        folder.disk.capacity_bytes = 0
        log = folder.log
        log.delete_segments(2, NOW_MS)
        assert log.log_start_offset == log.segments.base_offset == 4
        log.remove_deleted(1 << 60)
        assert contents(log) == WHOLE[4:]
        names = folder.disk.list_directory(DIRECTORY)
        assert not [name for name in names if name.endswith(".deleted")]


def operations_of(act: Callable[[LogFolder], None]) -> range:
    folder = started(SimulatedDisk())
    first = len(folder.disk.faults.operations)
    act(folder)
    return range(first, len(folder.disk.faults.operations))


def append_all(folder: LogFolder) -> None:
    for step in STEPS:
        append(folder.log, step)


def append_and_stop(folder: LogFolder) -> None:
    append_all(folder)
    folder.log.close(NOW_MS)


def append_and_cut(folder: LogFolder) -> None:
    append_all(folder)
    folder.log.truncate_to(3)


def append_and_let_go(folder: LogFolder) -> None:
    append_all(folder)
    folder.log.delete_segments(2, NOW_MS)
    folder.log.remove_deleted(1 << 60)


def append_and_begin_anew(folder: LogFolder) -> None:
    append_all(folder)
    folder.log.restart_at(50)


SCENARIOS = [
    append_and_stop,
    append_and_cut,
    append_and_let_go,
    append_and_begin_anew,
]


class TestAFailingDisk:
    @pytest.mark.parametrize("act", SCENARIOS)
    def test_after_any_operation_that_failed_it_is_not_asked_again(
        self, act: Callable[[LogFolder], None]
    ) -> None:
        for number in operations_of(act):
            folder = started(SimulatedDisk())
            disk, log = folder.disk, folder.log
            disk.faults.fail_at(number, errno.EIO)
            with storage_error():
                act(folder)
            assert log.is_offline, disk.faults.operations[number]
            disk.faults.fail_on(None)
            done = len(disk.faults.operations)
            codes = [
                refusal(append, log, STEPS[0]),
                refusal(log.read, 0, 1, READ_BYTES),
                refusal(log.offset_for_timestamp, 0, 1),
                refusal(log.aborted_transactions, 0, 1),
                refusal(log.begin_flush),
                refusal(log.delete_segments, 0, NOW_MS),
                refusal(log.remove_deleted, 1 << 60),
                refusal(log.advance_log_start, 0),
                refusal(log.restart_at, 0),
                refusal(log.truncate_to, 0),
            ]
            assert set(codes) == {ErrorCode.KAFKA_STORAGE_ERROR}
            assert len(disk.faults.operations) == done

    def test_what_was_acknowledged_before_is_there_after_a_restart(self) -> None:
        for number in operations_of(append_and_stop):
            folder = started(SimulatedDisk())
            folder.disk.faults.fail_at(number, errno.EIO)
            acknowledged: list[bytes] = []
            with storage_error():
                for step in STEPS:
                    append(folder.log, step)
                    acknowledged = contents(folder.log)
                folder.log.close(NOW_MS)
            folder.disk.faults.heal()
            folder.disk.kill()
            again = started(folder.disk)
            found = contents(again.log)
            assert found[: len(acknowledged)] == acknowledged
            assert found == WHOLE[: len(found)]
            check_derived(again.log, WHOLE)

    def test_a_disk_that_cannot_be_read_is_offline_too(self) -> None:
        folder = started(whole().disk)
        folder.disk.faults.fail_on(OperationKind.READ)
        with storage_error():
            folder.log.read(0, 8, READ_BYTES)
        assert folder.log.is_offline

    def test_a_directory_that_is_gone_is_a_failure(self) -> None:
        folder = whole()
        folder.files._file_by_path.clear()
        for name in folder.disk.list_directory(DIRECTORY):
            folder.disk.remove(f"{DIRECTORY}/{name}")
        with storage_error():
            folder.log.read(0, 8, READ_BYTES)
        assert folder.log.is_offline


class TestAFullDiskAtAnyOperation:
    def test_the_log_goes_on_and_nothing_is_half_there(self) -> None:
        for number in operations_of(append_all):
            folder = started(SimulatedDisk())
            folder.disk.faults.fail_at(number, errno.ENOSPC)
            for step in STEPS:
                before = state_of(folder.log)
                if refusal(append, folder.log, step) is not None:
                    assert not folder.log.is_offline, folder.disk.faults.operations[number]
                    assert state_of(folder.log) == before
                    append(folder.log, step)
            check_whole(folder)

    @pytest.mark.parametrize("cut", [lambda log: log.truncate_to(3), lambda log: log.restart_at(3)])
    def test_half_a_cut_is_the_end(self, cut: Callable[[PartitionLog], None]) -> None:
        folder = whole()
        kinds = (OperationKind.SYNC, OperationKind.REMOVE)
        for kind in kinds:
            folder.disk.faults.fail_on(kind, f"{DIRECTORY}/{2:020d}.log", errno.ENOSPC)
        assert refusal(cut, folder.log) is ErrorCode.KAFKA_STORAGE_ERROR
        assert folder.log.is_offline

    def test_a_sync_that_finds_no_room_is_not_tried_again(self) -> None:
        folder = started(SimulatedDisk())
        fill(folder.log, 3)
        folder.disk.faults.fail_on(OperationKind.SYNC, error=errno.ENOSPC)
        with storage_error():
            folder.log.flush(NOW_MS)
        assert folder.log.is_offline
