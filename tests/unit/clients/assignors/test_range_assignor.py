import pytest
from hypothesis import given

from ottla.clients.assignors.assignor import MemberSubscription
from ottla.clients.assignors.range_assignor import RangeAssignor
from tests.unit.clients.assignors.groups import (
    SUBSCRIPTIONS,
    TOPICS,
    by_member,
    flat,
    in_racks,
    members,
    wanted,
    without_racks,
)
from tests.unit.clients.assignors.oracle import RangePartitionAssignor, assigned_by

# Expectations of Kafka's RangeAssignorTest: topics, replicas, racks of brokers, racks of members.
UNIFORM = {"t1": 6, "t2": 7, "t3": 2}
ALIKE = {"t1": 5, "t2": 5, "t3": 5}
PAIRS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}
ALL = "t1 t2 t3"
VECTORS = [
    (
        UNIFORM,
        1,
        "abc",
        "abc",
        (ALL, ALL, ALL),
        (
            "t1-0, t1-3, t2-0, t2-3, t2-6",
            "t1-1, t1-4, t2-1, t2-4, t3-0",
            "t1-2, t1-5, t2-2, t2-5, t3-1",
        ),
    ),
    (
        UNIFORM,
        2,
        "abc",
        "abc",
        (ALL, ALL, ALL),
        (
            "t1-0, t1-2, t2-0, t2-2, t2-3, t3-1",
            "t1-1, t1-3, t2-1, t2-4, t3-0",
            "t1-4, t1-5, t2-5, t2-6",
        ),
    ),
    (
        UNIFORM,
        1,
        "abc",
        "abc",
        (ALL, ALL, "t1 t3"),
        (
            "t1-0, t1-3, t2-0, t2-2, t2-3, t2-6",
            "t1-1, t1-4, t2-1, t2-4, t2-5, t3-0",
            "t1-2, t1-5, t3-1",
        ),
    ),
    (
        ALIKE,
        1,
        "abc",
        "abc",
        (ALL, ALL, ALL),
        (
            "t1-0, t1-1, t2-0, t2-1, t3-0, t3-1",
            "t1-2, t1-3, t2-2, t2-3, t3-2, t3-3",
            "t1-4, t2-4, t3-4",
        ),
    ),
    (
        ALIKE,
        2,
        "abc",
        "abc",
        (ALL, ALL, "t1 t3"),
        (
            "t1-2, t2-0, t2-1, t2-3, t3-2",
            "t1-0, t1-3, t2-2, t2-4, t3-0, t3-3",
            "t1-1, t1-4, t3-1, t3-4",
        ),
    ),
    (
        PAIRS,
        1,
        "ab",
        "abba",
        ("t1 t2", "t1 t2", "t3 t4", "t3 t4"),
        (
            "t1-0, t1-2, t1-4, t2-0, t2-2, t2-4",
            "t1-1, t1-3, t1-5, t2-1, t2-3, t2-5",
            "t3-1, t4-1",
            "t3-0, t4-0",
        ),
    ),
]


def test_each_topic_is_shared_out_in_neighbouring_partitions() -> None:
    racks_by_topic = without_racks({"t1": 3, "t2": 2})
    assignment = RangeAssignor().assign(racks_by_topic, members("t1 t2", "t1 t2"))
    assert assignment == by_member("t1-0, t1-1, t2-0", "t1-2, t2-1")


def test_static_members_keep_their_share_when_their_member_ids_change() -> None:
    def share(*member_ids: str) -> list[list[tuple[str, int]]]:
        subscriptions = {
            member_id: MemberSubscription(topics=("t",), instance_id=f"instance {number}")
            for number, member_id in enumerate(member_ids)
        }
        assignment = RangeAssignor().assign(without_racks({"t": 5}), subscriptions)
        return [assignment[member_id] for member_id in member_ids]

    assert share("a", "b", "c") == share("z", "y", "x")


@pytest.mark.parametrize(("topics", "replicas", "racks", "near", "wanting", "expected"), VECTORS)
def test_partitions_go_to_members_nearby_as_in_kafka(
    topics: dict[str, int],
    replicas: int,
    racks: str,
    near: str,
    wanting: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    subscriptions = members(*wanting, racks=list(near))
    assignment = RangeAssignor().assign(in_racks(topics, racks, replicas), subscriptions)
    assert assignment == by_member(*expected)


@given(TOPICS, SUBSCRIPTIONS)
def test_kafka_python_shares_out_alike(
    topics: dict[str, int], subscriptions: dict[str, MemberSubscription]
) -> None:
    racks_by_topic = without_racks(topics)
    assignment = RangeAssignor().assign(racks_by_topic, subscriptions)
    assert assignment == assigned_by(RangePartitionAssignor, topics, subscriptions)
    assert flat(assignment) == wanted(racks_by_topic, subscriptions)
