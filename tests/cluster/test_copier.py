"""Copiers and brokers die under a consume-transform-produce copy: every record is copied once."""

import pytest

from ottla.testing.cluster import Cluster
from tests.cluster.copying import assert_same, copied
from tests.cluster.watching import Watcher

RECORDS = 10_000
FEW_RECORDS = 1_000


def test_librdkafka_copies_every_record_once_under_kills(
    cluster: Cluster, watcher: Watcher
) -> None:
    with copied(watcher, cluster, "Librdkafka", RECORDS) as copying:
        for happens in (
            copying.kill_copier,
            copying.wake_zombie,
            copying.kill_transaction_coordinator,
            copying.kill_leader,
        ):
            if copying.goes_on():
                happens()
    wanted = ("copier killed", "zombie fenced", "transaction coordinator killed")
    assert all(copying.happened[name] for name in wanted), copying.happened
    assert not copying.happened["copier stuck"]


def test_ottla_copies_every_record_once_under_kills(cluster: Cluster, watcher: Watcher) -> None:
    with copied(watcher, cluster, "Ottla", RECORDS // 2) as copying:
        for happens in (
            copying.kill_copier,
            copying.wake_zombie,
            copying.kill_transaction_coordinator,
            copying.kill_group_coordinator,
            copying.kill_leader,
        ):
            if copying.goes_on():
                happens()
    assert copying.happened["copier killed"]
    assert copying.happened["zombie fenced"]
    assert not copying.happened["copier stuck"]
    assert not copying.happened["copier ended by itself"]


@pytest.mark.exhaustive
def test_aiokafka_copies_every_record_once_under_kills(cluster: Cluster, watcher: Watcher) -> None:
    with copied(watcher, cluster, "AioKafka", FEW_RECORDS) as copying:
        for happens in (copying.kill_copier, copying.wake_zombie, copying.kill_leader):
            if copying.goes_on():
                happens()
    assert copying.happened["copier killed"]
    assert copying.happened["zombie fenced"]


@pytest.mark.exhaustive
def test_all_is_copied_once_by_kafka_python_when_copiers_die(
    cluster: Cluster, watcher: Watcher
) -> None:
    """When the coordinator of a group dies, kafka-python 3.0 may wait for its response forever."""
    with copied(watcher, cluster, "KafkaPython", FEW_RECORDS) as copying:
        for happens in (copying.kill_copier, copying.wake_zombie):
            assert copying.goes_on()
            happens()


@pytest.mark.parametrize("found", [[b"1"], [b"1", b"1", b"2"], [b"2", b"1"], [b"1", b"2", b"3"]])
def test_what_is_missing_or_doubled_or_out_of_order_is_seen(found: list[bytes]) -> None:
    with pytest.raises(AssertionError, match="partition 1 differs"):
        assert_same([[], found], [[], [b"1", b"2"]])
