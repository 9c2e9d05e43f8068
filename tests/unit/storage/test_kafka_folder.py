"""Ottla opens, repairs and extends a log dir that Apache Kafka 4.3.1 has written.

The log dir, and the output of Kafka's own readers, are in tests/data/kafka-folder.
"""

import json
import shutil
from pathlib import Path

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, uuid_to_text
from ottla.runtime.disk import KernelDisk
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    RECOVERY_POINT_FILE,
    read_meta_properties,
    read_offsets,
    read_topic_id,
)
from ottla.storage.indexes.time_index import TimestampOffset
from ottla.storage.log.admission import Origin
from ottla.storage.log.log import PartitionLog
from ottla.wire.records.builder import build_batch
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.record import Record
from tests.interop.dump_rows import aborted_row, batch_rows, producer_row
from tests.interop.kafka_story import CONFIG
from tests.interop.ottla_folder import NOW_MS, OttlaFolder, committed, uncommitted
from tests.interop.seen import SeenRecord, seen_from_json

DATA = Path(__file__).parents[2] / "data" / "kafka-folder"
EXPECTED = json.loads((DATA / "expected.json").read_text())
LOG_FILES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
EPOCH = 3
each_partition = pytest.mark.parametrize("name", EXPECTED)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "logs", tmp_path / "logs"))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OttlaFolder:
    """Open the log dir, for tests that do not change it."""
    directory = tmp_path_factory.mktemp("opened") / "logs"
    return OttlaFolder(Path(shutil.copytree(DATA / "logs", directory)), CONFIG)


def log_of(folder: OttlaFolder, name: str) -> PartitionLog:
    topic, _, index = name.rpartition("-")
    return folder.log(topic, int(index))


def log_in(directory: Path, name: str) -> PartitionLog:
    return log_of(OttlaFolder(directory, CONFIG), name)


def expected_records(name: str) -> list[SeenRecord]:
    return [seen_from_json(row) for row in EXPECTED[name]["records"]]


