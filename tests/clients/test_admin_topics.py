"""Topics by the admin client: made in every way, described, grown and deleted."""

from collections.abc import Iterator

import pytest

from ottla import Admin, ErrorCode, ItemsFailedError, TopicPartition
from tests.clients.admin_stories import refused

NO_PRODUCER = bytes(15) + b"\x07"


@pytest.fixture
def admin(story_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=story_servers) as admin:
        yield admin


def test_a_topic_is_made_described_and_deleted(admin: Admin, topic: str) -> None:
    made = admin.topics.create(topic, partitions=3, configs={"retention.ms": "60000"})[topic]
    assert (made.name, made.partitions, made.replication_factor) == (topic, 3, 1)
    assert made.configs["retention.ms"] == "60000"
    found = admin.topics.describe([topic])[topic]
    assert found.topic_id == made.topic_id
    assert [row.partition for row in found.partitions] == [0, 1, 2]
    assert {row.leader for row in found.partitions} == set(found.partitions[0].replicas)
    assert (found.replication_factor, found.is_internal) == (1, False)
    assert admin.topics.delete(topic) == {topic: topic}
    assert topic not in {row.name for row in admin.topics.list()}


def test_the_brokers_defaults_hold_where_nothing_is_said(admin: Admin, topic: str) -> None:
    assert admin.topics.create(topic)[topic].partitions == 1


def test_a_topic_is_made_where_it_is_assigned_to(admin: Admin, topic: str) -> None:
    (broker,) = admin.cluster.describe().brokers
    admin.topics.create(topic, assignments={0: [broker.broker_id], 1: [broker.broker_id]})
    assert [row.replicas for row in admin.topics.describe(topic)[topic].partitions] == [
        (broker.broker_id,)
    ] * 2
    code, _ = refused(lambda: admin.topics.create(f"{topic}-2", assignments={0: [4711]}))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_only_checking_makes_nothing(admin: Admin, topic: str) -> None:
    checked = admin.topics.create(topic, partitions=7, validate_only=True)[topic]
    assert checked.partitions == 7
    assert refused(lambda: admin.topics.describe(topic))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_refusals_name_the_topic_and_the_reason(admin: Admin, topic: str) -> None:
    admin.topics.create(topic)
    assert refused(lambda: admin.topics.create(topic))[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    code, words = refused(lambda: admin.topics.create(f"{topic}-2", configs={"retention": "1"}))
    assert code is ErrorCode.INVALID_CONFIG
    assert "retention" in words
    code, _ = refused(lambda: admin.topics.create(f"{topic}-2", replication_factor=3))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    code, _ = refused(lambda: admin.topics.create(f"{topic}-2", partitions=0))
    assert code is ErrorCode.INVALID_PARTITIONS
    code, words = refused(lambda: admin.topics.describe(["missing", topic]))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "there is no topic 'missing'" in words
    code, words = refused(lambda: admin.topics.delete("missing"))
    assert "there is no topic 'missing'" in words


def test_topics_are_known_by_their_ids_too(admin: Admin, topic: str) -> None:
    topic_id = admin.topics.create(topic)[topic].topic_id
    assert topic_id is not None
    assert admin.topics.describe(topic_id)[topic_id].name == topic
    with pytest.raises(ItemsFailedError, match="there is no topic id AAAA") as failure:
        admin.topics.delete([NO_PRODUCER, topic_id])
    assert failure.value.done == {topic_id: topic}
    assert failure.value.failed[NO_PRODUCER].code is ErrorCode.UNKNOWN_TOPIC_ID
    assert refused(lambda: admin.topics.describe(topic_id))[0] is ErrorCode.UNKNOWN_TOPIC_ID


def test_topics_grow_and_cannot_shrink(admin: Admin, topic: str) -> None:
    admin.topics.create(topic, partitions=2)
    assert admin.topics.create_partitions({topic: 3}, validate_only=True) == {topic: 3}
    assert len(admin.topics.describe(topic)[topic].partitions) == 2
    (broker,) = admin.cluster.describe().brokers
    admin.topics.create_partitions({topic: 4}, assignments={topic: [[broker.broker_id]] * 2})
    assert len(admin.topics.describe(topic)[topic].partitions) == 4
    assert admin.offsets.ends([TopicPartition(topic, 3)])
    with pytest.raises(ItemsFailedError) as failure:
        admin.topics.create_partitions({topic: 1, "missing": 2})
    assert {name: error.code for name, error in failure.value.failed.items()} == {
        topic: ErrorCode.INVALID_PARTITIONS,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_internal_topics_are_listed_if_they_are_wanted(admin: Admin, topic: str) -> None:
    admin.topics.create(topic)
    admin.groups.commit("anybody", {TopicPartition(topic, 0): 0})
    assert "__consumer_offsets" in {row.name for row in admin.topics.list()}
    ours = admin.topics.list(include_internal=False)
    assert "__consumer_offsets" not in {row.name for row in ours}
    assert list(ours) == sorted(ours, key=lambda row: row.name)
