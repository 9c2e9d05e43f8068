"""Heartbeats of brokers of a quorum's cluster, and silent brokers."""

import pytest

from ottla.metadata.records import NO_LEADER
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.metadata_building import run, uuid_of
from tests.unit.machines.controller.quorum_cluster import (
    SESSION_MS,
    QuorumCluster,
    quorum_cluster,
    registration,
)


def leaders(cluster: QuorumCluster) -> list[int]:
    return [one.leader for one in cluster.image.topics["a"].partitions]


def test_a_broker_serves_once_it_knows_its_registration_and_wants_to() -> None:
    cluster = quorum_cluster()
    epoch = cluster.register(registration(1))
    behind = cluster.beat(1, offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    unwilling = cluster.beat(1, want_fence=True)
    assert (unwilling.is_caught_up, unwilling.is_fenced) == (True, True)
    ready = cluster.beat(1, offset=epoch)
    assert (ready.is_caught_up, ready.is_fenced, ready.should_shut_down) == (True, False, False)
    assert cluster.broker(1).is_active
    assert not cluster.beat(1).is_fenced


def test_a_heartbeat_of_another_incarnation_is_refused() -> None:
    cluster = quorum_cluster(1)
    for broker_id, epoch in ((1, 99), (2, 1)):
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
        with pytest.raises(ApiError) as refusal:
            cluster.controller.heartbeat(request, cluster.now_ms)
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


# -- silence --------------------------------------------------------------------------------------


def test_a_silent_broker_is_fenced_and_does_not_lead() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    cluster.now_ms += SESSION_MS
    assert cluster.fence_expired() == []
    cluster.beat(2)
    assert cluster.next_expiry_ms() == cluster.now_ms + 1
    cluster.now_ms += 1
    assert cluster.fence_expired() == [1]
    assert (cluster.broker(1).is_fenced, leaders(cluster)) == (True, [2])
    assert cluster.next_expiry_ms() == cluster.now_ms + SESSION_MS


def test_silent_brokers_are_fenced_one_by_one_and_elected_by_none() -> None:
    cluster = quorum_cluster(1, 2, 3)
    cluster.topic(1, 2, 3)
    cluster.now_ms += 1
    cluster.beat(1)
    cluster.now_ms += SESSION_MS
    cluster.beat(3)
    decision = cluster.controller.fence_expired(cluster.now_ms)
    assert decision.response == 2  # the oldest: broker 1 was heard later
    cluster.now_ms += 1
    assert cluster.fence_expired() == [2, 1]
    assert leaders(cluster) == [3]


def test_no_silent_broker_is_elected_for_another() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    cluster.now_ms += SESSION_MS + 1
    first = cluster.controller.fence_expired(cluster.now_ms)
    run(cluster.controller, first)
    assert leaders(cluster) == [NO_LEADER]


def test_a_new_controller_gives_brokers_in_service_a_whole_session() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.now_ms += SESSION_MS + 1
    cluster.fail_over()
    assert cluster.fence_expired() == []
    cluster.now_ms += 1
    cluster.beat(2)
    cluster.now_ms += SESSION_MS
    assert cluster.fence_expired() == [1]


def test_a_broker_may_want_to_be_fenced() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    answer = cluster.beat(1, want_fence=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, False)
    assert leaders(cluster) == [2]


def test_an_old_level_keeps_the_last_replica_in_the_isr() -> None:
    cluster = quorum_cluster(1, 2, level=22)
    cluster.topic(1, 2, min_insync_replicas="2")
    for broker_id in (2, 1):
        cluster.beat(broker_id, want_fence=True)
    (partition,) = cluster.image.topics["a"].partitions
    assert (partition.leader, partition.isr) == (NO_LEADER, (1,))
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    cluster.beat(2)
    assert leaders(cluster) == [NO_LEADER]
    cluster.beat(1)
    assert leaders(cluster) == [1]


# -- controlled shutdown --------------------------------------------------------------------------


def test_a_broker_stops_when_the_others_know_the_new_leaders() -> None:
    cluster = quorum_cluster(1, 2, 3)
    cluster.topic(1, 2, 3, partitions=4)
    answer = cluster.stop(1)
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert 1 not in leaders(cluster)
    moved = cluster.image.end_offset - 1
    assert not cluster.stop(1).should_shut_down
    cluster.beat(2, offset=moved)
    cluster.beat(3, offset=moved - 1)
    assert not cluster.stop(1).should_shut_down
    cluster.beat(3, offset=moved)
    answer = cluster.stop(1)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert cluster.broker(1).is_fenced


def test_the_offset_to_wait_for_does_not_move() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    cluster.stop(1)
    moved = cluster.image.end_offset - 1
    cluster.register(registration(3))  # the log grows with every heartbeat
    cluster.stop(1)
    cluster.register(registration(4))
    cluster.beat(2, offset=moved)
    assert cluster.stop(1).should_shut_down


def test_a_broker_that_leads_nothing_stops_at_once() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(2, 1)
    assert cluster.stop(1).should_shut_down
    assert cluster.image.topics["a"].partitions[0].isr == (2,)


def test_partitions_that_no_other_broker_can_lead_do_not_keep_a_broker() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1)
    assert cluster.stop(1).should_shut_down


