"""The metadata log alone."""

import errno
from dataclasses import replace

import pytest

from ottla.broker.metadata_store.embedded import metadata_log
from ottla.broker.metadata_store.embedded.metadata_log import DamagedMetadataError, MetadataLog
from ottla.metadata.records import MetadataRecord, ProducerIdsRecord, TopicRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.log.admission import Origin
from ottla.wire.records.builder import BatchBuilder
from tests.metadata_building import uuid_of

NOW_MS = 1000
DIRECTORY = "/data/__cluster_metadata-0"
FIRST_SEGMENT = f"{DIRECTORY}/{0:020d}.log"
CHECKPOINT = f"{DIRECTORY}/recovery-point-offset-checkpoint"


def opened(disk: SimulatedDisk) -> MetadataLog:
    disk.make_directory("/data")
    disk.sync_directory("/")
    return MetadataLog(disk, "/data", NOW_MS)


def ids(*numbers: int) -> list[MetadataRecord]:
    return [ProducerIdsRecord(next_producer_id=number) for number in numbers]


def size_of(disk: SimulatedDisk, path: str) -> int:
    return disk.open_file(path).size_bytes()


def test_appended_records_are_read_again() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    log.append(ids(1, 2), NOW_MS)
    log.append([TopicRecord(name="t", topic_id=uuid_of(1))], NOW_MS)
    log.flush(NOW_MS)
    assert log.end_offset == 3
    disk.crash("lose_all")
    again = opened(disk)
    assert again.notes == []
    assert list(again.read()) == [*ids(1, 2), TopicRecord(name="t", topic_id=uuid_of(1))]


def test_a_long_log_is_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "_READ_BYTES", 200)
    monkeypatch.setattr(metadata_log, "_CONFIG", replace(metadata_log._CONFIG, segment_bytes=500))
    disk = SimulatedDisk()
    log = opened(disk)
    for number in range(30):
        log.append(ids(number), NOW_MS)
    log.close(NOW_MS)
    assert len([name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]) > 3
    disk.kill()
    assert list(opened(disk).read()) == ids(*range(30))


def test_a_decision_that_is_too_large_is_refused_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_log, "DECISION_BYTES_MAX", 1000)
    disk = SimulatedDisk()
    log = opened(disk)
    with pytest.raises(ApiError, match="more than 1000 bytes") as refused:
        log.append(ids(*range(100)), NOW_MS)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert (log.end_offset, size_of(disk, FIRST_SEGMENT)) == (0, 0)


def test_a_decision_just_below_the_limit_is_taken() -> None:
    log = opened(SimulatedDisk())
    many = [TopicRecord(name="x" * 240, topic_id=uuid_of(n)) for n in range(1, 29_000)]
    log.append(many, NOW_MS)
    assert log.end_offset == len(many)
    with pytest.raises(ApiError):
        log.append(many + many[:4000], NOW_MS)


def test_a_full_disk_refuses_and_leaves_the_log_as_it_was() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    log.append(ids(1), NOW_MS)
    size_bytes = size_of(disk, FIRST_SEGMENT)
    disk.faults.fail_on(OperationKind.WRITE, FIRST_SEGMENT, errno.ENOSPC)
    with pytest.raises(ApiError) as refused:
        log.append(ids(2), NOW_MS)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.faults.heal()
    assert (log.is_offline, size_of(disk, FIRST_SEGMENT)) == (False, size_bytes)
    log.append(ids(3), NOW_MS)
    assert list(log.read()) == ids(1, 3)


# -- checkpoints ----------------------------------------------------------------------------------


def test_a_flush_is_written_down_once() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    log.append(ids(1, 2), NOW_MS)
    log.flush(NOW_MS)
    assert bytes(disk.map_file(CHECKPOINT)) == b"0\n1\n__cluster_metadata 0 2\n"
    done = len(disk.faults.operations)
    log.flush(NOW_MS)
    assert len(disk.faults.operations) == done


def test_a_checkpoint_is_due_when_much_has_become_durable() -> None:
    log = opened(SimulatedDisk())
    log.append(ids(*range(metadata_log.RECORDS_PER_CHECKPOINT - 1)), NOW_MS)
    due = []
    for _ in range(2):
        _sync(log)
        due.append(log.needs_checkpoint)
        log.append(ids(0), NOW_MS)
        due.append(log.needs_checkpoint)
    log.write_checkpoint()
    due.append(log.needs_checkpoint)
    assert due == [False, False, True, True, False], "and only durable records count"


def _sync(log: MetadataLog) -> None:
    flush = log.begin_flush()
    flush.run()
    log.end_flush(flush, NOW_MS)


def test_without_a_readable_checkpoint_the_log_is_recovered_from_its_start() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    log.append(ids(1, 2), NOW_MS)
    log.close(NOW_MS)
    disk.kill()
    disk.corrupt(CHECKPOINT, 0, b"9")
    again = opened(disk)
    assert list(again.read()) == ids(1, 2)
    assert any("recovered from its start" in note for note in again.notes)


# -- damage ---------------------------------------------------------------------------------------


def closed_log(disk: SimulatedDisk) -> None:
    log = opened(disk)
    for number in range(4):
        log.append(ids(number), NOW_MS)
    log.close(NOW_MS)
    disk.kill()


def test_damage_in_acknowledged_decisions_prevents_a_start() -> None:
    disk = SimulatedDisk()
    closed_log(disk)
    batch_bytes = size_of(disk, FIRST_SEGMENT) // 4
    disk.flip_bit(FIRST_SEGMENT, batch_bytes + 70, 1)
    for _ in range(2):  # a second attempt fails too
        with pytest.raises(DamagedMetadataError, match="damaged from offset 1 to 2"):
            opened(disk)
        disk.kill()


def test_a_log_that_has_lost_its_end_keeps_the_broker_from_starting() -> None:
    disk = SimulatedDisk()
    closed_log(disk)
    file = disk.open_file(FIRST_SEGMENT)
    file.truncate(file.size_bytes() // 2)
    for _ in range(2):
        with pytest.raises(DamagedMetadataError, match="offset 2, and had been durable to 4"):
            opened(disk)
        disk.kill()


def test_a_log_that_has_lost_its_file_keeps_the_broker_from_starting() -> None:
    disk = SimulatedDisk()
    closed_log(disk)
    disk.remove(FIRST_SEGMENT)
    with pytest.raises(DamagedMetadataError, match="ends at offset 0, and had been durable to 4"):
        opened(disk)


def test_a_log_that_has_lost_its_beginning_keeps_the_broker_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_log, "_CONFIG", replace(metadata_log._CONFIG, segment_bytes=200))
    disk = SimulatedDisk()
    closed_log(disk)
    disk.remove(FIRST_SEGMENT)
    with pytest.raises(DamagedMetadataError, match=r"begins at offset \d, and the records before"):
        opened(disk)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"\x00\x02\x00", "batch at offset 1 cannot be read: frame version 0, known is 1"),
        (None, "batch at offset 1 cannot be read: a metadata record without a value"),
    ],
)
def test_a_record_that_is_not_known_keeps_the_broker_from_starting(
    value: bytes | None, complaint: str
) -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    log.append(ids(1), NOW_MS)
    builder = BatchBuilder()
    builder.append(NOW_MS, None, value)
    raw = memoryview(builder.build())
    log._log.append_as_leader(raw, 0, NOW_MS, origin=Origin.COORDINATOR)
    with pytest.raises(DamagedMetadataError, match=complaint):
        list(log.read())
