"""A broker has lost a disk: other brokers take over the leadership of its partitions."""

import pytest

from ottla.machines.controller.machine import Controller
from ottla.machines.controller.partition_change import RECOVERING
from ottla.metadata.records import (
    DAMAGED_DIRECTORY,
    FULL_DIRECTORY,
    LOST_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectory,
    AssignReplicasToDirsRequestPartition,
    AssignReplicasToDirsRequestTopic,
)
from ottla.wire.messages.create_topics import CreatableReplicaAssignment
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from tests.metadata_building import (
    add_topics,
    broker_record,
    controller_of,
    image_of,
    new_topic,
    run,
    uuid_of,
)
from tests.unit.machines.controller.cluster import TOPIC_ID, alter, cluster, partition


def lose(
    controller: Controller,
    broker_id: int,
    number: int = 0,
    *,
    topic_id: bytes = TOPIC_ID,
    directory: bytes = LOST_DIRECTORY,
    broker_epoch: int | None = None,
) -> ErrorCode:
    wanted = AssignReplicasToDirsRequestTopic(
        topic_id=topic_id,
        partitions=[AssignReplicasToDirsRequestPartition(partition_index=number)],
    )
    known = controller.image.brokers[broker_id].broker_epoch
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=known if broker_epoch is None else broker_epoch,
        directories=[AssignReplicasToDirsRequestDirectory(id=directory, topics=[wanted])],
    )
    response = run(controller, controller.lose_replicas(request))
    return ErrorCode(response.directories[0].topics[0].partitions[0].error_code)


def test_another_replica_leads_the_lost_partitions_only() -> None:
    controller = cluster(1, 2, 0, partitions=2)
    assert lose(controller, 1) is ErrorCode.NONE
    after = partition(controller)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 0), 1)
    assert partition(controller, 1).leader == 1
    assert not controller.image.brokers[1].is_fenced


def test_a_follower_that_is_lost_is_not_waited_for() -> None:
    controller = cluster(1, 2, 0)
    assert lose(controller, 0) is ErrorCode.NONE
    after = partition(controller)
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), 0)


def test_below_min_isr_the_lost_replica_is_not_eligible() -> None:
    controller = cluster(0, 1, min_insync_replicas="2")
    lose(controller, 0)
    after = partition(controller)
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (1, (1,), ())
    assert after.last_known_elr == (0,)


def test_an_eligible_replica_that_is_lost_is_not_eligible_any_more() -> None:
    controller = cluster(0, 1, 2, min_insync_replicas="2")
    alter(controller, 0)
    assert partition(controller).eligible_leader_replicas == (1, 2)
    lose(controller, 1)
    assert partition(controller).eligible_leader_replicas == (2,)
    lose(controller, 0)
    after = partition(controller)
    assert (after.leader, after.isr) == (2, (2,))


def test_the_last_complete_replica_keeps_its_role() -> None:
    controller = cluster(0, 1)
    alter(controller, 0)
    assert lose(controller, 0) is ErrorCode.NONE
    after = partition(controller)
    assert (after.leader, after.isr) == (0, (0,))


def test_with_unclean_elections_a_topic_continues_without_the_last_complete_replica() -> None:
    controller = cluster(0, 1, unclean_leader_election_enable="true")
    alter(controller, 0)
    run(controller, controller.fence_broker(1))
    lose(controller, 0)
    assert partition(controller).leader == 0, "there is nobody else"
    run(controller, controller.unfence_broker(1))
    lose(controller, 0)
    after = partition(controller)
    assert (after.leader, after.isr, after.leader_recovery_state) == (1, (1,), RECOVERING)


def test_a_lost_leader_gives_way_to_an_eligible_replica_that_is_away() -> None:
    controller = cluster(0, 1, min_insync_replicas="2")
    run(controller, controller.fence_broker(1))
    lose(controller, 0)
    assert partition(controller).leader == NO_LEADER
    run(controller, controller.unfence_broker(1))
    assert partition(controller).leader == 1


