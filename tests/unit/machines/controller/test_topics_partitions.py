"""CreatePartitions."""

import pytest

from ottla.machines.controller.machine import Controller
from ottla.metadata.records import UNASSIGNED_DIRECTORY, PartitionRecord
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tests.metadata_building import (
    add_topics,
    broker_record,
    controller_of,
    image_of,
    new_topic,
    run,
    uuid_of,
)


def controller_with_topic(partitions: int = 2, replication_factor: int = 1) -> Controller:
    """Three brokers, the last of them fenced, and the topic a with the id 1."""
    controller = controller_of(
        image_of(broker_record(0), broker_record(1), broker_record(2, fenced=True))
    )
    add_topics(controller, new_topic("a", partitions, replication_factor))
    return controller


def grown(count: int, *assignments: list[int], name: str = "a") -> CreatePartitionsTopic:
    chosen = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=chosen or None)


def grow(
    controller: Controller, *topics: CreatePartitionsTopic
) -> list[CreatePartitionsTopicResult]:
    return run(controller, controller.create_partitions(topics, start=0))


def test_partitions_are_added_behind_the_existing_partitions() -> None:
    controller = controller_with_topic(2)
    decision = controller.create_partitions([grown(3)], start=1)
    assert decision.records == (
        PartitionRecord(
            partition_id=2,
            topic_id=uuid_of(1),
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[UNASSIGNED_DIRECTORY],
        ),
    )
    assert decision.response == [CreatePartitionsTopicResult(name="a")]


def test_new_partitions_have_as_many_replicas_as_the_first() -> None:
    controller = controller_with_topic(1, replication_factor=2)
    grow(controller, grown(4))
    assert {len(one.replicas) for one in controller.image.topics["a"].partitions} == {2}
    assert controller.image.partition_count == 4


def test_clients_may_choose_the_brokers() -> None:
    controller = controller_with_topic(1, replication_factor=2)
    (result,) = grow(controller, grown(3, [2, 0], [1, 2]))
    assert result.error_code == 0
    _, second, third = controller.image.topics["a"].partitions
    assert (second.replicas, second.isr, second.leader) == ((2, 0), (0,), 0)
    assert (third.replicas, third.isr, third.leader) == ((1, 2), (1,), 1)


@pytest.mark.parametrize(
    ("topic", "code", "complaint"),
    [
        (grown(2), ErrorCode.INVALID_PARTITIONS, "topic a has 2 partitions; 2 are not more"),
        (grown(1), ErrorCode.INVALID_PARTITIONS, "1 are not more"),
        (grown(-1), ErrorCode.INVALID_PARTITIONS, "-1 are not more"),
        (grown(3, name="z"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic has this name"),
        (grown(4, [0]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 partitions are to be added"),
        (grown(3, [0, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 replicas, others 1"),
        (grown(3, [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2: no broker 9"),
        (grown(3, [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "none of its brokers is active"),
        (grown(10_003), ErrorCode.POLICY_VIOLATION, "more than 10000 new partitions"),
        (grown(2**31 - 1), ErrorCode.POLICY_VIOLATION, "more than 10000"),
    ],
)
def test_a_topic_that_cannot_grow_so_is_refused_with_a_reason(
    topic: CreatePartitionsTopic, code: ErrorCode, complaint: str
) -> None:
    controller = controller_with_topic()
    before = controller.image
    (result,) = grow(controller, topic)
    assert result.error_code == code
    assert complaint in (result.error_message or "")
    assert controller.image == before


def test_each_topic_grows_by_itself() -> None:
    controller = controller_with_topic()
    add_topics(controller, new_topic("b", 2), first_id=2)
    results = grow(controller, grown(1), grown(3, name="b"))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_PARTITIONS, 0]
    assert len(controller.image.topics["b"].partitions) == 3


def test_a_topic_that_comes_twice_is_refused_once() -> None:
    controller = controller_with_topic()
    (result,) = grow(controller, grown(3), grown(4))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert len(controller.image.topics["a"].partitions) == 2


def test_partitions_of_one_request_are_counted_together() -> None:
    controller = controller_with_topic()
    add_topics(controller, new_topic("b", 2), first_id=2)
    results = grow(controller, grown(6002), grown(6002, name="b"))
    assert [result.error_code for result in results] == [0, ErrorCode.POLICY_VIOLATION]


def test_validating_only_writes_nothing() -> None:
    controller = controller_with_topic()
    decision = controller.create_partitions(
        [grown(3), grown(4, name="z")], start=0, validate_only=True
    )
    assert decision.records == ()
    assert [result.error_code for result in decision.response] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
