"""DescribeDelegationToken (API 41): list delegation tokens.

Null owners ask for every token that the caller may see (KIP-48). Since version 3 the response
also has the principal that requested the token (KIP-373).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, octets, string


class DescribeDelegationTokenOwner(Struct):
    """A principal to list the tokens of."""

    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Message, versions=(0, 3), flexible_since=2):
    """List the tokens of these owners."""

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable_since=0
    )


class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Struct):
    """A token and its owner."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = octets()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Message, versions=(0, 3), flexible_since=2):
    """The tokens that were found."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
