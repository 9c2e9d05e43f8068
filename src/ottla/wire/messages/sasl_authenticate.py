"""SaslAuthenticate (API 36): exchange SASL tokens.

Follows SaslHandshake of version 1, as often as the mechanism needs (KIP-152). Since version 1
the response may limit the session, after which the client must authenticate again (KIP-368).
"""

from ottla.wire.schema import Message, int16, int64, octets, string


class SaslAuthenticateRequest(Message, versions=(0, 2), flexible_since=2):
    """The client's next token."""

    auth_bytes: bytes = octets()


class SaslAuthenticateResponse(Message, versions=(0, 2), flexible_since=2):
    """The server's next token, or the reason for turning the client away."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64(since=1, ignorable=True)
