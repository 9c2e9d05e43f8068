"""FindCoordinator (API 10): find the broker that coordinates a group or a transaction.

The key type is 0 for a group, 1 for a transactional id, 2 for a share partition (since version
6, KIP-932). Since version 4 several keys go in one request (KIP-699).
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, versions=(0, 6), flexible_since=3):
    """Ask for the coordinators of groups, transactions or share partitions."""

    key: str = string(until=4)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array("string", since=4)


class Coordinator(Struct):
    """The coordinator of one key, or why none was found."""

    key: str = string(since=4)
    node_id: int = int32(since=4)
    host: str = string(since=4)
    port: int = int32(since=4)
    error_code: int = int16(since=4)
    error_message: str | None = string(since=4, nullable_since=4, ignorable=True)


class FindCoordinatorResponse(Message, versions=(0, 6), flexible_since=3):
    """The coordinators that were asked for."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=4)
    error_message: str | None = string(since=1, until=4, nullable_since=1, ignorable=True)
    node_id: int = int32(until=4)
    host: str = string(until=4)
    port: int = int32(until=4)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
