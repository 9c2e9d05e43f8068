"""From a frame to the pieces of its answer: header, version, handler, header again."""

import logging
from dataclasses import dataclass
from typing import Any, Final

from ottla.broker.handlers.api_versions import api_versions
from ottla.broker.request_context import RequestContext
from ottla.broker.routes import Routes
from ottla.environment.clock import Clock
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_request, encode_response
from ottla.wire.headers import RequestHeader, read_request_header
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.protocol_error import ProtocolError

ANONYMOUS: Final = "User:ANONYMOUS"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection."""

    address: str
    listener: str


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Answers frames. A ProtocolError means that the peer cannot be talked to any more."""

    routes: Routes
    clock: Clock

    async def __call__(self, peer: Peer, frame: memoryview) -> list[Any] | None:
        """Return the pieces of the answer, length first; None if the request wants none."""
        header, position = read_request_header(frame)
        route = self.routes.get(header.api_key)
        if route is None or header.api_version not in route.versions:
            return self._unsupported(header)
        request = decode_request(header, frame, position)
        context = RequestContext(
            principal=ANONYMOUS,
            client_id=header.client_id,
            client_address=peer.address,
            listener=peer.listener,
            api_version=header.api_version,
            received_ms=self.clock.monotonic_ms(),
        )
        response = await route.handle(context, request)
        if response is None:
            return None
        return encode_response(header.api_key, header.api_version, header.correlation_id, response)

    def _unsupported(self, header: RequestHeader) -> list[Any]:
        """Answer an unknown version of ApiVersions in version 0; refuse everything else."""
        if header.api_key != ApiKey.API_VERSIONS:
            raise ProtocolError(
                f"{ApiKey(header.api_key).name} v{header.api_version} is not offered",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        _log.debug("ApiVersions v%d asked for: answered in version 0", header.api_version)
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=api_versions(self.routes)
        )
        return encode_response(ApiKey.API_VERSIONS, 0, header.correlation_id, response)
