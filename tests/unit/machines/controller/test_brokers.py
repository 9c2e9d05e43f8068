"""Registrations with the controller of a quorum."""

from dataclasses import replace

import pytest

from ottla.metadata.image import BrokerImage, ZkMigrationState
from ottla.metadata.records import (
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages import controller_registration
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest
from ottla.wire.messages.controller_registration import ControllerRegistrationRequest
from tests.metadata_building import run, uuid_of
from tests.unit.machines.controller.quorum_cluster import (
    SESSION_MS,
    QuorumCluster,
    features,
    quorum_cluster,
    registration,
)


def refused(cluster: QuorumCluster, request: BrokerRegistrationRequest) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        cluster.register(request)
    return refusal.value.code


def test_a_new_broker_is_fenced_and_its_epoch_is_the_end_of_the_log() -> None:
    cluster = quorum_cluster()
    assert cluster.register(registration(1)) == 1
    broker = cluster.broker(1)
    assert (broker.is_fenced, broker.broker_epoch, broker.log_dirs) == (True, 1, (uuid_of(501),))
    assert broker.endpoints[0].host == "h"
    assert broker.levels_by_feature["metadata.version"] == (7, 30)


def test_the_same_incarnation_keeps_its_epoch_and_its_state() -> None:
    cluster = quorum_cluster(1)
    epoch = cluster.broker(1).broker_epoch
    assert cluster.register(registration(1, rack="r")) == epoch
    assert (cluster.broker(1).rack, cluster.broker(1).is_fenced) == ("r", False)
    # A broker that is fenced stays fenced, until it has seen its new registration.
    cluster.beat(1, want_fence=True)
    assert cluster.register(registration(1)) == epoch
    assert cluster.beat(1, offset=epoch).is_fenced
    assert not cluster.beat(1).is_fenced


def test_a_broker_that_is_stopping_goes_on_stopping_after_it_registers_again() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2)
    cluster.stop(1)
    cluster.register(registration(1))
    assert cluster.broker(1).is_shutting_down


def test_another_incarnation_waits_for_the_session_of_the_first() -> None:
    cluster = quorum_cluster(1)
    cluster.now_ms += SESSION_MS
    elsewhere = registration(1, 2, log_dirs=[uuid_of(777)])
    assert refused(cluster, elsewhere) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    epoch = cluster.broker(1).broker_epoch
    assert cluster.register(elsewhere) > epoch
    assert cluster.broker(1).is_fenced


def test_another_incarnation_with_the_same_log_dirs_does_not_wait() -> None:
    cluster = quorum_cluster(1)
    epoch = cluster.broker(1).broker_epoch
    more = registration(1, 2, log_dirs=[*cluster.broker(1).log_dirs, uuid_of(777)])
    assert cluster.register(more) > epoch
    assert cluster.broker(1).is_fenced
    # One log dir is missing: the former incarnation may still have it.
    cluster.beat(1)
    fewer = registration(1, 3)
    assert refused(cluster, fewer) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_another_incarnation_of_a_fenced_broker_does_not_wait() -> None:
    cluster = quorum_cluster()
    cluster.register(registration(1))
    assert cluster.register(registration(1, 2)) == 2


def test_a_broker_that_was_let_go_may_come_back_at_once() -> None:
    cluster = quorum_cluster(1)
    assert cluster.stop(1).should_shut_down
    epoch = cluster.broker(1).broker_epoch
    assert cluster.register(registration(1, 2, previous_epoch=epoch)) > epoch


def test_after_an_unclean_restart_a_broker_is_eligible_nowhere() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2, min_insync_replicas="2")
    cluster.now_ms += SESSION_MS + 1
    cluster.beat(2)
    decision = cluster.controller.register(registration(1, 2), cluster.now_ms, 1)
    change, record = decision.records
    assert isinstance(change, PartitionChangeRecord)
    assert (change.isr, change.leader, change.last_known_elr) == ([2], 2, [1])
    assert change.eligible_leader_replicas is None
    assert isinstance(record, RegisterBrokerRecord)
    assert record.broker_epoch == decision.response == cluster.image.end_offset


def test_after_a_clean_restart_a_broker_is_still_eligible() -> None:
    cluster = quorum_cluster(1, 2)
    cluster.topic(1, 2, min_insync_replicas="2")
    cluster.now_ms += SESSION_MS + 1
    cluster.beat(2)
    epoch = cluster.broker(1).broker_epoch
    decision = cluster.controller.register(
        registration(1, 2, previous_epoch=epoch), cluster.now_ms, 1
    )
    change = decision.records[0]
    assert isinstance(change, PartitionChangeRecord)
    assert (change.isr, change.eligible_leader_replicas) == ([2], [1])


