"""DescribeConfigs v1-v4: the settings of topics, brokers, loggers, groups and client metrics.

Each resource has an error of its own. A broker describes only itself, and the empty broker name
stands for the cluster-wide dynamic settings.
"""

from dataclasses import dataclass
from typing import Final

from ottla.broker.describing.config_descriptions import ConfigDescriptions, Described
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.time_slices import TimeSlices
from ottla.metadata.image import ClusterImage, ResourceType
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.settings import shown
from ottla.model.topic_names import check_topic_name
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

VERSIONS = range(1, 5)
SETTINGS_MAX: Final = 500_000
"""Settings in one response: all of more than 15,000 topics."""
_BROKER_LOGGER: Final = 8


@dataclass(frozen=True, slots=True)
class DescribeConfigsHandler:
    """Answers DescribeConfigs."""

    store: MetadataStore
    live_config: LiveConfig
    slices: TimeSlices

    async def handle(
        self, _context: RequestContext, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        """Describe the committed settings."""
        image = self.store.image
        descriptions = ConfigDescriptions(
            image,
            self.live_config,
            include_synonyms=request.include_synonyms,
            include_documentation=request.include_documentation,
        )
        results: list[DescribeConfigsResult] = []
        sliced, count = self.slices.begin(steps_per_look=1), 0
        for resource in request.resources:
            result = self._result(image, descriptions, resource, SETTINGS_MAX - count)
            count += len(result.configs)
            results.append(result)
            await sliced.pause()
        return DescribeConfigsResponse(results=results)

    def _result(
        self,
        image: ClusterImage,
        descriptions: ConfigDescriptions,
        resource: DescribeConfigsResource,
        room: int,
    ) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            described = self._described(image, descriptions, resource)
            if len(described) > room:
                raise _refused("the answer is too large: ask for fewer resources at once")
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.detail
        else:
            keys = frozenset(resource.configuration_keys or ())
            result.configs = [one for one in described if one.name in keys] if keys else described
        return result

    def _described(
        self,
        image: ClusterImage,
        descriptions: ConfigDescriptions,
        resource: DescribeConfigsResource,
    ) -> Described:
        name = resource.resource_name
        match resource.resource_type:
            case ResourceType.TOPIC:
                check_topic_name(name)
                if name not in image.topics:
                    raise ApiError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"
                    )
                return descriptions.topic(name)
            case ResourceType.BROKER:
                return descriptions.broker() if self._is_me(name) else descriptions.every_broker()
            case _ if resource.resource_type == _BROKER_LOGGER:
                if not self._is_me(name):
                    raise _refused("loggers belong to a broker: name it by its number")
                return descriptions.loggers()
            case ResourceType.GROUP:
                return descriptions.group(_needed(name))
            case ResourceType.CLIENT_METRICS:
                return descriptions.client_metrics(_needed(name))
            case other:
                raise _refused(f"resources of type {other} have no settings")

    def _is_me(self, name: str) -> bool:
        """Return whether the name is this broker's, or empty; ApiError for another broker."""
        me = str(self.live_config.static.node_id)
        if name not in {"", me}:
            raise _refused(f"this is broker {me}, which cannot speak for {shown(name)}")
        return bool(name)


def _needed(name: str) -> str:
    if not name:
        raise _refused("groups and client metrics subscriptions are described by name")
    return name


def _refused(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)