def test_the_partition_stays_with_a_stopping_broker_until_another_can_lead() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2, partitions=2)
    cluster.beat(2, want_fence=True)
    assert leaders(cluster) == [1, 1]
    assert cluster.stop(1).should_shut_down
    assert leaders(cluster) == [NO_LEADER, NO_LEADER]


def test_a_fenced_broker_stops_at_once() -> None:
    cluster = quorum_cluster()
    cluster.register(registration(1))
    assert cluster.stop(1).should_shut_down


def test_a_broker_that_wants_both_stops_at_once() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    assert cluster.beat(1, want_fence=True, want_shut_down=True).should_shut_down
    assert leaders(cluster) == [2]


def test_a_shutdown_goes_on_under_a_new_controller() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    cluster.stop(1)
    cluster.fail_over()
    assert not cluster.stop(1).should_shut_down
    cluster.beat(2)
    assert cluster.stop(1).should_shut_down


def test_a_stopping_broker_that_falls_silent_is_fenced() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    cluster.stop(1)
    cluster.now_ms += SESSION_MS + 1
    cluster.beat(2)
    assert cluster.fence_expired() == [1]


# -- log dirs -------------------------------------------------------------------------------------


def test_replicas_in_a_failed_log_dir_leave_the_isr() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    cluster.register(registration(1, log_dirs=[uuid_of(501), uuid_of(601)]))
    assert not cluster.beat(1, offline_log_dirs=[uuid_of(601), uuid_of(4711)]).is_fenced
    assert (cluster.broker(1).log_dirs, leaders(cluster)) == ((uuid_of(501),), [1])
    for _ in range(2):
        cluster.beat(1, offline_log_dirs=[uuid_of(501), uuid_of(601)])
        assert (leaders(cluster), cluster.image.topics["a"].partitions[0].isr) == ([2], (2,))
    end_offset = cluster.image.end_offset
    cluster.beat(1, offline_log_dirs=[uuid_of(501), uuid_of(601)])
    assert cluster.image.end_offset == end_offset


def test_cordoned_log_dirs_follow_the_broker() -> None:
    cluster = quorum_cluster(1)
    cluster.beat(1, cordoned_log_dirs=[uuid_of(501), uuid_of(4711)])
    assert cluster.broker(1).cordoned_log_dirs == (uuid_of(501),)
    end_offset = cluster.image.end_offset
    cluster.beat(1, cordoned_log_dirs=[uuid_of(501)])
    cluster.beat(1)
    assert cluster.image.end_offset == end_offset
    cluster.beat(1, cordoned_log_dirs=[])
    assert cluster.broker(1).cordoned_log_dirs == ()
    old = quorum_cluster(1, level=29)
    old.beat(1, cordoned_log_dirs=[uuid_of(501)])
    assert old.broker(1).cordoned_log_dirs == ()
