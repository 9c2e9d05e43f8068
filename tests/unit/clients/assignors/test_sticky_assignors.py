"""Sticky assignors balance the load and move few partitions, for any group."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.assignors.assignor import (
    Assignment,
    Assignor,
    MemberSubscription,
    PreviousAssignment,
    RacksByTopic,
)
from ottla.clients.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from tests.unit.clients.assignors.groups import (
    EQUAL_SUBSCRIPTIONS,
    SUBSCRIPTIONS,
    TOPICS,
    flat,
    in_racks,
    members,
    named,
    wanted,
    without_racks,
)
from tests.unit.clients.assignors.oracle import StickyPartitionAssignor, assigned_by

STICKY, COOPERATIVE = StickyAssignor(), CooperativeStickyAssignor()
Subscriptions = Mapping[str, MemberSubscription]
REBALANCES_MAX = 8
"""Two suffice for equal subscriptions; otherwise a revoked partition may fit better elsewhere."""


def after(
    subscriptions: Subscriptions, assignment: Assignment, generation_id: int = 1
) -> dict[str, MemberSubscription]:
    """Return subscriptions that report this assignment, in the form of either assignor."""
    rows = {}
    for name, row in subscriptions.items():
        partitions = tuple(assignment.get(name, ()))
        rows[name] = replace(
            row,
            user_data=STICKY.user_data(PreviousAssignment(partitions, generation_id)),
            owned_partitions=partitions,
            generation_id=generation_id if partitions else -1,
        )
    return rows


def settled(
    racks_by_topic: RacksByTopic, subscriptions: Subscriptions, generation_id: int = 2
) -> Assignment:
    """Go through the two rebalances of a cooperative group."""
    first = COOPERATIVE.assign(racks_by_topic, subscriptions)
    return COOPERATIVE.assign(racks_by_topic, after(subscriptions, first, generation_id))


def is_even(subscriptions: Subscriptions, assignment: Assignment) -> bool:
    """Whether no partition can move to a member from another that has at least two more."""
    return all(
        len(mine) <= len(assignment[other]) + 1
        for mine in assignment.values()
        for partition in mine
        for other, row in subscriptions.items()
        if partition.topic in row.topics
    )


def moved(before: Assignment, now: Assignment) -> int:
    """Count partitions that moved between two members of the earlier assignment."""
    owner = {name: member for member, names in before.items() for name in names}
    return sum(owner.get(name, member) != member for member, names in now.items() for name in names)


@given(TOPICS, SUBSCRIPTIONS)
def test_shares_are_complete_even_and_always_the_same(
    topics: dict[str, int], subscriptions: dict[str, MemberSubscription]
) -> None:
    racks_by_topic = without_racks(topics)
    assignment = STICKY.assign(racks_by_topic, subscriptions)
    assert flat(assignment) == wanted(racks_by_topic, subscriptions)
    assert is_even(subscriptions, assignment)
    backwards = dict(reversed(subscriptions.items()))
    assert STICKY.assign(racks_by_topic, backwards) == assignment
    assert settled(racks_by_topic, subscriptions) == assignment


@given(TOPICS, SUBSCRIPTIONS)
def test_nothing_moves_when_nothing_has_changed(
    topics: dict[str, int], subscriptions: dict[str, MemberSubscription]
) -> None:
    racks_by_topic = without_racks(topics)
    before = STICKY.assign(racks_by_topic, subscriptions)
    told = after(subscriptions, before)
    assert STICKY.assign(racks_by_topic, told) == before
    assert COOPERATIVE.assign(racks_by_topic, told) == before


@given(TOPICS, EQUAL_SUBSCRIPTIONS, st.data())
def test_when_members_leave_nothing_moves_between_those_who_stay(
    topics: dict[str, int], subscriptions: dict[str, MemberSubscription], data: st.DataObject
) -> None:
    racks_by_topic = without_racks(topics)
    before = STICKY.assign(racks_by_topic, subscriptions)
    stay = data.draw(st.sets(st.sampled_from(sorted(subscriptions)), min_size=1))
    rest = after({name: subscriptions[name] for name in sorted(stay)}, before)
    now = STICKY.assign(racks_by_topic, rest)
    assert moved({name: before[name] for name in rest}, now) == 0
    assert flat(now) == wanted(racks_by_topic, rest)
    assert is_even(rest, now)


@given(TOPICS, EQUAL_SUBSCRIPTIONS, st.sets(st.text("xyz", min_size=4, max_size=4), min_size=1))
def test_when_members_join_only_what_they_get_moves(
    topics: dict[str, int], subscriptions: dict[str, MemberSubscription], newcomers: set[str]
) -> None:
    racks_by_topic = without_racks(topics)
    before = STICKY.assign(racks_by_topic, subscriptions)
    row = next(iter(subscriptions.values()))
    everybody = after(subscriptions, before) | dict.fromkeys(newcomers, row)
    now = STICKY.assign(racks_by_topic, everybody)
    assert is_even(everybody, now)
    assert moved(before, now) == sum(len(now[name]) for name in newcomers)


@given(TOPICS, SUBSCRIPTIONS, SUBSCRIPTIONS)
def test_a_cooperative_group_never_gives_away_what_is_owned(
    topics: dict[str, int],
    earlier: dict[str, MemberSubscription],
    later: dict[str, MemberSubscription],
) -> None:
    racks_by_topic = without_racks(topics)
    now = COOPERATIVE.assign(racks_by_topic, earlier)
    for generation_id in range(1, REBALANCES_MAX + 1):
        told = after(later, now, generation_id)
        owner = {name: member for member, row in told.items() for name in row.owned_partitions}
        now = COOPERATIVE.assign(racks_by_topic, told)
        assert all(owner.get(name, member) == member for member in now for name in now[member])
        if flat(now) == wanted(racks_by_topic, later):
            break
    else:
        pytest.fail("it does not come to rest")
    assert is_even(later, now)


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=lambda one: one.name)
def test_of_two_claims_the_later_generation_counts(assignor: Assignor) -> None:
    both, racks_by_topic = members("t", "t"), without_racks({"t": 2})
    claim = {"m0": named("t-0, t-1"), "m1": named("t-0")}
    rows = after(both, {"m0": claim["m0"]}, 1)
    rows["m1"] = after(both, {"m1": claim["m1"]}, 2)["m1"]
    assert assignor.assign(racks_by_topic, rows)["m1"] == named("t-0")


def test_what_two_members_claim_at_once_is_given_to_neither_at_first() -> None:
    both, racks_by_topic = members("t", "t"), without_racks({"t": 1})
    rows = after(both, {"m0": named("t-0"), "m1": named("t-0")})
    assert flat(COOPERATIVE.assign(racks_by_topic, rows)) == []
    assert flat(settled(racks_by_topic, rows)) == named("t-0")


def test_shares_are_nearby_where_that_keeps_them_even() -> None:
    racks_by_topic = in_racks({"t": 6}, "abc", 1)
    assignment = STICKY.assign(racks_by_topic, members("t", "t", "t", racks=["c", "a", "b"]))
    assert assignment == {
        "m0": named("t-2, t-5"),
        "m1": named("t-0, t-3"),
        "m2": named("t-1, t-4"),
    }


def test_a_large_group_is_shared_out_in_no_time() -> None:
    topics = {f"t{number}": 10 for number in range(500)}
    every = " ".join(topics)
    racks_by_topic, group = without_racks(topics), members(*[every] * 50)
    before = STICKY.assign(racks_by_topic, group)
    more = after(group, before) | {"new": group["m0"]}
    now = STICKY.assign(racks_by_topic, more)
    assert moved(before, now) == len(now["new"]) == 5_000 // 51


@given(TOPICS, EQUAL_SUBSCRIPTIONS)
def test_kafka_python_keeps_what_we_have_given(
    topics: dict[str, int], subscriptions: dict[str, MemberSubscription]
) -> None:
    before = STICKY.assign(without_racks(topics), subscriptions)
    told = {
        name: replace(row, user_data=b"\0\1" + (row.user_data or b""))  # as it writes it itself
        for name, row in after(subscriptions, before).items()
    }
    assert assigned_by(StickyPartitionAssignor(), topics, told) == before
    assert STICKY.assign(without_racks(topics), told) == before
