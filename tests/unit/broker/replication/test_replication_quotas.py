"""Replication throttles: rates over windows, and the replicas that they apply to."""

from dataclasses import replace

import pytest

from ottla.broker.replication.replication_quotas import Rate, Throttles
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.broker_config import BrokerConfig
from ottla.replication.in_sync import Assignment
from ottla.replication.partition import Partition
from tests.log_building import new_log
from tests.metadata_building import FixedClock

WINDOWS, WINDOW_MS = 10, 1_000
HERE, INSIDER, OUTSIDER = 1, 2, 3
ORDERS = TopicPartition("orders", 4)


def copied_in(seconds: int, rate_per_second: int, piece_bytes: int) -> int:
    """Copy a piece whenever the rate allows it; return the number of bytes."""
    rate = Rate(WINDOWS, WINDOW_MS)
    total = 0
    for now_ms in range(0, seconds * 1000, 10):
        if not rate.wait_ms(rate_per_second, now_ms):
            rate.add(piece_bytes, now_ms)
            total += piece_bytes
    return total


@pytest.mark.parametrize("piece_bytes", [100, 1_000, 7_000])
def test_the_copied_bytes_match_the_rate(piece_bytes: int) -> None:
    total = copied_in(100, 1_000, piece_bytes)
    assert total == pytest.approx(100 * 1_000, rel=0.15)


def test_who_waits_as_long_as_it_is_told_may_go_on() -> None:
    rate = Rate(WINDOWS, WINDOW_MS)
    rate.add(4_000, 0)
    wait_ms = rate.wait_ms(1_000, 0)
    assert wait_ms == 4_000
    assert rate.wait_ms(1_000, wait_ms - 1) > 0
    assert rate.wait_ms(1_000, wait_ms) == 0


def test_old_traffic_does_not_count() -> None:
    rate = Rate(WINDOWS, WINDOW_MS)
    rate.add(1_000_000, 0)
    assert rate.wait_ms(1, WINDOWS * WINDOW_MS - 1) > 0
    assert rate.wait_ms(1, WINDOWS * WINDOW_MS) == 0


def test_a_rate_of_nothing_lets_a_piece_pass_now_and_then() -> None:
    assert copied_in(100, 0, 5) == 100 // WINDOWS * 5


# -- throttled replicas ----------------------------------------------------------------------------


def throttles(**settings: int) -> Throttles:
    return Throttles(replace(BrokerConfig(node_id=HERE), **settings), FixedClock())


def partition(replicas: str) -> Partition:
    named = frozenset(replicas.split(",")) if replicas else frozenset()
    log = new_log(
        leader_replication_throttled_replicas=named, follower_replication_throttled_replicas=named
    )
    made = Partition(ORDERS, bytes(range(16)), log, lambda _: None)
    made.lead(0, Assignment(HERE, (HERE, INSIDER, OUTSIDER), (HERE, INSIDER), 0))
    return made


@pytest.mark.parametrize(
    ("replicas", "is_throttled"),
    [("*", True), ("4:1", True), ("0:1,4:1", True), ("4:2", False), ("1:4", False), ("", False)],
)
def test_topics_say_which_replicas_are_throttled(replicas: str, is_throttled: bool) -> None:
    both = throttles(leader_replication_throttled_rate=1, follower_replication_throttled_rate=1)
    assert both.leader.is_throttled(partition(replicas)) == is_throttled
    assert both.follower.is_throttled(partition(replicas)) == is_throttled


def test_a_leader_throttles_only_replicas_out_of_sync_and_only_above_the_rate() -> None:
    leader = throttles(leader_replication_throttled_rate=10).leader
    led = partition("*")
    assert not leader.is_held_back(led, OUTSIDER)
    leader.count_sent(led, 1_000)
    assert leader.is_held_back(led, OUTSIDER)
    assert not leader.is_held_back(led, INSIDER)
    assert not leader.is_held_back(partition(""), OUTSIDER)
    assert led.in_sync is not None
    led.in_sync.awaited.add(OUTSIDER)
    assert not leader.is_held_back(led, OUTSIDER), "the high watermark waits for it"


def test_a_follower_throttles_only_partitions_out_of_sync() -> None:
    follower = throttles(follower_replication_throttled_rate=10).follower
    follower.count(1_000)
    assert follower.is_held_back(partition("*"), is_caught_up=False)
    assert not follower.is_held_back(partition("*"), is_caught_up=True)


def test_a_removed_rate_throttles_no_replica() -> None:
    made = throttles(leader_replication_throttled_rate=10)
    led = partition("*")
    made.leader.count_sent(led, 1_000)
    assert made.leader.is_held_back(led, OUTSIDER)
    made.apply(BrokerConfig(node_id=HERE))
    assert not made.leader.is_held_back(led, OUTSIDER)
    assert not made.leader.is_throttled(led)
