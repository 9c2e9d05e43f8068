"""PushTelemetry (API 72): deliver a client's metrics.

The metrics are in the OTLP format of OpenTelemetry, possibly compressed (KIP-714). A client
that is about to stop may push one last time before the interval is over.
"""

from ottla.wire.schema import Message, boolean, int8, int16, int32, octets, uuid


class PushTelemetryRequest(Message, versions=(0, 0), flexible_since=0):
    """Take these metrics."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = octets()


class PushTelemetryResponse(Message, versions=(0, 0), flexible_since=0):
    """Whether the metrics were taken."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
