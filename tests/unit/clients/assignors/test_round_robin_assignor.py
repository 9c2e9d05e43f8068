from hypothesis import given

from ottla.clients.assignors.assignor import MemberSubscription
from ottla.clients.assignors.round_robin_assignor import RoundRobinAssignor
from tests.unit.clients.assignors.groups import (
    EQUAL_SUBSCRIPTIONS,
    SUBSCRIPTIONS,
    TOPICS,
    by_member,
    flat,
    members,
    wanted,
    without_racks,
)
from tests.unit.clients.assignors.oracle import RoundRobinPartitionAssignor, assigned_by


def test_members_take_turns_over_all_topics() -> None:
    racks_by_topic = without_racks({"t0": 3, "t1": 3})
    assignment = RoundRobinAssignor().assign(racks_by_topic, members("t0 t1", "t0 t1"))
    assert assignment == by_member("t0-0, t0-2, t1-1", "t0-1, t1-0, t1-2")


def test_members_are_passed_over_for_topics_that_they_do_not_want() -> None:
    racks_by_topic = without_racks({"t0": 1, "t1": 2, "t2": 3})
    assignment = RoundRobinAssignor().assign(racks_by_topic, members("t0", "t0 t1", "t0 t1 t2"))
    assert assignment == by_member("t0-0", "t1-0", "t1-1, t2-0, t2-1, t2-2")


@given(TOPICS, SUBSCRIPTIONS)
def test_every_partition_is_somebodys(
    topics: dict[str, int], subscriptions: dict[str, MemberSubscription]
) -> None:
    racks_by_topic = without_racks(topics)
    assignment = RoundRobinAssignor().assign(racks_by_topic, subscriptions)
    assert flat(assignment) == wanted(racks_by_topic, subscriptions)


@given(TOPICS, EQUAL_SUBSCRIPTIONS)
def test_kafka_python_shares_out_alike(
    topics: dict[str, int], subscriptions: dict[str, MemberSubscription]
) -> None:
    assignment = RoundRobinAssignor().assign(without_racks(topics), subscriptions)
    theirs = assigned_by(RoundRobinPartitionAssignor, topics, subscriptions)
    assert assignment == theirs
