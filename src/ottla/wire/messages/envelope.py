"""Envelope (API 58): forward a client's request to the controller.

Brokers wrap the requests that only the controller can carry out, together with the client's
identity (KIP-590).
"""

from ottla.wire.schema import Message, int16, octets


class EnvelopeRequest(Message, versions=(0, 0), flexible_since=0):
    """Carry out this request on behalf of the client."""

    request_data: bytes = octets()
    request_principal: bytes | None = octets(nullable_since=0)
    client_host_address: bytes = octets()


class EnvelopeResponse(Message, versions=(0, 0), flexible_since=0):
    """The controller's response, for the client."""

    response_data: bytes | None = octets(default=None, nullable_since=0)
    error_code: int = int16()
