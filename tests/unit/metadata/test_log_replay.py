"""The images of a replica of the metadata log."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.image import ClusterImage
from ottla.metadata.log_replay import ImageChange, MetadataLogReplay
from ottla.metadata.record_frames import batch_of
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    TopicRecord,
    UnknownRecord,
)
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.quorum_control import LeaderChangeMessage, control_batch
from tests.metadata_building import CLUSTER_ID, uuid_of

BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()
EMPTY = ClusterImage(CLUSTER_ID)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=uuid_of(number))


def replayed() -> MetadataLogReplay:
    return MetadataLogReplay(EMPTY)


def applied(log: MetadataLogReplay, *records: MetadataRecord) -> list[ImageChange]:
    """Apply records as one batch."""
    return log.apply(records, log.end_offset + len(records))


def as_batch(base_offset: int, *records: MetadataRecord) -> RecordBatch:
    raw = batch_of(records, 30, 1, base_offset=base_offset)
    return RecordBatch(memoryview(raw))


def control(base_offset: int) -> RecordBatch:
    records = [LeaderChangeMessage(version=1, leader_id=1)]
    raw = control_batch(records, base_offset=base_offset, leader_epoch=1, timestamp_ms=1)
    return RecordBatch(memoryview(raw))


def names(image: ClusterImage) -> set[str]:
    return set(image.topics)


def test_decisions_see_what_is_not_committed_and_others_do_not() -> None:
    log = replayed()
    applied(log, topic(1))
    assert (names(log.replayed_image), names(log.image)) == ({"t1"}, set())
    log.commit(1)
    assert (names(log.image), log.image.end_offset, log.committed_offset) == ({"t1"}, 1, 1)


def test_a_lost_office_takes_back_everything_that_is_not_committed() -> None:
    log = replayed()
    applied(log, topic(1))
    applied(log, topic(2), BEGIN)
    applied(log, topic(3))
    log.commit(1)
    log.go_back()
    assert (names(log.replayed_image), log.end_offset) == ({"t1"}, 1)
    assert log.transaction_offset is None
    applied(log, topic(4))
    log.commit(2)
    assert names(log.image) == {"t1", "t4"}


def test_a_high_watermark_inside_a_batch_commits_only_the_batches_before() -> None:
    log = replayed()
    applied(log, topic(1))
    applied(log, topic(2), topic(3))
    log.commit(2)
    assert (names(log.image), log.committed_offset) == ({"t1"}, 1)


def test_a_transaction_is_published_at_its_end_in_one_change() -> None:
    log = replayed()
    assert applied(log, topic(1), BEGIN, topic(2)) == [
        ImageChange(replay(EMPTY, [topic(1)], 1), (topic(1),))
    ]
    assert applied(log, topic(3)) == []
    log.commit(4)
    assert (names(log.image), names(log.replayed_image)) == ({"t1"}, {"t1", "t2", "t3"})
    assert log.transaction_offset == 1
    at_end, after = applied(log, END, topic(4))
    assert at_end.records == (topic(2), topic(3))
    assert (names(at_end.image), at_end.image.end_offset) == ({"t1", "t2", "t3"}, 5)
    assert (after.records, after.image.end_offset) == ((topic(4),), 6)
    log.commit(6)
    assert log.image == after.image


def test_an_aborted_transaction_leaves_nothing() -> None:
    log = replayed()
    applied(log, topic(1))
    applied(log, BEGIN, topic(2))
    (change,) = applied(log, ABORT)
    assert change == ImageChange(replace(replay(EMPTY, [topic(1)], 1), end_offset=4), ())
    assert names(log.replayed_image) == {"t1"}
    applied(log, topic(2))
    log.commit(5)
    assert names(log.image) == {"t1", "t2"}


def test_an_open_transaction_is_there_again_after_going_back_into_it() -> None:
    log = replayed()
    applied(log, BEGIN, topic(1))
    log.commit(2)
    applied(log, topic(2), END)
    log.go_back()
    assert (log.transaction_offset, names(log.replayed_image)) == (0, {"t1"})
    applied(log, ABORT)
    assert names(log.replayed_image) == set()


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([BEGIN, topic(1), BEGIN], "begins at offset 2 inside a transaction that began at 0"),
        ([topic(1), END], "no metadata transaction is open at offset 1"),
        ([ABORT], "no metadata transaction is open at offset 0"),
        ([topic(1), topic(1)], "exists already"),
    ],
)
def test_records_that_do_not_follow_change_nothing(
    records: list[MetadataRecord], complaint: str
) -> None:
    log = replayed()
    with pytest.raises(UnreplayableRecordError, match=complaint):
        applied(log, *records)
    assert (log.replayed_image, log.end_offset, log.transaction_offset) == (EMPTY, 0, None)


def test_idle_records_and_control_batches_only_move_the_end() -> None:
    log = replayed()
    assert applied(log, NoOpRecord()) == [ImageChange(replace(EMPTY, end_offset=1), ())]
    assert log.apply_batch(control(1)) == [ImageChange(replace(EMPTY, end_offset=2), ())]
    assert log.apply_batch(as_batch(2, NoOpRecord(), topic(1)))[0].records == (topic(1),)


def test_many_committed_batches_are_one_change() -> None:
    log = replayed()
    (change,) = log.catch_up([control(0), as_batch(1, topic(1)), as_batch(2, topic(2)), control(3)])
    assert change.records == (topic(1), topic(2))
    assert log.image == change.image
    assert (log.image.end_offset, log.committed_offset) == (4, 4)


def test_a_loaded_snapshot_removes_everything_that_it_lacks() -> None:
    log = replayed()
    setting = ConfigRecord(resource_type=4, resource_name="", name="a", value="1")
    applied(log, topic(1), topic(2), setting)
    log.commit(3)
    applied(log, topic(3))
    change = log.load([topic(2), topic(4)], 10)
    assert names(log.image) == names(log.replayed_image) == {"t2", "t4"}
    assert log.image.configs == {}
    assert replay(replay(EMPTY, [topic(1), topic(2), setting], 3), change.records, 10) == log.image
    assert log.end_offset == log.committed_offset == 10


def test_a_kind_of_a_later_release_is_an_error_only_at_levels_that_are_claimed() -> None:
    for level in (7, 30):
        log = replayed()
        applied(log, FeatureLevelRecord(name="metadata.version", feature_level=level))
        with pytest.raises(UnreplayableRecordError, match=f"kind 29 at metadata.version {level}"):
            applied(log, UnknownRecord(kind=29))
    log = replayed()
    applied(log, FeatureLevelRecord(name="metadata.version", feature_level=31))
    applied(log, UnknownRecord(kind=29), topic(1))
    assert names(log.replayed_image) == {"t1"}


# -- any log ---------------------------------------------------------------------------------------


def plainly(records: list[MetadataRecord]) -> tuple[list[MetadataRecord], list[MetadataRecord]]:
    """Return the records in force with an open transaction, and without it."""
    settled: list[MetadataRecord] = []
    pending: list[MetadataRecord] | None = None
    for record in records:
        if record is BEGIN:
            pending = []
        elif record is END:
            settled, pending = [*settled, *(pending or [])], None
        elif record is ABORT:
            pending = None
        else:
            (settled if pending is None else pending).append(record)
    return [*settled, *(pending or [])], settled


def legal(wanted: list[int]) -> list[MetadataRecord]:
    """Return a log: topics, and transactions that begin and end in their order."""
    records: list[MetadataRecord] = []
    is_open = False
    for number, choice in enumerate(wanted):
        if choice == 0 and not is_open:
            records.append(BEGIN)
            is_open = True
        elif choice in {1, 2} and is_open:
            records.append(END if choice == 1 else ABORT)
            is_open = False
        else:
            records.append(topic(number) if choice % 2 else NoOpRecord())
    return records


@given(st.lists(st.integers(0, 5), max_size=30), st.data())
def test_a_log_with_transactions_replays_as_kafka_defines(
    wanted: list[int], data: st.DataObject
) -> None:
    records = legal(wanted)
    log = replayed()
    published = EMPTY
    while log.end_offset < len(records):
        size = data.draw(st.integers(1, len(records) - log.end_offset))
        for change in applied(log, *records[log.end_offset : log.end_offset + size]):
            # The changes alone lead to the same images.
            published = replay(published, change.records, change.image.end_offset)
            assert published == change.image
        open_seen, settled = plainly(records[: log.end_offset])
        assert log.replayed_image == replay(EMPTY, open_seen, log.end_offset)
        log.commit(log.end_offset)
        assert log.image == published
        assert log.image == replay(EMPTY, settled, log.image.end_offset)
        if log.transaction_offset is None:
            assert log.image.end_offset == log.end_offset
