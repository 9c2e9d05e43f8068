"""From a frame to the pieces of its answer: header, version, handler, header again."""

import logging
from dataclasses import dataclass
from typing import Any, Final

from ottla.broker.handlers.api_versions import api_versions
from ottla.broker.metrics.meters import VERSION_BITS, Meters
from ottla.broker.request_context import (
    ANONYMOUS,
    NOT_INTRODUCED,
    Introduction,
    RequestContext,
)
from ottla.broker.routes import Routes
from ottla.environment.clock import Clock
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_request, encode_response
from ottla.wire.headers import RequestHeader, read_request_header
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.protocol_error import ProtocolError

NS_PER_MS: Final = 1_000_000
INTRODUCED_SINCE: Final = 3
"""The version of ApiVersions since which clients say what they are."""
SOFTWARE_CHARACTERS_MAX: Final = 257
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Peer:
    """The other end of a connection, and how it has introduced itself."""

    address: str
    listener: str
    introduction: Introduction = NOT_INTRODUCED

    def introduce(self, request: ApiVersionsRequest) -> None:
        """Remember which software this is, as far as names of software are that long."""
        self.introduction = Introduction(
            self.introduction.port,
            request.client_software_name[:SOFTWARE_CHARACTERS_MAX],
            request.client_software_version[:SOFTWARE_CHARACTERS_MAX],
        )


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Answers frames. A ProtocolError means that the peer cannot be talked to any more."""

    routes: Routes
    clock: Clock
    meters: Meters

    async def __call__(self, peer: Peer, frame: memoryview) -> list[Any] | None:
        """Return the pieces of the answer, length first; None if the request wants none."""
        header, position = read_request_header(frame)
        route = self.routes.get(header.api_key)
        if route is None or header.api_version not in route.versions:
            return self._unsupported(header)
        started_ns = self.clock.monotonic_ns()
        request = decode_request(header, frame, position)
        if isinstance(request, ApiVersionsRequest) and header.api_version >= INTRODUCED_SINCE:
            peer.introduce(request)
        context = RequestContext(
            ANONYMOUS,
            header.client_id,
            peer.address,
            peer.listener,
            header.api_version,
            started_ns // NS_PER_MS,
            peer.introduction,
        )
        response = await route.handle(context, request)
        pieces = None
        meter = self.meters[header.api_key << VERSION_BITS | header.api_version]
        if response is not None:
            pieces = encode_response(
                header.api_key, header.api_version, header.correlation_id, response
            )
            if meter.find_errors is not None:
                self.meters.count_errors(header.api_key, meter.find_errors(response))
        elapsed_ns = self.clock.monotonic_ns() - started_ns
        meter.buckets[(elapsed_ns * elapsed_ns).bit_length()] += 1
        meter.total_ns += elapsed_ns
        meter.request_bytes += len(frame)
        return pieces

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