def test_the_cluster_and_the_log_dirs_have_to_be_its_own() -> None:
    cluster = quorum_cluster(1)
    wrong = [
        (registration(2, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(2, is_migrating_zk_broker=True), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (registration(2, log_dirs=[]), ErrorCode.INVALID_REGISTRATION),
        (registration(2, log_dirs=[uuid_of(99)]), ErrorCode.INVALID_REGISTRATION),
        (registration(2, log_dirs=[uuid_of(700)] * 2), ErrorCode.INVALID_REGISTRATION),
        (registration(2, log_dirs=[uuid_of(501)]), ErrorCode.INVALID_REGISTRATION),
    ]
    for request, error in wrong:
        assert refused(cluster, request) is error
    assert 2 not in cluster.image.brokers
    old = quorum_cluster(level=16)
    old.register(registration(2, log_dirs=[]))


def test_every_finalized_level_is_in_the_ranges_of_the_broker() -> None:
    cluster = quorum_cluster()
    ranges = {"metadata.version": (7, 30), "kraft.version": (0, 1)}
    cluster.register(registration(1, features=features(ranges)))
    without = registration(2, features=features({"kraft.version": (0, 1)}))
    assert refused(cluster, without) is ErrorCode.INVALID_REGISTRATION
    for missing in (
        {"metadata.version": (7, 29), "kraft.version": (0, 1)},
        {"metadata.version": (7, 30), "kraft.version": (0, 0)},
        {"metadata.version": (7, 30)},
    ):
        request = registration(2, features=features(missing))
        assert refused(cluster, request) is ErrorCode.UNSUPPORTED_VERSION
    cluster.kraft_version = 0
    cluster.register(registration(2, features=features({"metadata.version": (30, 30)})))


def test_a_new_controller_does_not_wait_for_fenced_brokers() -> None:
    cluster = quorum_cluster(1)
    cluster.beat(1, want_fence=True)
    cluster.fail_over()
    cluster.register(registration(1, 2, log_dirs=[uuid_of(777)]))


def test_cordoned_log_dirs_are_kept_by_the_same_incarnation() -> None:
    cluster = quorum_cluster(1)
    cluster.beat(1, cordoned_log_dirs=[uuid_of(501)])
    cluster.register(registration(1))
    assert cluster.broker(1).cordoned_log_dirs == (uuid_of(501),)
    cluster.now_ms += SESSION_MS + 1
    cluster.register(registration(1, 2))
    assert cluster.broker(1).cordoned_log_dirs == ()


def controller(incarnation: int) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=9,
        incarnation_id=uuid_of(incarnation),
        listeners=[controller_registration.Listener(name="C", host="h", port=9093)],
        features=[
            controller_registration.Feature(
                name="metadata.version", min_supported_version=7, max_supported_version=30
            )
        ],
    )


def test_a_controller_is_registered_once_for_each_life() -> None:
    cluster = quorum_cluster()
    for incarnation in (1, 2):
        run(cluster.controller, cluster.controller.register_controller(controller(incarnation)))
        found = cluster.image.controllers[9]
        assert (found.incarnation_id, found.endpoints[0].port) == (uuid_of(incarnation), 9093)
        assert found.levels_by_feature == {"metadata.version": (7, 30)}
        assert cluster.controller.register_controller(controller(incarnation)).records == ()


def test_an_old_level_has_no_controllers() -> None:
    cluster = quorum_cluster(level=14)
    with pytest.raises(ApiError, match=r"metadata\.version 14") as refusal:
        cluster.controller.register_controller(controller(1))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_an_unregistered_broker_may_come_back_at_once() -> None:
    cluster = quorum_cluster(1)
    run(cluster.controller, cluster.controller.unregister_broker(1))
    cluster.register(registration(1, 2))
    assert cluster.broker(1).is_fenced


def migrating(cluster: QuorumCluster, state: ZkMigrationState, epoch: int) -> None:
    """Let broker 1 be in service by its session in ZooKeeper, with an epoch from there."""
    broker = BrokerImage(1, epoch, uuid_of(77), (), is_in_zookeeper=True)
    run(cluster.controller, cluster.controller.register_broker(broker))
    cluster.controller.image = replace(cluster.image, zk_migration_state=state)


def test_a_broker_registers_once_its_session_in_zookeeper_is_over() -> None:
    cluster = quorum_cluster()
    migrating(cluster, ZkMigrationState.MIGRATION, 5_000)
    cluster.controller.sessions.in_zookeeper = frozenset([1])
    assert refused(cluster, registration(1)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.controller.sessions.in_zookeeper = frozenset()
    cluster.register(registration(1))
    assert not cluster.broker(1).is_in_zookeeper


@pytest.mark.parametrize("epoch", [0, 5_000])
def test_epochs_rise_by_one_during_a_migration(epoch: int) -> None:
    cluster = quorum_cluster()
    migrating(cluster, ZkMigrationState.MIGRATION, epoch)
    cluster.register(registration(1))
    assert cluster.broker(1).broker_epoch == epoch + 1


@pytest.mark.parametrize("epoch", [0, 5_000])
def test_no_epoch_goes_back_after_a_migration(epoch: int) -> None:
    cluster = quorum_cluster()
    migrating(cluster, ZkMigrationState.POST_MIGRATION, epoch)
    end_offset = cluster.image.end_offset
    cluster.register(registration(1))
    assert cluster.broker(1).broker_epoch == max(end_offset, epoch + 1)


@pytest.mark.parametrize("epoch", [0, 5_000])
def test_a_broker_with_an_epoch_of_a_migration_serves_under_the_next_controller(
    epoch: int,
) -> None:
    cluster = quorum_cluster()
    migrating(cluster, ZkMigrationState.MIGRATION, epoch)
    cluster.register(registration(1))
    cluster.controller.take_office(cluster.now_ms)
    known = cluster.image.end_offset
    assert cluster.beat(1, offset=known - 2).is_fenced
    assert not cluster.beat(1, offset=known - 1).is_fenced


def test_brokers_in_zookeeper_are_not_fenced_for_their_silence() -> None:
    cluster = quorum_cluster()
    migrating(cluster, ZkMigrationState.MIGRATION, 5_000)
    cluster.controller.take_office(cluster.now_ms)
    cluster.now_ms += 10 * SESSION_MS
    assert cluster.fence_expired() == []
    assert cluster.next_expiry_ms() is None
