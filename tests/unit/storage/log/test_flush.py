"""Flushing a log: the schedule, the flushed range, and the effects of a failure."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.log.log import PartitionLog
from tests.crashes.invariants import check_indexes
from tests.log_building import (
    DIRECTORY,
    NOW_MS,
    LogFolder,
    batch,
    contents,
    fill,
    new_log,
    refusal,
    tiny,
)


def end_after_power_cut(folder: LogFolder) -> int:
    folder.write_recovery_point(folder.log.recovery_point)
    folder.disk.crash("lose_all")
    return LogFolder(folder.disk, folder.config).start().end_offset


class TestWhen:
    def test_after_so_many_records(self) -> None:
        log = new_log(flush_messages=5)
        assert not log.needs_flush(NOW_MS)
        fill(log, 2, record_count=2)
        assert not log.needs_flush(NOW_MS)
        fill(log, 1)
        assert log.needs_flush(NOW_MS)
        log.flush(NOW_MS)
        assert not log.needs_flush(NOW_MS)

    def test_after_so_long(self) -> None:
        log = new_log(flush_ms=100)
        assert not log.needs_flush(NOW_MS + 500)
        fill(log, 1)
        assert not log.needs_flush(NOW_MS + 99)
        assert log.needs_flush(NOW_MS + 100)
        log.flush(NOW_MS + 100)
        fill(log, 1)
        assert not log.needs_flush(NOW_MS + 199)
        assert log.needs_flush(NOW_MS + 200)


class TestHowMuch:
    def test_all_that_is_there(self) -> None:
        folder = LogFolder(SimulatedDisk())
        fill(folder.start(), 7)
        folder.log.flush(NOW_MS)
        assert folder.log.recovery_point == 7
        assert end_after_power_cut(folder) == 7

    def test_a_flush_syncs_each_unflushed_segment_and_the_directory_last(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        fill(log, 4)
        log.flush(NOW_MS)
        fill(log, 4)
        done = len(folder.disk.faults.operations)
        log.flush(NOW_MS)
        syncs = [op for op in folder.disk.faults.operations[done:] if "sync" in op.kind]
        synced = {op.path for op in syncs if op.path.endswith(".log")}
        assert synced == {f"{DIRECTORY}/{base:020d}.log" for base in (3, 6)}
        assert syncs[-1] == (OperationKind.SYNC_DIRECTORY, DIRECTORY)

    def test_appends_during_a_flush_are_not_durable_by_it(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        fill(log, 5)
        flush = log.begin_flush()
        fill(log, 4)
        flush.run()
        fill(log, 1)
        log.end_flush(flush, NOW_MS)
        assert log.recovery_point == 5
        assert 5 <= end_after_power_cut(folder) < 10

    def test_two_at_once_may_end_in_any_order(self) -> None:
        log = new_log()
        fill(log, 2)
        first = log.begin_flush()
        fill(log, 2)
        second = log.begin_flush()
        for flush in (second, first):
            flush.run()
            log.end_flush(flush, NOW_MS)
        assert log.recovery_point == 4

    @pytest.mark.parametrize("cut_offset", [2, 4])
    def test_what_is_written_behind_a_cut_is_not_durable_by_a_flush_begun_before(
        self, cut_offset: int
    ) -> None:
        folder = LogFolder(SimulatedDisk(), tiny(segment_bytes=1 << 20))
        log = folder.start()
        fill(log, 3)
        log.flush(NOW_MS)
        fill(log, 3)
        flush = log.begin_flush()
        flush.run()
        log.truncate_to(cut_offset)
        fill(log, 3)
        log.end_flush(flush, NOW_MS)
        assert log.recovery_point <= cut_offset
        assert end_after_power_cut(folder) >= log.recovery_point

    def test_a_log_that_begins_anew_owes_nothing_to_an_older_flush(self) -> None:
        log = new_log()
        fill(log, 6)
        flush = log.begin_flush()
        flush.run()
        log.restart_at(2)
        fill(log, 2)
        log.end_flush(flush, NOW_MS)
        assert log.recovery_point == 2

    def test_segments_that_go_meanwhile_do_no_harm(self) -> None:
        log = new_log()
        fill(log, 9)
        flush = log.begin_flush()
        log.delete_segments(2, NOW_MS)
        log.remove_deleted(1 << 60)
        flush.run()
        log.end_flush(flush, NOW_MS)
        assert (flush.failure, log.recovery_point) == (None, 9)

    def test_a_segment_that_was_durable_before_it_was_closed_keeps_its_last_time(self) -> None:
        folder = LogFolder(SimulatedDisk(), tiny(index_interval_bytes=1 << 20))
        log = folder.start()
        for timestamp_ms in (10, 30, 20):
            log.append_as_leader(batch(1, timestamp_ms), 0, NOW_MS)
        log.flush(NOW_MS)
        fill(log, 1, timestamp_ms=5)
        folder.write_recovery_point(log.recovery_point)
        folder.disk.crash("lose_all")
        check_indexes(LogFolder(folder.disk, folder.config).start())


class TestDirectoryEntries:
    """D9: a segment's directory entry becomes durable before any of its content."""

    def test_the_directory_of_a_new_log_is_durable_with_its_first_flush(self) -> None:
        folder = LogFolder(SimulatedDisk())
        fill(folder.start(), 1)
        folder.log.flush(NOW_MS)
        folder.disk.crash("lose_all")
        assert contents(LogFolder(folder.disk).start()) != []

    def test_a_sync_of_the_file_alone_promises_nothing(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        fill(log, 5)
        flush = log.begin_flush()
        for segment in log.segments:
            segment.file.sync()
        assert log.recovery_point == 0
        folder.disk.faults.fail_on(OperationKind.SYNC_DIRECTORY)
        flush.run()
        with pytest.raises(ApiError):
            log.end_flush(flush, NOW_MS)
        assert log.recovery_point == 0


class TestFailure:
    """D8: after a failed sync no later success is reported."""

    def failed(self, log: PartitionLog, disk: SimulatedDisk, under: str = "/") -> None:
        fill(log, 5)
        disk.faults.fail_on(OperationKind.SYNC, under)
        flush = log.begin_flush()
        flush.run()
        assert flush.failure is not None
        disk.faults.heal()
        assert refusal(log.end_flush, flush, NOW_MS) is ErrorCode.KAFKA_STORAGE_ERROR

    @pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
    def test_the_log_is_offline_for_good(self, suffix: str) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        self.failed(log, folder.disk, f"{DIRECTORY}/{0:020d}.{suffix}")
        assert log.is_offline
        done = len(folder.disk.faults.operations)
        codes = [
            refusal(log.flush, NOW_MS),
            refusal(fill, log, 1),
            refusal(log.close, NOW_MS),
            refusal(log.read, 0, 5, 1),
            refusal(log.truncate_to, 1),
            refusal(log.roll, NOW_MS),
            refusal(log.aborted_transactions, 0, 5),
            refusal(log.greatest_timestamp),
        ]
        assert set(codes) == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert len(folder.disk.faults.operations) == done
        assert log.recovery_point == 0

    def test_a_success_that_comes_after_a_failure_counts_no_more(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        fill(log, 2)
        later = log.begin_flush()
        self.failed(log, folder.disk)
        later.run()
        assert later.failure is None
        with pytest.raises(ApiError):
            log.end_flush(later, NOW_MS)
        assert log.recovery_point == 0

    def test_unsynced_batches_are_cut_after_the_restart(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        self.failed(log, folder.disk)
        folder.disk.crash("keep_all")
        assert LogFolder(folder.disk).start().end_offset == 0
