"""Opening a log: after a clean stop, after a crash, and with damage."""

import pytest

from ottla.environment.disk import Buffer
from ottla.model.settings.topic_config import CleanupPolicy, TopicConfig
from ottla.simulation.world.disk import SimulatedDisk, SimulatedFile
from ottla.simulation.world.disk_nodes import Operation, OperationKind
from ottla.storage.files.checkpoints import RECOVERY_POINT_FILE
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from ottla.storage.log.log import PartitionLog
from ottla.storage.log.retention import greatest_time_ms
from ottla.storage.recovery.log_recovery import OpenedLog, open_log
from tests.crashes.invariants import check_derived, knowledge
from tests.log_building import (
    DIRECTORY,
    FOLDER,
    NOW_MS,
    LogFolder,
    batch,
    batches_of,
    contents,
    fill,
    stamped,
    tiny,
)

SIZE = len(batch())
SYNCS = {OperationKind.SYNC, OperationKind.SYNC_DIRECTORY}


class CountingDisk(SimulatedDisk):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def open_file(self, path: str) -> SimulatedFile:
        opened = super().open_file(path)
        return CountingFile(self, opened._life, path, opened._open_node())

    def map_file(self, path: str) -> memoryview:
        mapped = super().map_file(path)
        self.bytes_read += len(mapped)
        return mapped


class CountingFile(SimulatedFile):
    __slots__ = ()

    def read_at(self, position: int, size_bytes: int) -> bytes:
        data = super().read_at(position, size_bytes)
        assert isinstance(self._disk, CountingDisk)
        self._disk.bytes_read += len(data)
        return data


def path(name: str) -> str:
    return f"{DIRECTORY}/{name}"


def name(base_offset: int, suffix: str) -> str:
    return path(f"{base_offset:020d}.{suffix}")


def filled(count: int = 10) -> LogFolder:
    folder = LogFolder(SimulatedDisk())
    fill(folder.start(), count)
    return folder


