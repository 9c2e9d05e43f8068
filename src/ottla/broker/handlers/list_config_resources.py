"""ListConfigResources v0-v1: the resources with settings, by type.

Version 0 knows client metrics subscriptions only. In version 1 an empty list means all types.
"""

from dataclasses import dataclass
from typing import Final

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.metadata.image import ClusterImage, ResourceType
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

VERSIONS = range(2)
_BROKER_LOGGER: Final = 8
_ALL: Final = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    _BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


@dataclass(frozen=True, slots=True)
class ListConfigResourcesHandler:
    """Answers ListConfigResources."""

    store: MetadataStore

    async def handle(
        self, context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """List existing topics, brokers and loggers, and other resources that have settings."""
        known = _ALL if context.api_version > 0 else (ResourceType.CLIENT_METRICS,)
        wanted = frozenset(request.resource_types or known)
        if not wanted <= frozenset(known):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in known
                if kind in wanted
                for name in _names(self.store.image, kind)
            ]
        )


def _names(image: ClusterImage, kind: int) -> list[str]:
    match kind:
        case ResourceType.TOPIC:
            return list(image.topics)
        case ResourceType.GROUP | ResourceType.CLIENT_METRICS:
            return [resource.name for resource in image.configs if resource.kind == kind]
        case _:
            return [str(number) for number in image.brokers]
