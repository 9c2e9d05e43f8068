"""Truncating a log at its end, and advancing its start."""

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
    marker,
    new_log,
    stamped,
    tiny,
)


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def busy_folder() -> LogFolder:
    """A log of five segments, with leader epochs, producers and transactions in all of them."""
    folder = LogFolder(SimulatedDisk())
    log = folder.start()
    sequence = 0
    for number in range(12):
        if number % 4 == 3:
            kind = ControlType.ABORT if number % 8 == 3 else ControlType.COMMIT
            data = stamped(marker(kind, 7), log.end_offset, number // 3)
        else:
            data = batch(
                2, 500 - number, producer_id=7, base_sequence=sequence, is_transactional=True
            )
            data = stamped(data, log.end_offset, number // 3)
            sequence += 2
        log.append_as_follower(data, NOW_MS)
    return folder


class TestTruncating:
    @pytest.mark.parametrize("offset", range(22))
    def test_what_is_left_is_what_was_there_before_and_all_that_is_known_fits_it(
        self, offset: int
    ) -> None:
        folder = busy_folder()
        log = folder.log
        before = contents(log)
        log.truncate_to(offset)
        kept = [raw for raw in before if raw in contents(log)]
        assert contents(log) == before[: len(kept)]
        assert all(stop <= offset for stop in [log.end_offset])
        assert log.end_offset in {offset, offset - 1}
        check_derived(log, before)
        fill(log, 5, leader_epoch=9)
        assert contents(log)[: len(kept)] == kept
        check_derived(log, contents(log))

    @pytest.mark.parametrize("offset", range(22))
    def test_a_truncated_log_is_the_same_after_a_restart(self, offset: int) -> None:
        folder = busy_folder()
        folder.log.truncate_to(offset)
        before = knowledge(folder.log)
        folder.disk.kill()
        again = LogFolder(folder.disk)
        assert knowledge(again.start()) == before
        assert again.findings.notes == []

    def test_at_a_batch_boundary_the_batch_goes_that_begins_there(self) -> None:
        log = new_log(segment_bytes=1 << 20)
        fill(log, 4, record_count=3)
        log.truncate_to(6)
        assert log.end_offset == 6
        assert len(contents(log)) == 2

    def test_inside_a_batch_the_whole_batch_goes(self) -> None:
        log = new_log(segment_bytes=1 << 20)
        fill(log, 4, record_count=3)
        log.truncate_to(5)
        assert log.end_offset == 3

    def test_segments_behind_the_cut_go_with_all_their_files(self) -> None:
        folder = LogFolder(SimulatedDisk())
        fill(folder.start(), 10)
        folder.flush()
        folder.log.truncate_to(4)
        assert bases(folder.log) == [0, 3]
        names = folder.disk.list_directory(DIRECTORY)
        assert {name[:20] for name in names if name[0] == "0"} == {f"{0:020d}", f"{3:020d}"}

    def test_at_or_behind_the_end_nothing_happens(self) -> None:
        log = new_log()
        fill(log, 5)
        before = contents(log)
        log.truncate_to(5)
        log.truncate_to(99)
        assert contents(log) == before

    def test_before_its_start_the_log_begins_anew(self) -> None:
        log = new_log()
        fill(log, 9)
        log.advance_log_start(7)
        log.truncate_to(4)
        assert (log.log_start_offset, log.end_offset, bases(log)) == (4, 4, [4])
        assert log.epochs.entries == ()
        assert log.append_as_leader(batch(), 1, NOW_MS).base_offset == 4

    def test_inside_the_batch_that_the_log_starts_in_nothing_is_left(self) -> None:
        log = new_log()
        fill(log, 1, record_count=9)
        log.advance_log_start(5)
        log.truncate_to(7)
        assert (log.log_start_offset, log.end_offset) == (5, 5)
        assert log.append_as_leader(batch(), 0, NOW_MS).base_offset == 5
        assert log.read(5, 6, READ_BYTES).size_bytes > 0

    def test_the_greatest_timestamp_is_that_of_what_is_left(self) -> None:
        log = new_log(segment_bytes=1 << 20)
        for timestamp_ms in (10, 50, 20, 90, 30):
            log.append_as_leader(batch(1, timestamp_ms), 0, NOW_MS)
        log.truncate_to(3)
        assert log.segments.active.greatest_timestamp.timestamp_ms == 50

    def test_an_emptied_segment_takes_its_age_from_its_next_record(self) -> None:
        log = new_log(segment_bytes=1 << 20, segment_ms=100)
        log.append_as_leader(batch(2, 10), 0, NOW_MS)
        log.truncate_to(1)
        for timestamp_ms in (500, 600):
            log.append_as_leader(batch(1, timestamp_ms), 0, NOW_MS)
        assert bases(log) == [0]

    def test_in_a_gap_the_log_ends_with_what_comes_before_it(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        for offset in (0, 10, 20):
            log.append_as_follower(stamped(batch(), offset), NOW_MS)
        log.truncate_to(15)
        assert log.end_offset == 11
        folder.disk.kill()
        assert LogFolder(folder.disk).start().end_offset == 11

    def test_an_older_recovery_point_is_written_down_first(self) -> None:
        folder = LogFolder(SimulatedDisk())
        fill(folder.start(), 10)
        folder.flush()
        done = len(folder.disk.faults.operations)
        folder.log.truncate_to(4)
        assert folder.log.recovery_point == 4
        operations = folder.disk.faults.operations[done:]
        cuts = [
            op.kind in {OperationKind.REMOVE, OperationKind.TRUNCATE} and DIRECTORY in op.path
            for op in operations
        ]
        lowered = [op.path.startswith("/logs/recovery-point") for op in operations]
        assert lowered.index(True) < cuts.index(True)

    def test_what_was_cut_off_can_be_written_again_by_its_producer(self) -> None:
        log = new_log()
        for sequence in range(5):
            fill(log, 1, producer_id=7, base_sequence=sequence)
        log.truncate_to(3)
        with pytest.raises(ApiError) as refusal:
            fill(log, 1, producer_id=7, base_sequence=4)
        assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert fill(log, 1, producer_id=7, base_sequence=3)[0].base_offset == 3


class TestBeginningAnew:
    def test_everything_goes(self) -> None:
        folder = busy_folder()
        folder.log.restart_at(100, NOW_MS)
        log = folder.log
        assert (log.log_start_offset, log.end_offset, log.recovery_point) == (100, 100, 100)
        assert (contents(log), log.epochs.entries, log.producers.producers()) == ([], (), [])
        assert fill(log, 1)[0].base_offset == 100
        assert not [n for n in folder.disk.list_directory(DIRECTORY) if n.endswith(".snapshot")]

    def test_a_producer_begins_anew_too(self) -> None:
        log = new_log()
        fill(log, 1, producer_id=7, base_sequence=0)
        log.restart_at(50)
        assert fill(log, 1, producer_id=7, base_sequence=9)[0].base_offset == 50


class TestDeletingRecords:
    def test_the_log_begins_later(self) -> None:
        log = new_log()
        fill(log, 9, record_count=2)
        log.advance_log_start(7)
        with pytest.raises(ApiError) as refusal:
            log.read(6, 18, READ_BYTES)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert len(log.read(7, 18, READ_BYTES)) > 0
        check_derived(log, contents(log))

    def test_it_never_begins_earlier_again(self) -> None:
        log = new_log()
        fill(log, 9)
        log.advance_log_start(7)
        with pytest.raises(ApiError):
            log.advance_log_start(6)
        log.advance_log_start(7)
        assert log.log_start_offset == 7

    def test_it_never_begins_behind_its_end(self) -> None:
        log = new_log()
        fill(log, 3)
        with pytest.raises(ApiError) as refusal:
            log.advance_log_start(4)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        log.advance_log_start(3)
        assert contents(log) == []
        assert fill(log, 1)[0].base_offset == 3

    def test_the_start_is_remembered(self) -> None:
        folder = LogFolder(SimulatedDisk())
        fill(folder.start(), 9)
        folder.delete_records(4)
        folder.disk.kill()
        log = LogFolder(folder.disk).start()
        assert log.log_start_offset == 4
        check_derived(log, contents(log))

    def test_a_start_behind_what_a_power_cut_left_is_kept(self) -> None:
        folder = LogFolder(SimulatedDisk())
        fill(folder.start(), 9, leader_epoch=3)
        folder.delete_records(8)
        folder.disk.crash("lose_all")
        again = LogFolder(folder.disk)
        log = again.start()
        assert (log.log_start_offset, log.end_offset) == (8, 8)
        assert log.epochs.entries == ()
        assert again.findings.notes


class TestDeletingSegments:
    def test_they_are_gone_at_once_and_their_files_a_while_later(self) -> None:
        folder = LogFolder(SimulatedDisk(), tiny(file_delete_delay_ms=1000))
        log = folder.start()
        fill(log, 10)
        log.delete_segments(2, NOW_MS)
        assert log.log_start_offset == bases(log)[0] == 6
        log.remove_deleted(NOW_MS + 999)
        names = folder.disk.list_directory(DIRECTORY)
        assert [n for n in names if n.endswith(".log.deleted")] == [
            f"{base:020d}.log.deleted" for base in (0, 3)
        ]
        log.remove_deleted(NOW_MS + 1000)
        names = folder.disk.list_directory(DIRECTORY)
        assert not [n for n in names if n.endswith(".deleted")]
        assert not [n for n in names if n[:20] in {f"{0:020d}", f"{3:020d}"}]

    def test_epochs_and_snapshots_go_with_them(self) -> None:
        folder = busy_folder()
        log = folder.log
        before = contents(log)
        log.delete_segments(2, NOW_MS)
        check_derived(log, before)
        assert min(log.producers.snapshots.offsets()) >= log.log_start_offset

    def test_a_restart_removes_what_was_not_removed_yet(self) -> None:
        folder = LogFolder(SimulatedDisk())
        fill(folder.start(), 10)
        folder.log.delete_segments(2, NOW_MS)
        folder.disk.kill()
        log = LogFolder(folder.disk).start()
        assert bases(log) == [6, 9]
        assert not [n for n in folder.disk.list_directory(DIRECTORY) if n.endswith(".deleted")]

    def test_a_start_inside_the_segments_left_stays(self) -> None:
        log = new_log()
        fill(log, 10)
        log.advance_log_start(7)
        log.delete_segments(2, NOW_MS)
        assert log.log_start_offset == 7
