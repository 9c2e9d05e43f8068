"""One bit flips in one file: all untrustworthy data is cut, fenced off or rebuilt.

Kafka's formats leave some bits without protection, and Ottla keeps the formats byte for byte: the
base offset and the leader epoch of a batch, the entries of the index of aborted transactions, and
the digits of the checkpoints. For these bits the tests check that other data stays intact.
"""

from collections.abc import Iterator

import pytest

from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.log.leader_epochs import LEADER_EPOCH_FILE
from ottla.storage.log.log import PartitionLog
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import HEADER_BYTES, RecordBatch
from ottla.wire.records.control import ControlType
from tests.crashes.invariants import check_derived, check_search, knowledge
from tests.log_building import (
    DIRECTORY,
    FOLDER,
    NOW_MS,
    LogFolder,
    batch,
    contents,
    fill,
    marker,
    refusal,
    stamped,
)

UNPROTECTED = {*range(8), *range(12, 16)}
"""The bytes of a batch that its CRC does not cover, except the length, which is checked."""


def written(*, is_flushed: bool) -> LogFolder:
    """Write three segments, at 0, 4 and 7. Without a flush the last two batches are not durable."""
    folder = LogFolder(SimulatedDisk())
    log = folder.start()
    fill(log, 1, record_count=2, timestamp_ms=500, producer_id=7, base_sequence=0)
    data = batch(1, 900, producer_id=8, base_sequence=0, is_transactional=True)
    log.append_as_leader(data, 1, NOW_MS)
    log.append_as_follower(stamped(marker(ControlType.ABORT, 8), 3, 1), NOW_MS)
    for number, epoch in enumerate((1, 2, 2, 2, 3)):
        fill(log, 1, leader_epoch=epoch, timestamp_ms=600 + number)
    folder.flush()
    fill(log, 2, leader_epoch=3, timestamp_ms=700)
    if is_flushed:
        folder.flush()
    assert [segment.base_offset for segment in log.segments] == [0, 4, 7, 10]
    return folder


UNTOUCHED = contents(written(is_flushed=True).log)
BASES = [int.from_bytes(raw[:8], "big") for raw in UNTOUCHED]


def flipped(folder: LogFolder, path: str, *, is_clean: bool) -> Iterator[tuple[int, int]]:
    """Flip each bit of a file, one at a time, always in the original file."""
    if is_clean:
        folder.stop()
    folder.disk.kill()
    names = {p: bytes(folder.disk.map_file(p)) for p in files(folder)}
    for byte in range(len(names[path])):
        for bit in range(8):
            restore(folder, names)
            folder.disk.flip_bit(path, byte, bit)
            yield byte, bit


def files(folder: LogFolder) -> list[str]:
    disk = folder.disk
    found = [f"{FOLDER}/{name}" for name in disk.list_directory(FOLDER) if name != "events-0"]
    return found + [f"{DIRECTORY}/{name}" for name in disk.list_directory(DIRECTORY)]


def restore(folder: LogFolder, names: dict[str, bytes]) -> None:
    folder.disk.kill()
    for path in files(folder):
        if path not in names:
            folder.disk.remove(path)
    for path, content in names.items():
        file = folder.disk.create_file(path)
        file.truncate(0)
        file.write_at(0, content)
        file.sync()


def reopened(folder: LogFolder) -> LogFolder:
    again = LogFolder(folder.disk)
    again.start()
    return again