def test_a_damaged_leader_gives_way_to_a_replica_in_sync() -> None:
    controller = cluster(1, 2, 0, partitions=2)
    assert lose(controller, 1, directory=DAMAGED_DIRECTORY) is ErrorCode.NONE
    after = partition(controller)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 0), 1)
    assert partition(controller, 1).leader == 1


def test_a_damaged_follower_is_not_waited_for_and_may_still_be_eligible() -> None:
    controller = cluster(0, 1, min_insync_replicas="2")
    lose(controller, 1, directory=DAMAGED_DIRECTORY)
    after = partition(controller)
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (0, (0,), (1,))
    lose(controller, 1, directory=DAMAGED_DIRECTORY)
    assert partition(controller) == after


@pytest.mark.parametrize("unclean", ["false", "true"])
def test_a_damaged_leader_that_alone_is_in_sync_stays_for_any_topic(unclean: str) -> None:
    controller = cluster(0, 1, unclean_leader_election_enable=unclean)
    alter(controller, 0)
    assert lose(controller, 0, directory=DAMAGED_DIRECTORY) is ErrorCode.NONE
    after = partition(controller)
    assert (after.leader, after.isr) == (0, (0,))


def test_invalid_replicas_are_refused_one_by_one() -> None:
    controller = cluster(0, 1)
    assert lose(controller, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    damaged = lose(controller, 2, directory=DAMAGED_DIRECTORY)
    assert damaged is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert lose(controller, 0, 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert lose(controller, 0, topic_id=uuid_of(9)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert lose(controller, 0, directory=uuid_of(3)) is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
        lose(controller, 0, broker_epoch=77)
    assert partition(controller).isr == (0, 1)


def fill(controller: Controller, broker_id: int) -> None:
    assert lose(controller, broker_id, directory=FULL_DIRECTORY) is ErrorCode.NONE


def test_a_leader_on_a_full_disk_hands_over_to_another_in_sync() -> None:
    controller = cluster(1, 2, 0)
    fill(controller, 1)
    after = partition(controller)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 0), 1)
    fill(controller, 0)
    assert (partition(controller).leader, partition(controller).isr) == (2, (2,))
    fill(controller, 2)
    assert (partition(controller).leader, partition(controller).isr) == (2, (2,))


def test_an_isr_on_full_disks_does_not_become_too_small() -> None:
    controller = cluster(0, 1, 2, min_insync_replicas="2")
    fill(controller, 0)
    fill(controller, 1)
    after = partition(controller)
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (1, (1, 2), ())


def test_a_full_disk_elects_no_replica_out_of_sync_or_away() -> None:
    controller = cluster(0, 1, unclean_leader_election_enable="true")
    alter(controller, 0)
    fill(controller, 0)
    assert (partition(controller).leader, partition(controller).isr) == (0, (0,))


def test_preferred_election_does_not_bring_back_a_leader_whose_disk_is_full() -> None:
    controller = cluster(0, 1, 2)
    fill(controller, 0)
    request = ElectLeadersRequest(election_type=0, topic_partitions=None)
    run(controller, controller.elect_leaders(request))
    assert partition(controller).leader == 1


def test_a_broker_says_in_which_log_dir_a_replica_is() -> None:
    log_dirs = [uuid_of(501), uuid_of(502)]
    brokers = [broker_record(0), broker_record(1, log_dirs=log_dirs)]
    controller = controller_of(image_of(*brokers))
    topic = new_topic("a", -1, -1)
    topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[0, 1])]
    add_topics(controller, topic)
    assert lose(controller, 1, directory=log_dirs[1]) is ErrorCode.NONE
    after = partition(controller)
    assert after.directories == (UNASSIGNED_DIRECTORY, log_dirs[1])
    assert (after.leader, after.isr) == (0, (0, 1))
    assert lose(controller, 1, directory=log_dirs[1]) is ErrorCode.NONE
    assert partition(controller).partition_epoch == after.partition_epoch
    assert lose(controller, 1, directory=uuid_of(503)) is ErrorCode.INVALID_REQUEST
    assert lose(controller, 0, directory=log_dirs[1]) is ErrorCode.INVALID_REQUEST
