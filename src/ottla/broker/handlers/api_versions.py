"""ApiVersions v0-v4: the supported APIs, and the enabled features.

The list is made from the table of routes. APIs without a use yet are left out. So are missing
features, because clients choose by them. Before version 4 features with a first level of 0 are left
out, too, because clients could not read them (KAFKA-17492).

Since version 3 a client sends its name and version, in letters, digits, dots and dashes. An unknown
version of this request gets a response in version 0 with UNSUPPORTED_VERSION and the list; dispatch
does that.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.routes import Routes, offered_versions
from ottla.machines.controller.features import SUPPORTED_LEVELS
from ottla.metadata.image import ClusterImage
from ottla.metadata.metadata_version import KRAFT_VERSION_FEATURE
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

VERSIONS = range(5)


_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE: Final = 3
_LEVEL_0_SINCE: Final = 4


def _no_quorum() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class ApiVersionsHandler:
    """Answers ApiVersions."""

    routes: Callable[[], Routes]
    image: Callable[[], ClusterImage]
    kraft_version: Callable[[], int] = _no_quorum
    """The level of the quorum, which is not in the image; 0 without a quorum."""

    async def handle(
        self, context: RequestContext, request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        """List every API and every feature."""
        if context.api_version >= _SOFTWARE_SINCE and not _is_introduced(request):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        image = self.image()
        finalized = {**image.level_by_feature, KRAFT_VERSION_FEATURE: self.kraft_version()}
        return ApiVersionsResponse(
            api_keys=offered_versions(self.routes()),
            supported_features=[
                SupportedFeatureKey(name=name, min_version=first, max_version=last)
                for name, (first, last) in SUPPORTED_LEVELS.items()
                if first > 0 or context.api_version >= _LEVEL_0_SINCE
            ],
            finalized_features_epoch=image.end_offset - 1,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(finalized.items())
                if level > 0
            ],
        )


def _is_introduced(request: ApiVersionsRequest) -> bool:
    words = (request.client_software_name, request.client_software_version)
    return all(map(_SOFTWARE.fullmatch, words))