def contents(directory: Path) -> dict[str, bytes]:
    """Read all files of all logs but the leader epoch checkpoints, which lack the current epoch."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.glob("*/*")
        if path.suffix in LOG_FILES
    }


# -- contents -------------------------------------------------------------------------------------


def test_the_folder_says_that_kafka_stopped_properly(directory: Path) -> None:
    points = read_offsets(KernelDisk(), str(directory / RECOVERY_POINT_FILE))
    folder = OttlaFolder(directory, CONFIG)

    assert folder.was_clean
    assert folder.notes == []
    assert folder.ends == points
    assert len(points) == 7
    assert points[TopicPartition("plain", 0)] == 56


def test_the_folder_tells_whose_it_is(directory: Path) -> None:
    disk = KernelDisk()
    properties = read_meta_properties(disk, str(directory / "meta.properties"))
    ids = [
        read_topic_id(disk, str(directory / name / "partition.metadata"))
        for name in ("plain-0", "plain-1", "stamped-0")
    ]

    assert properties is not None
    assert (properties.node_id, properties.cluster_id) == (1, "b3R0bGEtYW5kLWthZmthIQ")
    assert properties.directory_id is not None
    assert ids[0] is not None
    assert uuid_to_text(ids[0]) in (directory / "plain-0" / "partition.metadata").read_text()
    assert ids[0] == ids[1] != ids[2]


@each_partition
def test_every_record_is_what_a_consumer_of_kafka_saw(opened: OttlaFolder, name: str) -> None:
    log = log_of(opened, name)

    assert uncommitted(log) == expected_records(name)


@each_partition
def test_read_committed_readers_see_committed_records_only(opened: OttlaFolder, name: str) -> None:
    log = log_of(opened, name)

    assert [record.offset for record in committed(log)] == EXPECTED[name]["committed"]


@each_partition
def test_every_header_is_what_kafkas_dump_tool_says(opened: OttlaFolder, name: str) -> None:
    log = log_of(opened, name)

    assert batch_rows(log) == EXPECTED[name]["batches"]


@each_partition
def test_producers_and_aborted_transactions_are_what_kafkas_dump_tool_says(
    opened: OttlaFolder, name: str
) -> None:
    log = log_of(opened, name)
    aborted = log.aborted_transactions(0, log.end_offset)

    assert [producer_row(entry) for entry in log.producers.producers()] == (
        EXPECTED[name]["producers"]
    )
    assert [aborted_row(transaction) for transaction in aborted] == EXPECTED[name]["aborted"]


def test_each_leader_epoch_begins_where_kafka_led_again(opened: OttlaFolder) -> None:
    log = log_of(opened, "plain-0")

    assert log.epochs.entries == ((0, 0), (2, 40))


def test_records_are_found_by_their_time_in_kafkas_index(opened: OttlaFolder) -> None:
    log = log_of(opened, "plain-0")
    records = expected_records("plain-0")

    for time_ms in (0, *(record.timestamp_ms for record in records)):
        found = next(record for record in records if record.timestamp_ms >= time_ms)
        expected = TimestampOffset(found.timestamp_ms, found.offset)
        assert log.offset_for_timestamp(time_ms, log.end_offset) == expected


# -- the same files -------------------------------------------------------------------------------


def test_opening_and_closing_leaves_every_file_as_it_was(directory: Path) -> None:
    OttlaFolder(directory, CONFIG).close()

    assert contents(directory) == contents(DATA / "logs")


def test_recovery_makes_the_indexes_and_snapshots_that_kafka_had_made(directory: Path) -> None:
    for path in [
        path for suffix in LOG_FILES - {".log"} for path in directory.glob(f"*/*{suffix}")
    ]:
        path.unlink()
    for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE):
        (directory / name).unlink()
    OttlaFolder(directory, CONFIG).close()

    assert contents(directory) == contents(DATA / "logs")


def test_indexes_that_a_crash_of_kafka_left_padded_are_mended(directory: Path) -> None:
    for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE):
        (directory / name).unlink()
    for path in (directory / "plain-0").glob("*48.*index"):
        path.write_bytes(path.read_bytes().ljust(1200, b"\0"))
    folder = OttlaFolder(directory, CONFIG)
    seen = uncommitted(folder.log("plain"))
    folder.close()

    assert seen == expected_records("plain-0")
    assert contents(directory) == contents(DATA / "logs")


# -- continued writes -----------------------------------------------------------------------------


def append(log: PartitionLog, raw: bytearray, origin: Origin = Origin.CLIENT) -> int:
    return log.append_as_leader(memoryview(raw), EPOCH, NOW_MS, origin=origin).base_offset


def records(count: int) -> list[Record]:
    return [Record(n, NOW_MS + n, b"ours", b"%d" % n) for n in range(count)]


def test_what_is_appended_comes_after_what_kafka_wrote(directory: Path) -> None:
    folder = OttlaFolder(directory, CONFIG)
    log = folder.log("plain")
    ours = [append(log, build_batch(records(3))) for _ in range(20)]
    folder.close()
    again = log_in(directory, "plain-0")

    assert ours == list(range(56, 116, 3))
    assert uncommitted(again)[:56] == expected_records("plain-0")
    assert [record.value for record in uncommitted(again)[56:]] == ["0", "1", "2"] * 20
    assert again.epochs.entries == ((0, 0), (2, 40), (EPOCH, 56))
    assert len(again.segments) > 5


def test_a_producer_goes_on_with_the_sequence_it_had_at_kafka(directory: Path) -> None:
    log = log_in(directory, "transactions-0")

    def send(base_sequence: int) -> int:
        raw = build_batch(records(1), producer_id=0, producer_epoch=0, base_sequence=base_sequence)
        return append(log, raw)

    with pytest.raises(ApiError) as caught:
        send(7)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(5) == 15
    assert send(6) == 19


@pytest.mark.parametrize(
    ("kind", "more"), [(ControlType.COMMIT, [17, 18]), (ControlType.ABORT, [])]
)
def test_a_transaction_that_was_left_open_at_kafka_is_ended_here(
    directory: Path, kind: ControlType, more: list[int]
) -> None:
    folder = OttlaFolder(directory, CONFIG)
    log = folder.log("transactions")
    assert log.producers.first_unstable_offset == 17
    append(log, end_txn_marker(kind, 1, 1, 0, NOW_MS), Origin.COORDINATOR)
    folder.close()
    again = log_in(directory, "transactions-0")

    offsets = [record.offset for record in committed(again)]
    assert offsets == EXPECTED["transactions-0"]["committed"] + more
