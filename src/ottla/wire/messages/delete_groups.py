"""DeleteGroups (API 42): delete groups and their committed offsets.

Sent to the groups' coordinator (KIP-229). A group that still has members is refused with
NON_EMPTY_GROUP.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, versions=(0, 2), flexible_since=2):
    """Delete these groups."""

    groups_names: list[str] = array("string")


class DeletableGroupResult(Struct):
    """Whether one group was deleted."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, versions=(0, 2), flexible_since=2):
    """One result per group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
