"""Heartbeat (API 12): keep a classic group member alive.

After REBALANCE_IN_PROGRESS the member joins again. The static instance id came with version 3
(KIP-345).
"""

from ottla.wire.schema import Message, int16, int32, string


class HeartbeatRequest(Message, versions=(0, 4), flexible_since=4):
    """This member is still alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable_since=3)


class HeartbeatResponse(Message, versions=(0, 4), flexible_since=4):
    """Whether the member may carry on or must join again."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
