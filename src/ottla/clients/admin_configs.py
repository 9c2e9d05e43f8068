"""Settings of topics, brokers and groups: described, set, deleted."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ottla.clients.cluster_view import ClusterView
from ottla.clients.errors import check, only
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ResourceType(IntEnum):
    """What settings belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigOperation(IntEnum):
    """What to do with a setting; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_SOURCE_BY_NUMBER = {source.value: source for source in ConfigSource}


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting, as the broker describes it."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None


class ConfigAdmin:
    """Calls about settings. A broker's own settings are asked of that broker."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def describe(
        self,
        resource: ResourceType,
        name: str,
        *,
        keys: Collection[str] | None = None,
        with_documentation: bool = False,
    ) -> list[ConfigEntry]:
        """Describe the settings of a resource, or only these of them, by name."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource,
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
            ],
            include_documentation=with_documentation,
        )

        async def ask() -> list[ConfigEntry]:
            if broker_id := _broker_of(resource, name):
                answer = await self._view.ask_broker(
                    int(broker_id), request, DescribeConfigsResponse
                )
            else:
                answer = await self._view.ask_any(request, DescribeConfigsResponse)
            result = only(answer.results, "a resource")
            check(
                result.error_code, result.error_message or f"there is no {_shown(resource, name)}"
            )
            return [
                ConfigEntry(
                    row.name,
                    row.value,
                    _SOURCE_BY_NUMBER.get(row.config_source, ConfigSource.UNKNOWN),
                    row.read_only,
                    row.is_sensitive,
                    row.documentation,
                )
                for row in sorted(result.configs, key=lambda row: row.name)
            ]

        return await self._view.retried(ask, final=(MISSING,))

    async def alter(
        self,
        resource: ResourceType,
        name: str,
        changes: Mapping[str, tuple[ConfigOperation, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings; those that are not named stay as they are."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource,
                    resource_name=name,
                    configs=[
                        AlterableConfig(name=key, config_operation=operation, value=value)
                        for key, (operation, value) in changes.items()
                    ],
                )
            ],
            validate_only=validate_only,
        )

        async def ask() -> None:
            if broker_id := _broker_of(resource, name):
                answer = await self._view.ask_broker(
                    int(broker_id), request, IncrementalAlterConfigsResponse
                )
            else:
                answer = await self._view.ask_controller(request, IncrementalAlterConfigsResponse)
            for row in answer.responses:
                check(row.error_code, row.error_message or f"there is no {_shown(resource, name)}")

        await self._view.retried(ask, final=(MISSING,))


def _broker_of(resource: ResourceType, name: str) -> str:
    """Return the broker that has to be asked, or nothing if any will do."""
    return name if resource in {ResourceType.BROKER, ResourceType.BROKER_LOGGER} else ""


def _shown(resource: ResourceType, name: str) -> str:
    return f"{resource.name.lower().replace('_', ' ')} {name!r}"