def name(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.{suffix}"


def readable(log: PartitionLog) -> dict[int, bytes]:
    """Read each batch by its first offset; a failing read must report a storage error."""
    found = {}
    for offset in BASES:
        code = refusal(log.read, offset, log.end_offset, 1)
        assert code in {None, ErrorCode.KAFKA_STORAGE_ERROR}
        if code is None:
            found[offset] = log.read(offset, log.end_offset, 1).read()
    return found


def batch_at_byte(base_offset: int, byte: int) -> tuple[int, int]:
    """Return the number of the batch at a byte of a segment, and the byte's position in it."""
    number = BASES.index(base_offset)
    while byte >= len(UNTOUCHED[number]):
        byte -= len(UNTOUCHED[number])
        number += 1
    return number, byte


class TestBatches:
    def test_above_the_recovery_point_the_log_is_cut_there(self) -> None:
        folder = written(is_flushed=False)
        for byte, _ in flipped(folder, name(7, "log"), is_clean=False):
            number, at = batch_at_byte(7, byte)
            if BASES[number] < 9:  # these batches were durable
                continue
            found = contents(reopened(folder).log)
            if at in UNPROTECTED:
                assert found[:number] == UNTOUCHED[:number]
                assert [raw[16:] for raw in found] == [r[16:] for r in UNTOUCHED[: len(found)]]
            else:
                assert found == UNTOUCHED[:number]

    def test_below_the_recovery_point_only_that_batch_is_lost(self) -> None:
        folder = written(is_flushed=True)
        for byte, _ in flipped(folder, name(10, "log"), is_clean=False):
            _, at = batch_at_byte(10, byte)
            again = reopened(folder)
            if at in UNPROTECTED:
                continue
            assert again.log.end_offset == 11
            expected = {o: raw for o, raw in zip(BASES, UNTOUCHED, strict=True) if o != 10}
            assert readable(again.log) == expected
            assert [d[2:4] for d in again.findings.damage] == [(10, 11)]

    def test_in_the_middle_of_a_durable_segment_what_follows_stays(self) -> None:
        folder = written(is_flushed=False)
        for byte, _ in flipped(folder, name(7, "log"), is_clean=False):
            number, at = batch_at_byte(7, byte)
            if BASES[number] >= 9 or at in range(12, 16):
                continue
            again = reopened(folder)
            found = readable(again.log)
            lost = {BASES[number]} if at not in range(8, 12) else {*range(BASES[number], 10)}
            for offset, raw in zip(BASES, UNTOUCHED, strict=True):
                assert found.get(offset) == raw or offset in lost
            assert BASES[number] not in found
            assert again.log.end_offset == 11

    def test_after_a_clean_stop_nothing_is_read_but_no_other_batch_is_lost(self) -> None:
        folder = written(is_flushed=True)
        for byte, _ in flipped(folder, name(4, "log"), is_clean=True):
            number, at = batch_at_byte(4, byte)
            if at in UNPROTECTED:
                continue
            found = readable(reopened(folder).log)
            for offset, raw in zip(BASES, UNTOUCHED, strict=True):
                is_elsewhere = not 4 <= offset < 7
                if is_elsewhere or (at >= HEADER_BYTES and offset != BASES[number]):
                    assert found[offset] == raw
                assert found.get(offset) in {None, raw} or not is_sound(found[offset])

    def test_in_the_segment_that_is_written_appending_goes_on(self) -> None:
        folder = written(is_flushed=True)
        for byte, _ in flipped(folder, name(10, "log"), is_clean=True):
            if byte in range(12, 16):  # the epoch of the only batch
                continue
            log = reopened(folder).log
            assert log.end_offset == 11
            found = readable(log).get(10)
            assert found is None or not is_sound(found)
            assert [one.base_offset for one in fill(log, 2)] == [11, 12]


class TestIndexes:
    @pytest.mark.parametrize("is_clean", [False, True])
    @pytest.mark.parametrize("base_offset", [0, 10])
    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    def test_offsets_and_timestamps_are_found_as_before(
        self, suffix: str, base_offset: int, *, is_clean: bool
    ) -> None:
        folder = written(is_flushed=True)
        for _ in flipped(folder, name(base_offset, suffix), is_clean=is_clean):
            log = reopened(folder).log
            check_search(log)
            greatest = [segment.greatest_timestamp.timestamp_ms for segment in log.segments]
            assert greatest == [NOW_MS, 602, 700, 700]
            fill(log, 2, timestamp_ms=800)
            check_search(log)

    @pytest.mark.parametrize("is_clean", [False, True])
    def test_an_aborted_transaction_that_cannot_be_is_looked_up_in_the_log(
        self, *, is_clean: bool
    ) -> None:
        folder = written(is_flushed=True)
        for byte, bit in flipped(folder, name(0, "txnindex"), is_clean=is_clean):
            again = reopened(folder)
            found = again.log.aborted_transactions(0, 11)
            assert contents(again.log) == UNTOUCHED
            is_sign = byte in {10, 18} and bit == 7
            if byte < 2 or is_sign:
                assert [one[:3] for one in found] == [(8, 2, 3)]


class TestWhatIsKnown:
    @pytest.mark.parametrize("is_clean", [False, True])
    def test_a_damaged_snapshot_is_done_without(self, *, is_clean: bool) -> None:
        folder = written(is_flushed=True)
        before = folder.log.producers.producers()
        newest = folder.log.producers.snapshots.offsets()[-1]
        for _ in flipped(folder, name(newest, "snapshot"), is_clean=is_clean):
            again = reopened(folder)
            assert again.log.producers.producers() == before
            check_derived(again.log, UNTOUCHED)

    @pytest.mark.parametrize("is_clean", [False, True])
    def test_damaged_epochs_are_made_anew_from_the_batches(self, *, is_clean: bool) -> None:
        folder = written(is_flushed=True)
        entries = folder.log.epochs.entries
        path = f"{DIRECTORY}/{LEADER_EPOCH_FILE}"
        content = bytes(folder.disk.map_file(path))
        for byte, bit in flipped(folder, path, is_clean=is_clean):
            again = reopened(folder)
            assert contents(again.log) == UNTOUCHED
            if not is_digit(content, byte, bit):
                assert again.log.epochs.entries == entries

    @pytest.mark.parametrize("checkpoint", [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE])
    def test_a_damaged_checkpoint_costs_time_and_no_data(self, checkpoint: str) -> None:
        folder = written(is_flushed=True)
        folder.delete_records(0)
        path = f"{FOLDER}/{checkpoint}"
        content = bytes(folder.disk.map_file(path))
        before = knowledge(folder.log)
        for byte, bit in flipped(folder, path, is_clean=False):
            if not is_digit(content, byte, bit):
                assert knowledge(reopened(folder).log) == before

    def test_a_damaged_mark_of_a_clean_stop_is_no_mark(self) -> None:
        folder = written(is_flushed=True)
        before = knowledge(folder.log)
        for _ in flipped(folder, f"{FOLDER}/{CLEAN_SHUTDOWN_FILE}", is_clean=True):
            again = reopened(folder)
            assert contents(again.log) == UNTOUCHED
            assert knowledge(again.log) == before

    def test_damage_whose_note_is_damaged_is_found_again(self) -> None:
        folder = written(is_flushed=True)
        folder.disk.kill()
        folder.disk.flip_bit(name(10, "log"), 70, 0)
        once = reopened(folder)
        assert [d[2:4] for d in once.findings.damage] == [(10, 11)]
        once.stop()
        for _ in flipped(once, name(10, "damage"), is_clean=False):
            again = reopened(once)
            assert again.was_clean
            assert [d[2:4] for d in again.findings.damage] == [(10, 11)]
            assert 10 not in readable(again.log)
            again.disk.kill()
            assert [d[2:4] for d in reopened(once).findings.damage] == [(10, 11)]


def is_sound(data: bytes) -> bool:
    """Return whether a consumer, which gets the bytes as they are on disk, finds them valid."""
    try:
        return RecordBatch(memoryview(data)).has_valid_crc()
    except ProtocolError:
        return False


def is_digit(content: bytes, byte: int, bit: int) -> bool:
    """Return whether the flip turns a digit into another digit, which is undetectable."""
    return content[byte : byte + 1].isdigit() and bytes([content[byte] ^ (1 << bit)]).isdigit()
