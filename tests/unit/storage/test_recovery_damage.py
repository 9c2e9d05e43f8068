"""Damage below the recovery point: fenced off, or rebuilt from the batches."""

import pytest

from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.damage import Damage, write_damage
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.log_recovery import OpenedLog, open_log
from ottla.wire.records.control import ControlType
from tests.crashes.invariants import check_derived
from tests.log_building import (
    DIRECTORY,
    NOW_MS,
    READ_BYTES,
    LogFolder,
    batch,
    contents,
    fill,
    marker,
    refusal,
    stamped,
    tiny,
)
from tests.old_messages import message

SIZE = len(batch())


def name(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.{suffix}"


def filled(count: int = 10) -> LogFolder:
    folder = LogFolder(SimulatedDisk())
    fill(folder.start(), count)
    return folder


def opened_uncleanly(disk: SimulatedDisk, recovery_point: int = 0) -> OpenedLog:
    disk.kill()
    files = OpenFiles(disk)
    return open_log(files, DIRECTORY, tiny(), NOW_MS, is_clean=False, recovery_point=recovery_point)


class TestOldMessages:
    """Kafka reads formats from before 0.11; Ottla does not, and leaves such batches unchanged."""

    @pytest.mark.parametrize("recovery_point", [0, 4, 10])
    def test_they_are_neither_cut_off_nor_served(self, recovery_point: int) -> None:
        folder = filled()
        before = contents(folder.log)
        old = b"".join(message(offset, magic=offset % 2) for offset in (3, 4))
        content = old + before[5]
        file = folder.disk.open_file(name(3, "log"))
        file.truncate(0)
        file.write_at(0, content)
        for _ in range(2):
            log, findings = opened_uncleanly(folder.disk, recovery_point)
            assert [d[2:4] for d in findings.damage] == [(3, 5)]
            assert folder.disk.open_file(name(3, "log")).read_at(0, 1000) == content
            TestBelowTheRecoveryPoint().check_only_damaged(log, before, {3, 4}, frozenset({3, 4}))

    @pytest.mark.parametrize("recovery_point", [0, 3, 4, 6])
    def test_after_a_clean_stop_what_lies_behind_them_stays(self, recovery_point: int) -> None:
        folder = filled(6)
        before = contents(folder.log)
        folder.stop()
        folder.write_recovery_point(recovery_point)
        file = folder.disk.open_file(name(3, "log"))
        file.truncate(0)
        file.write_at(0, message(3) + message(4) + before[5])
        again = LogFolder(folder.disk)
        again.start()
        assert [d[2:4] for d in again.findings.damage] == [(3, 5)]
        TestBelowTheRecoveryPoint().check_only_damaged(again.log, before, {3, 4}, frozenset({3, 4}))

    @pytest.mark.parametrize("wrong_offset", [6, 1 << 20, 1 << 40])
    def test_one_with_an_offset_that_cannot_be_there_moves_nothing(self, wrong_offset: int) -> None:
        folder = filled()
        before = contents(folder.log)
        file = folder.disk.open_file(name(3, "log"))
        file.truncate(0)
        file.write_at(0, message(3) + message(wrong_offset) + before[5])
        log, findings = opened_uncleanly(folder.disk, recovery_point=5)
        assert [d[2:4] for d in findings.damage] == [(3, 4), (4, 6)]
        TestBelowTheRecoveryPoint().check_only_damaged(log, before, {3, 4, 5}, frozenset({3}))

    def test_the_last_one_of_all_is_not_believed_if_it_is_far_away(self) -> None:
        folder = filled(3)
        file = folder.disk.open_file(name(0, "log"))
        file.write_at(3 * SIZE, message(3) + message(1 << 40))
        log, findings = opened_uncleanly(folder.disk)
        assert log.end_offset == 4
        assert [d[2:4] for d in findings.damage] == [(3, 4)]

    def test_a_torn_one_is_cut_off(self) -> None:
        folder = filled(3)
        before = contents(folder.log)
        file = folder.disk.open_file(name(0, "log"))
        file.write_at(3 * SIZE, message(3)[:-1])
        log, findings = opened_uncleanly(folder.disk)
        assert contents(log) == before
        assert findings.damage == []
        assert findings.cut_bytes == len(message(3)) - 1


class TestBelowTheRecoveryPoint:
    """The segments at 0 and 3, and offset 6, were durable."""

    def opened(self, folder: LogFolder) -> OpenedLog:
        return opened_uncleanly(folder.disk, recovery_point=7)

    def test_damage_is_fenced_off_and_what_is_around_it_stays(self) -> None:
        folder = filled()
        before = contents(folder.log)
        folder.disk.corrupt(name(6, "log"), 70, b"\xff")
        log, findings = self.opened(folder)
        assert [d[2:4] for d in findings.damage] == [(6, 7)]
        assert "damaged below its recovery point" in findings.notes[0]
        self.check_only_damaged(log, before, {6})

    def check_only_damaged(
        self,
        log: PartitionLog,
        before: list[bytes],
        damaged: set[int],
        old: frozenset[int] = frozenset(),
    ) -> None:
        assert log.end_offset == len(before)
        for offset, raw in enumerate(before):
            if offset in damaged:
                code = refusal(log.read, offset, log.end_offset, READ_BYTES)
                is_old = offset in old
                assert code is (
                    ErrorCode.CORRUPT_MESSAGE if is_old else ErrorCode.KAFKA_STORAGE_ERROR
                )
            else:
                assert log.read(offset, log.end_offset, 1).read() == raw

    def test_damage_that_only_the_producers_come_across_is_fenced_off(self) -> None:
        folder = filled()
        before = contents(folder.log)
        for snapshot in (3, 6, 9):
            folder.disk.remove(name(snapshot, "snapshot"))
        folder.disk.corrupt(name(3, "log"), SIZE + 8, b"\0\0\0\1")
        log, findings = self.opened(folder)
        assert [d[2:4] for d in findings.damage] == [(4, 5)]
        self.check_only_damaged(log, before, {4})

    def test_it_is_remembered(self) -> None:
        folder = filled()
        before = contents(folder.log)
        folder.disk.corrupt(name(6, "log"), 70, b"\xff")
        self.opened(folder).log.close(NOW_MS)
        folder.disk.kill()
        files = OpenFiles(folder.disk)
        log, findings = open_log(files, DIRECTORY, tiny(), NOW_MS, is_clean=True, recovery_point=10)
        assert [d[2:4] for d in findings.damage] == [(6, 7)]
        self.check_only_damaged(log, before, {6})

    def test_a_wrong_length_ends_at_the_next_batch_that_the_index_knows(self) -> None:
        folder = LogFolder(SimulatedDisk(), tiny(segment_bytes=1 << 20))
        log = folder.start()
        fill(log, 9)
        folder.flush()
        before = contents(log)
        folder.disk.kill()
        folder.disk.corrupt(name(0, "log"), 3 * SIZE + 10, b"\x7f")
        again = LogFolder(folder.disk, folder.config)
        again.start()
        assert [d[2:4] for d in again.findings.damage] == [(3, 4)]
        self.check_only_damaged(again.log, before, {3})

    def test_two_damages_are_two(self) -> None:
        folder = LogFolder(SimulatedDisk(), tiny(segment_bytes=1 << 20))
        log = folder.start()
        fill(log, 9)
        folder.flush()
        before = contents(log)
        for offset in (2, 5, 6):
            folder.disk.corrupt(name(0, "log"), offset * SIZE + 65, b"\xff")
        folder.disk.kill()
        again = LogFolder(folder.disk, folder.config)
        again.start()
        assert [d[2:4] for d in again.findings.damage] == [(2, 3), (5, 7)]
        self.check_only_damaged(again.log, before, {2, 5, 6})

    @pytest.mark.parametrize("content", [b"", b"0\n0\n", b"0\n1\n1 2 3 4 5\n", b"{}"])
    def test_a_note_that_says_nothing_is_forgotten(self, content: bytes) -> None:
        folder = filled()
        before = contents(folder.log)
        folder.disk.create_file(name(3, "damage")).write_at(0, content)
        log, findings = self.opened(folder)
        assert findings.damage == []
        assert contents(log) == before
        assert self.opened(folder).findings.notes == []

    def test_a_note_about_what_was_cut_off_meanwhile_is_forgotten(self) -> None:
        folder = filled(7)
        damage = Damage(SIZE, 2 * SIZE, 7, 8)
        write_damage(folder.disk, name(6, "damage"), [damage])
        log, findings = self.opened(folder)
        assert findings.damage == []
        fill(log, 2)
        assert len(contents(log)) == 9

    def test_what_is_appended_behind_damage_is_read(self) -> None:
        folder = filled(7)
        before = contents(folder.log)
        folder.disk.corrupt(name(6, "log"), 70, b"\xff")
        log, _ = self.opened(folder)
        assert fill(log, 1)[0].base_offset == 7
        self.check_only_damaged(log, [*before, bytes(stamped(batch(), 7))], {6})

    def test_a_log_that_is_cut_before_its_damage_is_sound_again(self) -> None:
        folder = filled()
        folder.disk.corrupt(name(6, "log"), 70, b"\xff")
        log, _ = self.opened(folder)
        log.truncate_to(6)
        fill(log, 3)
        assert [raw[:8] for raw in contents(log)] == [n.to_bytes(8, "big") for n in range(9)]
        log, findings = opened_uncleanly(folder.disk, recovery_point=6)
        assert findings.damage == []
        assert len(contents(log)) == 9

    def test_a_wrong_offset_is_told_by_those_around_it(self) -> None:
        folder = LogFolder(SimulatedDisk(), tiny(segment_bytes=1 << 20))
        log = folder.start()
        fill(log, 9)
        folder.flush()
        before = contents(log)
        folder.disk.kill()
        folder.disk.flip_bit(name(0, "log"), 4 * SIZE + 5, 2)
        again = LogFolder(folder.disk, folder.config)
        again.start()
        assert [d[2:4] for d in again.findings.damage] == [(4, 5)]
        self.check_only_damaged(again.log, before, {4})

    @pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
    def test_an_index_that_is_not_whole_is_made_anew(self, suffix: str) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        fill(log, 1, producer_id=8, base_sequence=0, is_transactional=True)
        log.append_as_follower(stamped(marker(ControlType.ABORT, 8), 1), NOW_MS)
        fill(log, 8)
        folder.flush()
        before = contents(log)
        folder.disk.kill()
        file = folder.disk.open_file(name(0, suffix))
        file.truncate(file.size_bytes() - 1)
        again = LogFolder(folder.disk)
        again.start()
        assert len(again.findings.notes) == 1
        check_derived(again.log, before)
        folder.disk.crash("lose_all")
        once_more = LogFolder(folder.disk)
        once_more.start()
        assert once_more.findings.notes == []
        check_derived(once_more.log, before)

    def test_all_aborted_transactions_are_found_again_from_the_first_segment_on(self) -> None:
        folder = LogFolder(SimulatedDisk())
        log = folder.start()
        for sequence in range(4):
            data = batch(producer_id=8, base_sequence=sequence, is_transactional=True)
            log.append_as_leader(data, 0, NOW_MS)
            log.append_as_follower(stamped(marker(ControlType.ABORT, 8), log.end_offset), NOW_MS)
        before = contents(log)
        again, _ = opened_uncleanly(folder.disk)
        assert [one.first_offset for one in again.aborted_transactions(0, 8)] == [0, 2, 4, 6]
        check_derived(again, before)
