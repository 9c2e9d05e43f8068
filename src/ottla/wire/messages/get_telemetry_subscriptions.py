"""GetTelemetrySubscriptions (API 71): learn which metrics the cluster wants from a client.

The first step of KIP-714. A zero client id asks the broker to make one up. No requested metrics
means none are wanted; one empty name means all are.
"""

from ottla.wire.schema import Message, array, boolean, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Message, versions=(0, 0), flexible_since=0):
    """Ask which metrics this client should push."""

    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Message, versions=(0, 0), flexible_since=0):
    """The metrics wanted, and how and how often to push them."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array("int8")
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array("string")
