"""A partition on its leader."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.topic_config import CleanupPolicy
from ottla.replication.partition import HIGH_WATERMARK, Partition
from ottla.storage.log.admission import Origin
from ottla.storage.log.leader_epochs import UNKNOWN_END
from ottla.wire.records.control import ControlType
from tests.log_building import NOW_MS, PARTITION, batch, fill, marker, new_log, refusal


def led(leader_epoch: int = 0, **settings: object) -> Partition:
    partition = Partition(PARTITION, bytes(16), new_log(**settings), lambda _: None)
    partition.lead(leader_epoch)
    return partition


def test_the_leaders_epoch_has_begun_before_anything_is_written() -> None:
    partition = led(leader_epoch=5)
    assert partition.end_of_epoch(5) == (5, 0)
    assert partition.end_of_epoch(3) == (3, 0)
    assert partition.end_of_epoch(6) == partition.end_of_epoch(-1) == UNKNOWN_END


def test_epochs_end_where_the_next_epoch_begins() -> None:
    partition = led(leader_epoch=2)
    fill(partition.log, 2, leader_epoch=2)
    partition.lead(6)
    assert partition.end_of_epoch(2) == (2, 2)
    assert partition.end_of_epoch(4) == (2, 2)
    assert partition.end_of_epoch(6) == (6, 2)
    fill(partition.log, 3, leader_epoch=6)
    assert partition.end_of_epoch(2) == partition.end_of_epoch(5) == (2, 2)
    assert partition.end_of_epoch(6) == (6, 5)
    assert partition.end_of_epoch(1) == (1, 0)
    assert partition.end_of_epoch(7) == UNKNOWN_END


def test_a_reader_whose_log_went_another_way_is_shown_nothing() -> None:
    partition = led(leader_epoch=2)
    fill(partition.log, 2, leader_epoch=2)
    partition.lead(6)
    fill(partition.log, 2, leader_epoch=6)
    assert partition.read(2, 1000, last_fetched_epoch=2).diverging is None
    for offset, epoch in ((3, 2), (3, 4), (9, 6)):
        found = partition.read(offset, 1000, last_fetched_epoch=epoch)
        assert found.diverging == partition.end_of_epoch(epoch)
        assert len(found.records) == 0
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        partition.read(2, 1000, last_fetched_epoch=7)


def test_aborted_transactions_are_returned_only_on_request() -> None:
    partition = led()
    partition.append_as_leader(
        batch(2, producer_id=7, base_sequence=0, is_transactional=True), NOW_MS
    )
    assert len(partition.read(0, 1000, is_committed_only=True).records) == 0
    partition.log.append_as_leader(
        marker(ControlType.ABORT, 7), 0, NOW_MS, origin=Origin.COORDINATOR
    )
    partition.lead(0)
    assert partition.read(0, 1000).aborted is None
    assert partition.read(0, 1000, is_committed_only=True).aborted == [(7, 0)]
    assert partition.read(3, 1000, is_committed_only=True).aborted == []


def test_records_are_deleted_up_to_the_high_watermark_and_no_further() -> None:
    partition = led()
    fill(partition.log, 5)
    assert partition.delete_records(3) == 3
    assert partition.delete_records(1) == 3
    assert refusal(partition.delete_records, 6) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(partition.delete_records, -2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(HIGH_WATERMARK) == 5


def test_a_topic_that_is_only_compacted_keeps_its_records() -> None:
    partition = led(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    assert refusal(partition.delete_records, 0) is ErrorCode.POLICY_VIOLATION
    partition = led(cleanup_policy=frozenset(CleanupPolicy))
    assert partition.delete_records(0) == 0


def test_a_reader_is_behind_as_long_as_it_is_not_in_the_last_segment() -> None:
    partition = led()
    fill(partition.log, 10)
    active = partition.log.segments.active.base_offset
    assert active > 0
    assert [partition.is_behind(offset) for offset in (0, active - 1, active)] == [
        True,
        True,
        False,
    ]
