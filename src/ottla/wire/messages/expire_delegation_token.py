"""ExpireDelegationToken (API 40): make a delegation token expire.

The token is recognized by its HMAC (KIP-48). A negative period ends it at once.
"""

from ottla.wire.schema import Message, int16, int32, int64, octets


class ExpireDelegationTokenRequest(Message, versions=(0, 2), flexible_since=2):
    """Let this token expire, at once or after a while."""

    hmac: bytes = octets()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, versions=(0, 2), flexible_since=2):
    """When the token expires."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
