"""CreateDelegationToken (API 38): issue a delegation token.

Delegation tokens are KIP-48. Since version 3 a token can be requested for another principal
(KIP-373). A lifetime of -1 takes the broker's default.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, octets, string


class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message, versions=(0, 3), flexible_since=2):
    """Issue a token for this owner."""

    owner_principal_type: str | None = string(since=3, nullable_since=3)
    owner_principal_name: str | None = string(since=3, nullable_since=3)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, versions=(0, 3), flexible_since=2):
    """The new token, or why it was refused."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = octets()
    throttle_time_ms: int = int32()
