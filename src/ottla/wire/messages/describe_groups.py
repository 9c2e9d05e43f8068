"""DescribeGroups (API 15): describe classic consumer groups.

Sent to the groups' coordinator. Authorized operations can be asked for since version 3. An
unknown group was reported as dead; since version 6 it is GROUP_ID_NOT_FOUND (KIP-1043).
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, octets, string


class DescribeGroupsRequest(Message, versions=(0, 6), flexible_since=5):
    """Describe these classic groups."""

    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    """One member of a classic group, and its work."""

    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=4, nullable_since=4, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


class DescribedGroup(Struct):
    """The state of one classic group, and its members."""

    error_code: int = int16()
    error_message: str | None = string(default=None, since=6, nullable_since=6)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(default=-2147483648, since=3)


class DescribeGroupsResponse(Message, versions=(0, 6), flexible_since=5):
    """The classic groups that were asked for."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
