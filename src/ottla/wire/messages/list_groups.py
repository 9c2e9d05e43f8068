"""ListGroups (API 16): list the groups that a broker coordinates.

Each broker knows only its own groups, so a full list takes asking all of them. Filtering by
state came with version 4 (KIP-518), by type with 5 (KIP-848).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, versions=(0, 5), flexible_since=3):
    """List the groups in these states and of these types."""

    states_filter: list[str] = array("string", since=4)
    types_filter: list[str] = array("string", since=5)


class ListedGroup(Struct):
    """One group, in brief."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


class ListGroupsResponse(Message, versions=(0, 5), flexible_since=3):
    """The groups coordinated here."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
