"""Partitions in the admin client: their offsets, their leaders, their log dirs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, ElectionType, ErrorCode, ItemsFailedError, OffsetSpec, TopicPartition
from ottla.clients.admin.admin_offsets import HIGH_WATERMARK, NO_OFFSET
from ottla.testing import Broker
from tests.clients.admin_stories import eventually, refused, write

RECORDS = 10


@pytest.fixture
def admin(story_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=story_servers) as admin:
        yield admin


@pytest.fixture
def written(admin: Admin, story_servers: str, topic: str) -> TopicPartition:
    admin.topics.create(topic, partitions=2)
    name = TopicPartition(topic, 0)
    write(story_servers, name, RECORDS, first_ms=1_000)
    return name


@pytest.mark.parametrize(
    ("looked_for", "offset", "timestamp_ms"),
    [
        (OffsetSpec.EARLIEST, 0, -1),
        (OffsetSpec.LATEST, RECORDS, -1),
        (OffsetSpec.MAX_TIMESTAMP, RECORDS - 1, 1_000 + RECORDS - 1),
        (OffsetSpec.EARLIEST_LOCAL, 0, -1),
        (OffsetSpec.LATEST_TIERED, NO_OFFSET, -1),
        (OffsetSpec.EARLIEST_PENDING_UPLOAD, NO_OFFSET, -1),
        (1_004, 4, 1_004),
        (5, 0, 1_000),
        (999_999, NO_OFFSET, -1),
    ],
)
def test_offsets_are_found(
    admin: Admin, written: TopicPartition, looked_for: int, offset: int, timestamp_ms: int
) -> None:
    for is_committed_only in (False, True):
        (found,) = admin.offsets.find(
            {written: looked_for}, is_committed_only=is_committed_only
        ).values()
        assert (found.offset, found.timestamp_ms) == (offset, timestamp_ms)


def test_what_is_missing_does_not_hide_other_offsets(admin: Admin, written: TopicPartition) -> None:
    missing, too_many = TopicPartition("missing", 0), TopicPartition(written.topic, 9)
    wanted = dict.fromkeys((missing, written, too_many), OffsetSpec.LATEST)
    with pytest.raises(ItemsFailedError) as failure:
        admin.offsets.find(wanted)
    assert failure.value.done[written].offset == RECORDS
    assert {error.code for error in failure.value.failed.values()} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert "there is no topic 'missing'" in str(failure.value.failed[missing])
    assert "2 partitions" in str(failure.value.failed[too_many])


def test_records_are_deleted_before_an_offset(admin: Admin, written: TopicPartition) -> None:
    empty = TopicPartition(written.topic, 1)
    assert admin.offsets.delete_before({written: 4, empty: HIGH_WATERMARK}) == {
        written: 4,
        empty: 0,
    }
    assert admin.offsets.ends([written]) == {written: (4, RECORDS)}
    with pytest.raises(ItemsFailedError) as failure:
        admin.offsets.delete_before({written: RECORDS + 1, empty: 0})
    assert failure.value.done == {empty: 0}
    assert failure.value.failed[written].code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert admin.offsets.delete_before({written: HIGH_WATERMARK}) == {written: RECORDS}


def test_partitions_are_described_page_by_page(topic: str) -> None:
    with (
        Broker({"max.request.partition.size.limit": "3"}) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.topics.create([f"{topic}-a", f"{topic}-b"], partitions=4)
        found = admin.partitions.describe([f"{topic}-b", f"{topic}-a"])
        assert [str(row.name) for row in found] == [
            f"{topic}-{letter}-{number}" for letter in "ab" for number in range(4)
        ]
        assert all(row.has_leader and row.in_sync_replicas == row.replicas for row in found)
        assert found == [row for row in admin.partitions.describe() if row in found]
        with pytest.raises(ItemsFailedError, match="there is no topic 'missing'") as failure:
            admin.partitions.describe(["missing", f"{topic}-a"])
        assert len(failure.value.done[f"{topic}-a"]) == 4


def test_an_election_that_is_not_needed_is_said_to_be_none(
    admin: Admin, written: TopicPartition
) -> None:
    missing = TopicPartition("missing", 0)
    with pytest.raises(ItemsFailedError) as failure:
        admin.partitions.elect(ElectionType.PREFERRED, [written, missing])
    assert {name: error.code for name, error in failure.value.failed.items()} == {
        written: ErrorCode.ELECTION_NOT_NEEDED,
        missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert admin.partitions.elect(ElectionType.PREFERRED, None) == []


def test_a_partition_moves_only_where_there_are_brokers(
    admin: Admin, written: TopicPartition
) -> None:
    (broker,) = admin.cluster.describe().brokers
    other = TopicPartition(written.topic, 1)
    admin.partitions.reassign({written: [broker.broker_id]})
    with pytest.raises(ItemsFailedError) as failure:
        admin.partitions.reassign({written: [broker.broker_id], other: [4711]})
    assert list(failure.value.done) == [written]
    assert failure.value.failed[other].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    code, _ = refused(lambda: admin.partitions.reassign({written: None}))
    assert code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert admin.partitions.reassignments() == {}
    assert admin.partitions.reassignments([written]) == {}


def test_folders_are_described_and_copies_moved_between_them(topic: str, tmp_path: Path) -> None:
    folders = [str(tmp_path / letter) for letter in "ab"]
    name, missing = TopicPartition(topic, 0), TopicPartition(topic, 7)
    with (
        Broker({"log.dirs": ",".join(folders)}) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.topics.create(topic)
        write(broker.bootstrap_servers, name, RECORDS)
        ((broker_id, found),) = admin.cluster.log_dirs().items()
        assert [row.path for row in found] == folders
        assert all(row.usable_bytes > 0 and row.error is ErrorCode.NONE for row in found)
        (elsewhere,) = [row.path for row in found if name not in row.size_by_partition]
        with pytest.raises(ItemsFailedError) as failure:
            admin.partitions.move_to_log_dirs(broker_id, {missing: elsewhere, name: elsewhere})
        assert list(failure.value.done) == [name]
        assert failure.value.failed[missing].code is ErrorCode.REPLICA_NOT_AVAILABLE

        def is_moved() -> bool:
            (there,) = [
                row for row in admin.cluster.log_dirs(broker_id)[broker_id] if row.path == elsewhere
            ]
            return name in there.size_by_partition and name not in there.lag_by_future

        eventually(is_moved)
        code, words = refused(
            lambda: admin.partitions.move_to_log_dirs(broker_id, {name: "/nowhere"})
        )
        assert code is ErrorCode.LOG_DIR_NOT_FOUND
        assert "/nowhere" in words
        code, words = refused(lambda: admin.cluster.log_dirs([4711]))
        assert "there is no broker 4711" in words
