"""JoinGroup (API 11): join a classic consumer group.

Since version 4 a member without an id is first sent away with one and must come again
(KIP-394). Static membership came with 5 (KIP-345). Only the leader's response lists the members.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, octets, string


class JoinGroupRequestProtocol(Struct):
    """An assignment strategy that the member can use."""

    name: str = string()
    metadata: bytes = octets()


class JoinGroupRequest(Message, versions=(0, 9), flexible_since=6):
    """Take part in the group's next generation."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(default=-1, since=1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=5, nullable_since=5)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(default=None, since=8, nullable_since=8, ignorable=True)


class JoinGroupResponseMember(Struct):
    """One member, as the leader needs to know it to assign work."""

    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=5, nullable_since=5, ignorable=True)
    metadata: bytes = octets()


class JoinGroupResponse(Message, versions=(0, 9), flexible_since=6):
    """The new generation, and the member's place in it."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(default=None, since=7, nullable_since=7, ignorable=True)
    protocol_name: str | None = string(nullable_since=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
