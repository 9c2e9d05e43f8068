"""UnregisterBroker (API 64): remove a broker from the cluster.

Meant for a broker that will not come back; it should be shut down first.
"""

from ottla.wire.schema import Message, int16, int32, string


class UnregisterBrokerRequest(Message, versions=(0, 0), flexible_since=0):
    """Forget this broker."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Message, versions=(0, 0), flexible_since=0):
    """Whether the broker was forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
