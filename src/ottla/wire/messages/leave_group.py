"""LeaveGroup (API 13): leave a classic consumer group.

Since version 3 one request can remove several members, static ones included (KIP-345); since 5
each can give a reason (KIP-800).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    """A member that leaves, and why."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(default=None, since=3, nullable_since=3)
    reason: str | None = string(default=None, since=5, nullable_since=5, ignorable=True)


class LeaveGroupRequest(Message, versions=(0, 5), flexible_since=4):
    """Remove these members from the group."""

    group_id: str = string()
    member_id: str = string(until=3)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    """Whether one member was removed."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3)
    error_code: int = int16(since=3)


class LeaveGroupResponse(Message, versions=(0, 5), flexible_since=4):
    """The outcome of the departure."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
