"""ApiVersions v0-v4: which APIs are offered, and which features are on.

The list is made from the table of routes, so it tells the truth, with one exception that clients
need: Produce is reported from version 0 on, because librdkafka takes a higher minimum for a broker
that cannot be produced to (KAFKA-18659). An unknown version of this request is answered in version
0 with UNSUPPORTED_VERSION and the list; that is dispatch's part.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.request_context import RequestContext
from ottla.broker.routes import Routes
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

VERSIONS = range(5)


@dataclass(frozen=True, slots=True)
class ApiVersionsHandler:
    """Answers ApiVersions."""

    routes: Callable[[], Routes]

    async def handle(
        self, _context: RequestContext, _request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        """List every API."""
        return ApiVersionsResponse(api_keys=api_versions(self.routes()))


def api_versions(routes: Routes) -> list[ApiVersion]:
    """Return what is offered, in the order of the keys."""
    return [
        ApiVersion(
            api_key=key,
            min_version=0 if key == ApiKey.PRODUCE else route.versions[0],
            max_version=route.versions[-1],
        )
        for key, route in sorted(routes.items())
    ]
