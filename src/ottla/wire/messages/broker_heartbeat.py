"""BrokerHeartbeat (API 63): keep a broker registered, and steer its state.

Sent by every broker to the active controller (KIP-631). A new broker stays fenced until it has
caught up with the metadata. Version 1 reports failed log directories (KIP-858), version 2 cordoned
log directories (KIP-1066).
"""

from ottla.wire.schema import Message, array, boolean, int16, int32, int64


class BrokerHeartbeatRequest(Message, versions=(0, 2), flexible_since=0):
    """This broker is alive, has got this far, and wants this state."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array("uuid", since=1, tag=0)
    cordoned_log_dirs: list[bytes] | None = array(
        "uuid", default=None, since=2, nullable_since=2, tag=1
    )


class BrokerHeartbeatResponse(Message, versions=(0, 2), flexible_since=0):
    """The state that the controller grants the broker."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
