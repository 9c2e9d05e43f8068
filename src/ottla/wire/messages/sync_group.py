"""SyncGroup (API 14): hand out the assignments of a classic group generation.

Every member sends it after joining, but only the leader's carries assignments. The broker does
not look inside them. Protocol type and name are checked since version 5 (KIP-559).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, octets, string


class SyncGroupRequestAssignment(Struct):
    """The work that the leader gives one member."""

    member_id: str = string()
    assignment: bytes = octets()


class SyncGroupRequest(Message, versions=(0, 5), flexible_since=4):
    """Ask for this member's assignment; the group's leader sends the assignments of all."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable_since=3)
    protocol_type: str | None = string(default=None, since=5, nullable_since=5, ignorable=True)
    protocol_name: str | None = string(default=None, since=5, nullable_since=5, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, versions=(0, 5), flexible_since=4):
    """The work given to this member."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(default=None, since=5, nullable_since=5, ignorable=True)
    protocol_name: str | None = string(default=None, since=5, nullable_since=5, ignorable=True)
    assignment: bytes = octets()
