"""A single group: its state transitions, protocols and leader."""

import pytest

from ottla.machines.groups.classic_group import (
    GENERATION_MAX,
    MOVES,
    ClassicGroup,
    GroupState,
    Member,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.coordinator_records.classic_group import GroupMetadataValue, MemberMetadata
from tests.unit.machines.groups.host import subscription


def member(member_id: str, *protocols: str, instance: str | None = None) -> Member:
    metadata = {name: subscription(f"topic-of-{member_id}") for name in protocols or ("range",)}
    return Member(member_id, instance, "client", "/host", 10_000, 60_000, metadata)


def gathered(*members: Member) -> ClassicGroup:
    group = ClassicGroup("readers")
    group.move(GroupState.PREPARING_REBALANCE)
    for each in members:
        group.add(each, "consumer")
        group.attendance.joining[each.member_id] = 1
    return group


def test_the_state_moves_match_the_drawing() -> None:
    names = {
        state.value: sorted(to.value for to in moves if to is not GroupState.DEAD)
        for state, moves in MOVES.items()
    }
    assert names == {
        "Empty": ["PreparingRebalance"],
        "PreparingRebalance": ["CompletingRebalance", "Empty"],
        "CompletingRebalance": ["PreparingRebalance", "Stable"],
        "Stable": ["PreparingRebalance"],
        "Dead": [],
    }


@pytest.mark.parametrize("origin", GroupState)
@pytest.mark.parametrize("target", GroupState)
def test_only_moves_of_the_table_can_be_taken(origin: GroupState, target: GroupState) -> None:
    group = ClassicGroup("readers")
    group.state = origin
    if target in MOVES[origin]:
        group.move(target)
        assert group.state is target
    else:
        with pytest.raises(AssertionError):
            group.move(target)


def test_most_votes_choose_among_the_protocols_that_all_support() -> None:
    group = gathered(
        member("a", "sticky", "range", "alone"),
        member("b", "range", "sticky"),
        member("c", "range", "sticky"),
    )
    assert group.vote() == "range"


def test_the_first_member_decides_a_tie() -> None:
    assert gathered(member("a", "x", "y"), member("b", "y", "x")).vote() == "x"


def test_a_protocol_that_a_member_lacks_cannot_win() -> None:
    group = gathered(member("a", "new", "old"), member("b", "new", "old"), member("c", "old"))
    assert group.vote() == "old"


def test_support_is_counted_again_as_members_change_and_go() -> None:
    group = gathered(member("a", "x", "y"), member("b", "y"))
    assert not group.supports("consumer", ["x"])
    group.update(member("a", "y"))
    assert not group.supports("consumer", ["x"])
    group.remove("b")
    group.update(member("a", "y", "z"))
    assert group.supports("consumer", ["z"])
    assert not group.supports("connect", ["z"])


def test_an_empty_group_takes_any_protocol_but_none_at_all() -> None:
    group = ClassicGroup("readers")
    assert group.supports("connect", ["anything"])
    assert not group.supports("", ["anything"])
    assert not group.supports("consumer", [])


def test_the_lead_passes_to_the_next_in_line() -> None:
    group = gathered(member("a"), member("b"), member("c"))
    assert group.leader == "a"
    group.remove("a")
    assert group.leader == "b"
    group.remove("c")
    group.remove("b")
    assert group.leader is None


def test_a_leader_that_has_not_joined_is_replaced_by_a_joined_member() -> None:
    group = gathered(member("a"), member("b"))
    del group.attendance.joining["a"]
    assert group.elect()
    assert group.leader == "b"
    group.attendance.joining.clear()
    assert not group.elect()


def test_a_static_member_passes_its_lead_and_its_work_on() -> None:
    group = gathered(member("a-1", instance="a"), member("b"))
    group.members["a-1"].assignment = b"work"
    group.replace("a-1", member("a-2", instance="a"))
    assert group.leader == "a-2"
    assert group.members["a-2"].assignment == b"work"
    assert group.static_member_id("a") == "a-2"
    with pytest.raises(ApiError) as fenced:
        group.check_member("a-1", "a")
    assert fenced.value.code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_stays_one_though_it_joins_without_its_name() -> None:
    group = gathered(member("a-1", instance="a"))
    group.update(member("a-1"))
    assert group.members["a-1"].group_instance_id == "a"


@pytest.mark.parametrize(
    ("member_id", "instance"), [("nobody", None), ("a", "unknown"), ("", None)]
)
def test_strangers_are_unknown_members(member_id: str, instance: str | None) -> None:
    group = gathered(member("a"))
    with pytest.raises(ApiError) as unknown:
        group.check_member(member_id, instance)
    assert unknown.value.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_topics_are_known_once_a_generation_has_begun() -> None:
    group = gathered(member("a"), member("b"))
    assert group.is_subscribed_to("anything")
    group.begin_generation()
    assert group.subscribed_topics == frozenset({"topic-of-a", "topic-of-b"})
    assert not group.is_subscribed_to("anything")


def test_a_subscription_that_cannot_be_read_may_be_to_any_topic() -> None:
    broken = member("a")
    broken.metadata_by_protocol["range"] = b"\x00\x00\x7f\xff\xff\xff"
    group = gathered(broken)
    group.begin_generation()
    assert group.subscribed_topics is None
    assert group.is_subscribed_to("anything")


def test_groups_that_are_not_of_consumers_are_subscribed_to_nothing() -> None:
    group = ClassicGroup("workers")
    group.move(GroupState.PREPARING_REBALANCE)
    group.add(member("a"), "connect")
    group.begin_generation()
    assert not group.is_subscribed_to("topic-of-a")


def test_a_group_that_was_loaded_is_the_group_that_settled() -> None:
    group = gathered(member("a", "range", "sticky"), member("b-1", instance="b"))
    group.begin_generation()
    record = group.propose({"a": b"1", "stranger": b"2"}, 1_000)
    assert isinstance(record.value, GroupMetadataValue)
    group.apply_record(record.value)

    loaded = ClassicGroup.loaded("readers", record.value)

    assert loaded.state is group.state is GroupState.STABLE
    assert loaded.stored_ms == group.stored_ms
    assert (loaded.generation, loaded.leader, loaded.protocol) == (1, "a", "range")
    assert [m.assignment for m in loaded.members.values()] == [b"1", b""]
    assert loaded.static_member_id("b") == "b-1"
    assert loaded.subscribed_topics == group.subscribed_topics
    assert loaded.vote() == "range"


@pytest.mark.parametrize(("generation", "member_ids"), [(1, "a"), (1, "abc"), (3, "ab"), (0, "ab")])
def test_only_a_record_of_this_or_the_next_generation_and_all_members_is_settled(
    generation: int, member_ids: str
) -> None:
    group = gathered(member("a"), member("b"))
    group.begin_generation()
    members = [MemberMetadata(member_id=one, assignment=b"1") for one in member_ids]
    with pytest.raises(AssertionError):
        group.apply_record(GroupMetadataValue(generation=generation, members=members))
    assert (group.state, group.generation) == (GroupState.COMPLETING_REBALANCE, 1)


def test_old_records_know_no_rebalance_timeout_and_perhaps_no_leader() -> None:
    stored = MemberMetadata(member_id="a", session_timeout=7_000, subscription=b"")
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="gone", members=[stored]
    )
    group = ClassicGroup.loaded("readers", value)
    assert group.rebalance_timeout_ms() == 7_000
    assert group.leader == "a"


def test_generations_begin_again_when_numbers_run_out() -> None:
    group = gathered(member("a"))
    group.generation = GENERATION_MAX
    group.begin_generation()
    assert group.generation == 0
