"""Groups by the admin client: listed, described, emptied, moved and deleted."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from ottla import Admin, CommittedOffset, ErrorCode, ItemsFailedError, TopicPartition
from tests.clients.admin_stories import SECONDS_MAX, refused, write


@pytest.fixture
def admin(story_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=story_servers) as admin:
        yield admin


@pytest.fixture
def reader(admin: Admin, story_servers: str, topic: str) -> Iterator[Consumer]:
    """A consumer in a group with the same name as the topic."""
    admin.topics.create(topic, partitions=2)
    write(story_servers, TopicPartition(topic, 0), 3)
    consumer = Consumer(
        {
            "bootstrap.servers": story_servers,
            "group.id": topic,
            "group.instance.id": f"{topic}-one",
            "auto.offset.reset": "earliest",
            "client.id": "reader",
            "session.timeout.ms": 45_000,
        }
    )
    consumer.subscribe([topic])
    assert consumer.poll(SECONDS_MAX) is not None
    yield consumer
    consumer.close()


@pytest.mark.usefixtures("reader")
def test_a_group_is_listed_and_described_with_its_members(admin: Admin, topic: str) -> None:
    (listed,) = [row for row in admin.groups.list() if row.group_id == topic]
    assert (listed.protocol_type, listed.state, listed.group_type) == (
        "consumer",
        "Stable",
        "classic",
    )
    assert listed in admin.groups.list(states=["Stable"], types=["classic"])
    assert listed not in admin.groups.list(states=["Empty"])
    assert listed not in admin.groups.list(types=["consumer"])
    found = admin.groups.describe(topic)[topic]
    assert (found.state, found.protocol_type, found.group_type) == ("Stable", "consumer", "classic")
    (member,) = found.members
    assert (member.client_id, member.instance_id) == ("reader", f"{topic}-one")
    assert sorted(member.partitions) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]


def test_a_missing_group_does_not_hide_the_others(admin: Admin, topic: str) -> None:
    admin.topics.create(topic)
    admin.groups.commit(topic, {TopicPartition(topic, 0): 0})
    with pytest.raises(ItemsFailedError, match="there is no group 'nobody'") as failure:
        admin.groups.describe(["nobody", topic])
    assert failure.value.done[topic].state == "Empty"
    assert failure.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_committed_listed_and_forgotten(admin: Admin, topic: str) -> None:
    first, second = (TopicPartition(topic, number) for number in range(2))
    admin.topics.create(topic, partitions=2)
    admin.groups.commit(topic, {first: 5, second: CommittedOffset(7, 0, "why")})
    found = admin.groups.committed(topic)
    assert found[first].offset == 5
    assert found[second] == CommittedOffset(7, 0, "why")
    admin.groups.delete_offsets(topic, [first])
    assert list(admin.groups.committed(topic)) == [second]
    missing = TopicPartition("missing", 0)
    with pytest.raises(ItemsFailedError) as failure:
        admin.groups.commit(topic, {first: 6, missing: 6})
    assert list(failure.value.failed) == [missing]
    assert admin.groups.committed(topic)[first].offset == 6
    assert admin.groups.committed("nobody") == {}


@pytest.mark.usefixtures("reader")
def test_offsets_of_a_group_with_members_are_theirs(admin: Admin, topic: str) -> None:
    name = TopicPartition(topic, 0)
    assert refused(lambda: admin.groups.commit(topic, {name: 1}))[0] is ErrorCode.UNKNOWN_MEMBER_ID
    code, _ = refused(lambda: admin.groups.delete_offsets(topic, [name]))
    assert code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_groups_are_deleted_once_they_are_empty(admin: Admin, reader: Consumer, topic: str) -> None:
    code, words = refused(lambda: admin.groups.delete(topic))
    assert code is ErrorCode.NON_EMPTY_GROUP
    assert "stop them first" in words
    removed = admin.groups.remove_members(topic, [f"{topic}-one"], reason="moving house")
    assert len(removed) == 1
    assert admin.groups.describe(topic)[topic].members == ()
    with pytest.raises(ItemsFailedError) as failure:
        admin.groups.delete([topic, "nobody"])
    assert list(failure.value.failed) == ["nobody"]
    assert topic not in {row.group_id for row in admin.groups.list()}
    reader.unsubscribe()


@pytest.mark.usefixtures("reader")
def test_all_members_are_removed_at_once(admin: Admin, topic: str) -> None:
    (member,) = admin.groups.describe(topic)[topic].members
    code, words = refused(lambda: admin.groups.remove_members(topic, ["stranger"]))
    assert code is ErrorCode.UNKNOWN_MEMBER_ID
    assert "stranger" in words
    assert admin.groups.remove_members(topic) == (member.member_id,)
    assert member.member_id not in {
        row.member_id for row in admin.groups.describe(topic)[topic].members
    }
