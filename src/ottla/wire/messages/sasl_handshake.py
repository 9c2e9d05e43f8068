"""SaslHandshake (API 17): choose a SASL mechanism.

After version 0 the SASL tokens follow bare on the connection; after version 1 they travel in
SaslAuthenticate (KIP-152).
"""

from ottla.wire.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, versions=(0, 1)):
    """Authenticate with this mechanism."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, versions=(0, 1)):
    """Whether the mechanism will do, and which ones would."""

    error_code: int = int16()
    mechanisms: list[str] = array("string")
