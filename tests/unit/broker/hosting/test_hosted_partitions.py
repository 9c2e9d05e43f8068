"""Errors for partitions that this broker does not host."""

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from tests.log_building import new_log, refusal
from tests.metadata_building import add_topics, controller_of, new_topic, one_broker, uuid_of

HERE, ELSEWHERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def partitions() -> HostedPartitions:
    """This broker hosts one of a topic's two partitions, and none of the other topic."""
    controller = controller_of(one_broker())
    add_topics(controller, new_topic("orders", 2), new_topic("letters"))
    known = HostedPartitions()
    known.image = controller.image
    known.add(Partition(HERE, uuid_of(1), new_log(), lambda _: None))
    return known


def test_replicas_of_other_brokers_are_not_unknown() -> None:
    known = partitions()
    assert known.get(HERE).name == HERE
    for name in (ELSEWHERE, TopicPartition("letters", 0)):
        assert refusal(known.get, name) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    known.remove(HERE)
    assert refusal(known.get, HERE) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_without_a_replica_is_unknown() -> None:
    known = partitions()
    for name in (TopicPartition("orders", 2), TopicPartition("orders", -1), TopicPartition("a", 0)):
        assert refusal(known.get, name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_under_creation_is_not_there_yet() -> None:
    known = partitions()
    known.being_made.add(ELSEWHERE)
    assert refusal(known.get, ELSEWHERE) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_disk_that_fails_is_told_before_anything_else() -> None:
    known = partitions()
    known.remove(HERE)
    known.offline[HERE] = "broken"
    assert refusal(known.get, HERE) is ErrorCode.KAFKA_STORAGE_ERROR


def test_topics_that_others_keep_have_names() -> None:
    known = partitions()
    assert [known.topic_name(uuid_of(n)) for n in (1, 2, 3)] == ["orders", "letters", None]
