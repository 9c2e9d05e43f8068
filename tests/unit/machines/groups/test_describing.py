"""DescribeGroups and ListGroups."""

import pytest

from ottla.model.error_code import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.writing import encode
from tests.unit.machines.groups.host import GROUP, Host, subscription


def describe(host: Host, group_id: str = GROUP, version: int = 6) -> DescribedGroup:
    described = host.run(host.machine.decide_describe(group_id, version))
    encode(DescribeGroupsResponse(groups=[described]), version)
    return described


def listed(host: Host, *states: str, types: list[str] | None = None) -> list[str]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=types or [])
    return [group.group_id for group in host.run(host.machine.decide_list(request))]


def test_a_stable_group_is_shown_with_all_its_members_do() -> None:
    host = Host()
    leader, follower = host.stable_group()
    group = describe(host)
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    first, second = group.members
    assert (first.member_id, second.member_id) == (leader, follower)
    assert (first.client_id, first.client_host) == ("client", "/10.0.0.1")
    assert first.member_metadata == subscription("events")
    assert second.member_assignment == follower.encode()


def test_a_group_that_rebalances_has_no_protocol_to_show() -> None:
    host = Host()
    leader, _ = host.stable_group()
    host.join(leader)
    group = describe(host)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]
    assert group.members[0].member_assignment == leader.encode()


def test_a_group_without_members_is_empty_and_of_no_type() -> None:
    host = Host()
    host.commit(1)
    group = describe(host)
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "", [])


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_group_that_is_not_there_is_dead(version: int, code: ErrorCode) -> None:
    group = describe(Host(), "unknown", version)
    assert (group.group_id, group.group_state, group.error_code) == ("unknown", "Dead", code)


def test_groups_are_listed_by_state_and_type() -> None:
    host = Host()
    host.stable_group()
    host.commit(1, group="simple")
    assert listed(host) == [GROUP, "simple"]
    assert listed(host, "stable") == [GROUP]
    assert listed(host, " Empty", "Dead") == ["simple"]
    assert listed(host, "nonsense") == []
    assert listed(host, types=["Classic", "share"]) == [GROUP, "simple"]
    assert listed(host, types=["consumer"]) == []


def test_a_listed_group_says_what_it_is() -> None:
    host = Host()
    host.stable_group()
    (group,) = host.run(host.machine.decide_list(ListGroupsRequest()))
    assert (group.protocol_type, group.group_state, group.group_type) == (
        "consumer",
        "Stable",
        "classic",
    )
