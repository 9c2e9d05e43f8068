"""Markers for partitions led by this broker: appended at once, or by the path that can wait."""

from typing import NamedTuple

import pytest

from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.model.api_error import ApiError
from ottla.replication.in_sync import Assignment
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.wire.messages.write_txn_markers import WritableTxnMarker
from tests.log_building import NOW_MS, PARTITION, batch, new_log

PRODUCER = 7
HERE, THERE = 0, 1


class Leader(NamedTuple):
    partition: Partition
    writing: MarkerWriter


def leader(*replicas: int, is_sure: bool = True, **settings: object) -> Leader:
    """Lead a partition with these replicas and an open transaction."""
    partition = Partition(PARTITION, bytes(16), new_log(**settings), lambda _: None)
    partition.lead(0, Assignment(HERE, replicas, replicas, 0))
    opening = batch(2, producer_id=PRODUCER, base_sequence=0, is_transactional=True)
    partition.append_as_leader(opening, NOW_MS)
    partitions = HostedPartitions()
    partitions.add(partition)
    return Leader(partition, MarkerWriter(partitions, SystemClock(), lambda: is_sure, {}))


def commit(coordinator_epoch: int = 3) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=0,
        transaction_result=True,
        coordinator_epoch=coordinator_epoch,
    )


def test_what_has_no_other_replica_is_done_at_once() -> None:
    partition, writing = leader(HERE)
    assert partition.last_stable_offset == 0
    assert writing.append_if_safe_at_once(PARTITION, commit())
    assert partition.last_stable_offset == partition.log.end_offset == 3


@pytest.mark.parametrize("settings", [{"flush_messages": 1}, {"flush_ms": 0}])
def test_what_the_disk_has_to_have_is_not(settings: dict[str, int]) -> None:
    partition, writing = leader(HERE, **settings)
    partition.log.flush(NOW_MS)
    assert not writing.append_if_safe_at_once(PARTITION, commit())
    assert partition.log.end_offset == 2


def test_what_others_have_to_have_is_not() -> None:
    partition, writing = leader(HERE, THERE)
    assert not writing.append_if_safe_at_once(PARTITION, commit())
    assert partition.log.end_offset == 2
    assert writing.append(PARTITION, commit()).end_offset == 3


def test_what_is_not_led_here_for_sure_is_not() -> None:
    partition, writing = leader(HERE, is_sure=False)
    assert not writing.append_if_safe_at_once(PARTITION, commit())
    assert not writing.append_if_safe_at_once(PARTITION._replace(partition=1), commit())
    assert partition.log.end_offset == 2


def test_a_refusal_reaches_the_caller() -> None:
    partition, writing = leader(HERE)
    assert writing.append_if_safe_at_once(PARTITION, commit(coordinator_epoch=5))
    assert not writing.append_if_safe_at_once(PARTITION, commit(coordinator_epoch=4))
    with pytest.raises(ApiError, match="TRANSACTION_COORDINATOR_FENCED"):
        writing.append(PARTITION, commit(coordinator_epoch=4))
    assert partition.log.end_offset == 3