def opened_uncleanly(
    disk: SimulatedDisk,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    config: TopicConfig | None = None,
) -> OpenedLog:
    disk.kill()
    return open_log(
        OpenFiles(disk),
        DIRECTORY,
        config or tiny(),
        NOW_MS,
        is_clean=False,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def write(disk: SimulatedDisk, file_path: str, content: Buffer) -> None:
    file = disk.create_file(file_path)
    file.truncate(0)
    file.write_at(0, content)
    file.sync()
    disk.sync_directory(DIRECTORY)


class TestACleanStop:
    def test_the_next_start_finds_the_same_log_and_changes_nothing(self) -> None:
        folder = filled()
        before = knowledge(folder.log)
        folder.stop()
        folder.disk.crash("lose_all")
        again = LogFolder(folder.disk)
        done = len(folder.disk.faults.operations)
        again.start()
        assert again.was_clean
        assert again.findings.notes == []
        touched = [op for op in folder.disk.faults.operations[done:] if DIRECTORY in op.path]
        assert touched == []
        assert knowledge(again.log) == before

    def test_the_next_start_reads_next_to_nothing(self) -> None:
        disk = CountingDisk()
        config = tiny(segment_bytes=100_000, index_interval_bytes=4096)
        folder = LogFolder(disk, config)
        fill(folder.start(), 500, value=bytes(1000), producer_id=-1)
        folder.stop()
        disk.kill()
        disk.bytes_read = 0
        again = LogFolder(disk, config)
        again.start()
        assert again.log.end_offset == 500
        assert len(again.log.segments) == 6
        assert disk.bytes_read < 30_000

    @pytest.mark.parametrize("recovery_point", [0, 2, 3, 8, 9, 10])
    def test_what_lies_behind_a_recovery_point_that_is_too_low_stays(
        self, recovery_point: int
    ) -> None:
        folder = filled(11)
        before = contents(folder.log)
        folder.stop()
        folder.write_recovery_point(recovery_point)
        folder.disk.kill()
        again = LogFolder(folder.disk)
        again.start()
        assert contents(again.log) == before
        assert again.log.end_offset == 11
        assert again.log.recovery_point == recovery_point
        assert f"goes on behind {recovery_point}" in again.findings.notes[0]
        check_derived(again.log, before)

    @pytest.mark.parametrize("offsets", [[0, 3, 6, 9], [0, 3, 20, 23], [0, 3, 20], [0]])
    def test_it_stays_wherever_that_point_is(self, offsets: list[int]) -> None:
        wrong_if_last = 9  # the third batch would end there if its base offset were 6, not 20
        for recovery_point in {*range(offsets[-1] + 3)} - {wrong_if_last}:
            folder = LogFolder(SimulatedDisk(), tiny(segment_bytes=100_000))
            folder.start()
            for offset in offsets:
                folder.log.append_as_follower(stamped(batch(3), offset), NOW_MS)
            before = contents(folder.log)
            folder.stop()
            folder.write_recovery_point(recovery_point)
            folder.disk.kill()
            again = LogFolder(folder.disk, folder.config)
            again.start()
            assert contents(again.log) == before, recovery_point
            assert again.findings.damage == []
            check_derived(again.log, before)

    def test_a_log_without_records_stops_and_starts(self) -> None:
        folder = filled(0)
        folder.stop()
        folder.disk.crash("lose_all")
        again = LogFolder(folder.disk)
        assert again.start().end_offset == 0
        assert again.was_clean

    def test_an_index_that_is_missing_all_the_same_is_made(self) -> None:
        folder = filled()
        folder.stop()
        folder.disk.kill()
        folder.disk.remove(name(3, "index"))
        again = LogFolder(folder.disk)
        again.start()
        assert "missing" in " ".join(again.findings.notes)
        assert folder.disk.exists(name(3, "index"))
        check_derived(again.log, contents(again.log))

    def test_repeated_batches_are_found_after_a_recovery(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        fill(log, 1, producer_id=7, base_sequence=0)
        folder.stop()
        folder.disk.kill()
        again = LogFolder(folder.disk).start()
        assert fill(again, 1, producer_id=7, base_sequence=0)[0].is_duplicate


class TestAKill:
    def test_nothing_is_lost(self) -> None:
        folder = filled()
        before = contents(folder.log)
        log, findings = opened_uncleanly(folder.disk)
        assert contents(log) == before
        assert findings.notes == []
        check_derived(log, before)

    def test_a_torn_tail_is_cut_and_counted(self) -> None:
        folder = filled()
        before = contents(folder.log)
        file = folder.disk.open_file(name(9, "log"))
        file.write_at(file.size_bytes(), before[0][:40])
        log, findings = opened_uncleanly(folder.disk)
        assert contents(log) == before
        assert findings.cut_bytes == 40
        assert len(findings.notes) == 1
        assert "cut at offset 10" in findings.notes[0]
        assert opened_uncleanly(folder.disk).findings.notes == []

    def test_segments_behind_a_torn_one_go(self) -> None:
        folder = filled()
        before = contents(folder.log)
        folder.disk.corrupt(name(3, "log"), 2 * SIZE + 30, b"\xff\xff")
        log, findings = opened_uncleanly(folder.disk)
        assert contents(log) == before[:5]
        assert log.end_offset == 5
        assert findings.cut_bytes == 5 * SIZE
        assert [segment.base_offset for segment in log.segments] == [0, 3]

    def test_a_segment_that_has_lost_its_end_takes_those_behind_it_along(self) -> None:
        folder = filled()
        before = contents(folder.log)
        folder.disk.open_file(name(3, "log")).truncate(2 * SIZE)
        log, findings = opened_uncleanly(folder.disk)
        assert contents(log) == before[:5]
        assert log.end_offset == 5
        assert "does not begin at offset 5" in findings.notes[0]

    def test_a_segment_that_begins_too_early_goes(self) -> None:
        folder = filled(6)
        write(folder.disk, name(4, "log"), b"")
        log, _ = opened_uncleanly(folder.disk)
        assert [segment.base_offset for segment in log.segments] == [0, 3]
        assert log.end_offset == 6

    def test_offsets_too_far_apart_for_one_segment_are_no_lost_end(self) -> None:
        folder = filled(2)
        folder.log.append_as_follower(stamped(batch(), 1 << 40), NOW_MS)
        log, findings = opened_uncleanly(folder.disk)
        assert log.end_offset == (1 << 40) + 1
        assert findings.notes == []

    def test_the_recovery_point_is_not_advanced_by_recovering(self) -> None:
        folder = filled()
        assert opened_uncleanly(folder.disk, recovery_point=4).log.recovery_point == 4

    def test_a_log_that_ends_before_its_recovery_point_is_reported(self) -> None:
        folder = filled()
        opened = opened_uncleanly(folder.disk, recovery_point=99)
        assert opened.log.recovery_point == 10
        assert "durable to 99" in opened.findings.notes[0]

    def test_a_log_that_ends_before_its_start_begins_anew_there(self) -> None:
        folder = filled()
        log, findings = opened_uncleanly(folder.disk, log_start_offset=50)
        assert (log.log_start_offset, log.end_offset) == (50, 50)
        assert log.epochs.entries == ()
        assert len(findings.notes) == 4
        names = folder.disk.list_directory(DIRECTORY)
        assert [n for n in names if n.endswith((".log", "index"))] == [f"{50:020d}.log"]

    def test_leftovers_are_swept_up(self) -> None:
        folder = filled(1)
        for leftover in ("log.deleted", "index.deleted"):
            write(folder.disk, name(0, leftover), b"left over")
        write(folder.disk, name(5, "index.tmp"), b"left over")
        write(folder.disk, name(77, "timeindex"), b"no log for this")
        write(folder.disk, path("leader-epoch-checkpoint.tmp"), b"0\n")
        write(folder.disk, path("partition.metadata"), b"kept")
        log, _ = opened_uncleanly(folder.disk)
        names = folder.disk.list_directory(DIRECTORY)
        assert names == [f"{0:020d}.log", "partition.metadata"]
        assert log.end_offset == 1

    def test_a_sound_log_is_opened_without_waiting_for_the_disk(self) -> None:
        folder = LogFolder(SimulatedDisk(), tiny(segment_bytes=10_000))
        fill(folder.start(), 1)
        fill(folder.log, 9, leader_epoch=5)
        epochs = folder.log.epochs.entries
        assert epochs == ((0, 0), (5, 1))
        done = len(folder.disk.faults.operations)
        log, _ = opened_uncleanly(folder.disk)
        operations = folder.disk.faults.operations[done:]
        assert not [operation for operation in operations if operation.kind in SYNCS]
        assert log.epochs.entries == epochs
        folder.disk.crash("keep_all")
        log, _ = opened_uncleanly(folder.disk)
        assert log.epochs.entries == epochs
        log.flush(NOW_MS)
        assert LeaderEpochs.load(folder.disk, path(LEADER_EPOCH_FILE)).entries == epochs

    def test_the_opening_of_a_short_log_changes_nothing_on_disk(self) -> None:
        folder = LogFolder(SimulatedDisk(), tiny(segment_bytes=10_000))
        fill(folder.start(), 9)
        done = len(folder.disk.faults.operations)
        log, _ = opened_uncleanly(folder.disk)
        assert folder.disk.faults.operations[done:] == []
        check_derived(log, contents(log))
        log.close(NOW_MS)
        names = folder.disk.list_directory(DIRECTORY)
        assert {f"{0:020d}.index", f"{0:020d}.timeindex"} <= {*names}

    def test_batches_are_read_twice_at_most(self) -> None:
        disk = CountingDisk()
        config = tiny(segment_bytes=1 << 20, index_interval_bytes=4096)
        folder = LogFolder(disk, config)
        fill(folder.start(), 500, value=bytes(1000), producer_id=-1)
        disk.bytes_read = 0
        log, _ = opened_uncleanly(disk, config=config)
        assert log.end_offset == 500
        assert disk.bytes_read < 2.1 * sum(segment.size_bytes for segment in log.segments)

    def test_epochs_of_a_lost_end_are_not_believed_after_the_next_flush(self) -> None:
        folder = filled(4)
        folder.flush()
        fill(folder.log, 2, leader_epoch=5)
        folder.log.epochs.write()  # durable before the batches
        folder.disk.crash("lose_all")
        log, _ = opened_uncleanly(folder.disk, recovery_point=4)
        assert (log.end_offset, log.epochs.entries) == (4, ((0, 0),))
        fill(log, 1, leader_epoch=3)
        log.flush(NOW_MS)
        assert LeaderEpochs.load(folder.disk, path(LEADER_EPOCH_FILE)).entries == ((0, 0), (3, 4))


class TestAGap:
    """Gaps before the segments at 6 and 12; each segment's first batch is at its base offset."""

    def with_gaps(self, policy: CleanupPolicy = CleanupPolicy.DELETE) -> LogFolder:
        folder = LogFolder(SimulatedDisk(), tiny(cleanup_policy=frozenset({policy})))
        fill(folder.start(), 3, leader_epoch=1)
        folder.log.roll(NOW_MS, 6)
        for offset in (6, 8, 9):
            folder.log.append_as_follower(stamped(batch(), offset, leader_epoch=2), NOW_MS)
        folder.log.roll(NOW_MS, 12)
        folder.log.append_as_follower(stamped(batch(), 12, leader_epoch=2), NOW_MS)
        folder.flush()
        return folder

    def check_whole(self, log: PartitionLog, before: list[bytes]) -> None:
        found = list(batches_of(log))
        assert [bytes(one.raw) for one in found if one.record_count] == before
        assert log.end_offset == 13
        assert log.epochs.entries == ((1, 0), (2, 6))
        check_derived(log, contents(log))

    @pytest.mark.parametrize("recovery_point", [0, 2, 3, 5, 6, 9, 10, 12, 13])
    def test_where_kafka_was_killed_it_is_no_loss(self, recovery_point: int) -> None:
        folder = self.with_gaps()
        before = contents(folder.log)
        folder.disk.create_file(name(12, "index")).truncate(10 << 20)
        log, findings = opened_uncleanly(folder.disk, recovery_point)
        assert [note for note in findings.notes if "nothing is left" not in note] == []
        self.check_whole(log, before)
        again, findings = opened_uncleanly(folder.disk, recovery_point)
        assert [note for note in findings.notes if "nothing is left" not in note] == []
        self.check_whole(again, before)

    def test_what_closes_it_is_as_old_to_retention_as_the_records_before_it(self) -> None:
        folder = self.with_gaps()
        folder.disk.create_file(name(12, "index")).truncate(10 << 20)
        for segment in folder.log.segments:  # a copy of the directory has new modification times
            segment.file.set_modified_ms(10 * NOW_MS)
        log, _ = opened_uncleanly(folder.disk)
        assert {greatest_time_ms(segment) for segment in log.segments} == {NOW_MS}

    @pytest.mark.parametrize(
        ("file_bytes", "end_offset"), [(40_000, 13), (39_992, 3), (40_008, 3), (80, 3), (0, 3)]
    )
    def test_where_kafka_was_killed_an_index_may_be_small(
        self, file_bytes: int, end_offset: int
    ) -> None:
        folder = self.with_gaps()
        folder.disk.create_file(name(12, "index")).truncate(file_bytes)
        config = tiny(segment_index_bytes=40_007)
        assert opened_uncleanly(folder.disk, 2, config=config).log.end_offset == end_offset

    def test_where_kafka_was_killed_an_empty_segment_may_be_before_it(self) -> None:
        folder = self.with_gaps()
        before = contents(folder.log)
        write(folder.disk, name(3, "log"), b"")
        folder.disk.create_file(name(12, "index")).truncate(10 << 20)
        for _ in range(2):
            log, findings = opened_uncleanly(folder.disk)
            assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 10, 12]
            assert findings.notes == []
            self.check_whole(log, before)

    def test_where_kafka_was_killed_a_torn_segment_takes_along_what_lies_behind_it(self) -> None:
        folder = self.with_gaps()
        before = contents(folder.log)
        folder.disk.create_file(name(12, "index")).truncate(10 << 20)
        folder.disk.corrupt(name(6, "log"), 2 * SIZE + 30, b"\xff\xff")
        log, _ = opened_uncleanly(folder.disk)
        assert [raw for raw in contents(log) if len(raw) == SIZE] == before[:5]
        assert log.end_offset == 9

    def test_in_a_log_that_was_closed_it_is_no_loss(self) -> None:
        folder = self.with_gaps()
        before = contents(folder.log)
        folder.stop()
        folder.disk.remove(f"{FOLDER}/{RECOVERY_POINT_FILE}")
        folder.disk.kill()
        again = LogFolder(folder.disk)
        again.start()
        assert again.was_clean
        self.check_whole(again.log, before)

    @pytest.mark.parametrize("policy", CleanupPolicy)
    @pytest.mark.parametrize(("recovery_point", "end_offset"), [(2, 3), (5, 3), (6, 10), (13, 13)])
    def test_elsewhere_only_what_had_been_durable_stays_behind_it(
        self, policy: CleanupPolicy, recovery_point: int, end_offset: int
    ) -> None:
        folder = self.with_gaps(policy)
        log, findings = opened_uncleanly(folder.disk, recovery_point, config=folder.config)
        assert log.end_offset == end_offset
        is_noted = "nothing is left of offsets 3 to 6" in findings.notes
        assert is_noted == (recovery_point == 6 and policy is CleanupPolicy.DELETE)


class TestEpochs:
    def test_a_damaged_checkpoint_is_made_anew_from_the_batches(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        for epoch in (1, 1, 4, 4, 4, 7, 7, 7, 8):
            fill(log, 1, leader_epoch=epoch)
        entries = log.epochs.entries
        folder.stop()
        folder.disk.kill()
        write(folder.disk, path(LEADER_EPOCH_FILE), b"0\n1\n4 xyz\n")
        again = LogFolder(folder.disk)
        again.start()
        assert again.log.epochs.entries == entries
        assert len(again.findings.notes) == 1

    def test_epochs_without_records_are_dropped(self) -> None:
        folder = filled(3)
        folder.log.epochs.assign(5, 3)
        assert opened_uncleanly(folder.disk).log.epochs.entries == ((0, 0),)


class TestDurability:
    def test_the_parent_of_a_new_directory_is_synced_before_anything_is_in_it(self) -> None:
        disk = SimulatedDisk()
        disk.make_directory("/logs")
        open_log(OpenFiles(disk), DIRECTORY, tiny(), NOW_MS, is_clean=True)
        operations = disk.faults.operations
        synced = operations.index(Operation(OperationKind.SYNC_DIRECTORY, "/logs"))
        created = operations.index(Operation(OperationKind.CREATE, name(0, "log")))
        assert synced < created

    def test_it_is_synced_by_the_next_start_if_a_crash_came_before(self) -> None:
        disk = SimulatedDisk()
        disk.make_directory(DIRECTORY)
        disk.sync_directory("/")
        log, _ = opened_uncleanly(disk)
        fill(log, 1)
        log.flush(NOW_MS)
        disk.crash("lose_all")
        assert opened_uncleanly(disk).log.end_offset == 1
