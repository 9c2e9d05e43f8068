"""RenewDelegationToken (API 39): extend the lifetime of a delegation token.

The token is recognized by its HMAC, and cannot outlive its maximum lifetime (KIP-48).
"""

from ottla.wire.schema import Message, int16, int32, int64, octets


class RenewDelegationTokenRequest(Message, versions=(0, 2), flexible_since=2):
    """Extend the lifetime of this token."""

    hmac: bytes = octets()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, versions=(0, 2), flexible_since=2):
    """Until when the token is good now."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
