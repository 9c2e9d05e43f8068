"""Reassignment of partitions to other brokers."""

from ottla.machines.controller.machine import Controller
from ottla.machines.controller.reassignment import ongoing_reassignments
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsTopics
from tests.metadata_building import run
from tests.unit.machines.controller.cluster import alter, cluster, partition, told


def move(
    controller: Controller,
    *replicas: int,
    number: int = 0,
    topic: str = "a",
    may_resize: bool = True,
) -> ErrorCode:
    wanted = ReassignablePartition(partition_index=number, replicas=list(replicas) or None)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[wanted])],
        allow_replication_factor_change=may_resize,
    )
    response = run(controller, controller.reassign_partitions(request))
    return ErrorCode(response.responses[0].partitions[0].error_code)


def test_a_partition_is_kept_by_old_and_new_until_the_new_are_in_sync() -> None:
    controller = cluster(0, 1, brokers=4)
    assert move(controller, 2, 3) is ErrorCode.NONE
    moving = partition(controller)
    assert (moving.replicas, moving.adding_replicas) == ((2, 3, 0, 1), (2, 3))
    assert (moving.removing_replicas, moving.leader) == ((0, 1), 0)
    assert told(alter(controller, 0, 1, 2)) is ErrorCode.NONE
    assert partition(controller).removing_replicas == (0, 1)
    assert told(alter(controller, 0, 1, 2, 3)) is ErrorCode.NEW_LEADER_ELECTED
    moved = partition(controller)
    assert (moved.replicas, moved.isr, moved.leader) == ((2, 3), (2, 3), 2)
    assert moved.adding_replicas == moved.removing_replicas == ()


def test_a_move_that_only_adds_keeps_the_leader_and_its_epoch() -> None:
    controller = cluster(0, 1)
    move(controller, 0, 1, 2)
    assert told(alter(controller, 0, 1, 2)) is ErrorCode.NONE
    moved = partition(controller)
    assert (moved.replicas, moved.leader, moved.leader_epoch) == ((0, 1, 2), 0, 0)


def test_a_move_that_only_removes_completes_at_once_and_names_the_removed_replicas() -> None:
    controller = cluster(0, 1, 2)
    move(controller, 0, 1)
    moved = partition(controller)
    assert (moved.replicas, moved.isr, moved.leader) == ((0, 1), (0, 1), 0)
    assert moved.leader_epoch == 1


def test_a_move_can_be_taken_back() -> None:
    controller = cluster(0, 1, brokers=4)
    move(controller, 2, 3)
    alter(controller, 0, 1, 2)
    assert move(controller) is ErrorCode.NONE
    back = partition(controller)
    assert (back.replicas, back.isr, back.adding_replicas) == ((0, 1), (0, 1), ())
    assert move(controller) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_is_not_taken_back_to_brokers_that_lack_data() -> None:
    controller = cluster(0, 1, brokers=4)
    move(controller, 2, 3)
    alter(controller, 0, 2)
    run(controller, controller.fence_broker(0))
    assert partition(controller).isr == (2,)
    assert move(controller) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_move_can_change_its_mind() -> None:
    controller = cluster(0, 1, brokers=5)
    move(controller, 2, 3)
    move(controller, 0, 4)
    moving = partition(controller)
    assert (moving.adding_replicas, set(moving.removing_replicas)) == ((4,), {1, 2, 3})


def test_wrong_targets_are_refused_with_a_reason() -> None:
    controller = cluster(0, 1)
    assert move(controller, 0, 0) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(controller, 0, 9) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(controller, 0, number=5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(controller, 0, topic="b") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(controller, 0, may_resize=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert partition(controller).replicas == (0, 1)


def test_moves_under_way_are_listed() -> None:
    controller = cluster(0, 1, partitions=2, brokers=4)
    move(controller, 2, 3, number=1)
    (topic,) = ongoing_reassignments(controller.image, None)
    (moving,) = topic.partitions
    assert (topic.name, moving.partition_index, moving.adding_replicas) == ("a", 1, [2, 3])
    named = [ListPartitionReassignmentsTopics(name="a", partition_indexes=[0, 7])]
    assert ongoing_reassignments(controller.image, named) == []
