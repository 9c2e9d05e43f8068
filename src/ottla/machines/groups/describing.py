"""DescribeGroups and ListGroups: the operator's view of groups."""

from typing import Final

from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_store import Roster
from ottla.machines.groups.member import Member
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest

CLASSIC_TYPE: Final = "classic"
GROUP_ID_NOT_FOUND_SINCE: Final = 6


def describe(roster: Roster, group_id: str, api_version: int) -> DescribedGroup:
    """Describe a group and its members; an unknown group is Dead, or an error in new versions."""
    group = roster.get(group_id)
    if group is None:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= GROUP_ID_NOT_FOUND_SINCE:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = f"There is no group {group_id}."
        return missing
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_described(member, protocol) for member in group.members.values()],
    )


def list_groups(roster: Roster, request: ListGroupsRequest) -> list[ListedGroup]:
    """Show the groups in these states and of these types, or all; letter case is no matter."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {group_type.strip().lower() for group_type in request.types_filter}
    if types and CLASSIC_TYPE not in types:
        return []
    return [
        _listed(group)
        for group in roster.groups()
        if not states or group.state.value.lower() in states
    ]


def _described(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata_by_protocol[protocol],
        member_assignment=member.assignment,
    )


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )
