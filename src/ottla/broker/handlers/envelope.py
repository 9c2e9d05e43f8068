"""Envelope v0: a client's request that another broker forwards (KIP-590).

For brokers only, and not advertised to clients: it names another principal, so it counts only on
listeners for brokers. Inside are requests that only the controller can answer. Principal and
address are in Kafka's format (`forwarded_identity.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.requests.forwarded_identity import address_of, principal_of
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.response_error_codes import error_finder
from ottla.broker.requests.routes import Routes
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.codec import decode_request, encode_response
from ottla.wire.frames import LENGTH_BYTES
from ottla.wire.headers import read_request_header
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.protocol_error import ProtocolError

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class EnvelopeHandler:
    """Answers Envelope."""

    routes: Callable[[], Routes]
    """The routes of forwarded requests, without forwarding."""
    is_controller: Callable[[], bool]
    listener: str
    """Where brokers come in."""

    async def handle(self, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
        """Handle the forwarded request; a response with NOT_CONTROLLER is not passed on."""
        if context.listener != self.listener:
            return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not self.is_controller():
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        try:
            return EnvelopeResponse(response_data=await self._answer(context, request))
        except ApiError as error:
            return EnvelopeResponse(error_code=error.code)

    async def _answer(self, context: RequestContext, envelope: EnvelopeRequest) -> bytes:
        frame = memoryview(envelope.request_data)
        try:
            header, position = read_request_header(frame)
            route = self.routes().get(header.api_key)
            if route is None or not route.is_for_controller:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"API {header.api_key} in an envelope")
            if header.api_version not in route.versions:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
            request = decode_request(header, frame, position)
        except ProtocolError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"in an envelope: {error}") from None
        inner = RequestContext(
            principal=principal_of(envelope.request_principal or b""),
            client_id=header.client_id,
            client_address=address_of(envelope.client_host_address),
            listener=context.listener,
            api_version=header.api_version,
            received_ms=context.received_ms,
        )
        response = await route.handle(inner, request)
        if ErrorCode.NOT_CONTROLLER in error_finder(header.api_key)(response):
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        pieces = encode_response(
            header.api_key, header.api_version, header.correlation_id, response
        )
        return b"".join(pieces)[LENGTH_BYTES:]
