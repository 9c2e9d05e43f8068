"""Settings of topics, brokers, groups and client metrics: describe, change and replace."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, Self, TypeVar

from ottla.clients.admin.per_item_results import ask_each, for_each, in_time, outcome_of
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import check
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.settings import ConfigOperation
from ottla.wire.messages import alter_configs, list_config_resources
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.schema import Message

_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
_ANYBODY: Final = -1
V = TypeVar("V")
R = TypeVar("R", bound=Message)


class ResourceType(IntEnum):
    """The kinds of resources with settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """The name of a resource with settings."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name!r}"

    @classmethod
    def topic(cls, name: str) -> Self:
        """Name a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> Self:
        """Name one broker."""
        return cls(ResourceType.BROKER, str(broker_id))

    @classmethod
    def every_broker(cls) -> Self:
        """Name the cluster-wide default: the value where a broker has no setting of its own."""
        return cls(ResourceType.BROKER, "")

    @classmethod
    def broker_logger(cls, broker_id: int) -> Self:
        """Name the log levels of one broker."""
        return cls(ResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Name a group."""
        return cls(ResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> Self:
        """Name a subscription to client metrics (KIP-714)."""
        return cls(ResourceType.CLIENT_METRICS, name)


class ConfigSource(IntEnum):
    """The source of a value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Append(NamedTuple):
    """Add comma-separated items to a list setting."""

    items: str


class Subtract(NamedTuple):
    """Remove comma-separated items from a list setting."""

    items: str


ConfigChange = str | None | Append | Subtract
"""The new value of a setting; None resets it to its default."""
_OPERATION_BY_TYPE: Final = {
    str: ConfigOperation.SET,
    type(None): ConfigOperation.DELETE,
    Append: ConfigOperation.APPEND,
    Subtract: ConfigOperation.SUBTRACT,
}
_SOURCE_BY_NUMBER: Final = {source.value: source for source in ConfigSource}


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value from another source, in the order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """The description of one setting."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


Configs = dict[str, ConfigEntry]
"""Settings by name."""


class _Row(Protocol):
    """The common fields of results about one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


_Found = Mapping[ConfigResource, V | ApiError]


class ConfigAdmin:
    """Settings calls. The settings of a single broker are read from that broker."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def describe(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        keys: Collection[str] | None = None,
        with_documentation: bool = False,
        with_synonyms: bool = False,
    ) -> dict[ConfigResource, Configs]:
        """Describe the settings of resources, optionally only these names."""

        async def ask(broker_id: int, waiting: list[ConfigResource]) -> _Found[Configs]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configuration_keys=None if keys is None else list(keys),
                    )
                    for resource in waiting
                ],
                include_documentation=with_documentation,
                include_synonyms=with_synonyms,
            )
            if broker_id == _ANYBODY:
                response = await self._view.ask_any(request, DescribeConfigsResponse)
            else:
                response = await self._view.ask_broker(broker_id, request, DescribeConfigsResponse)
            return {_resource(row): _outcome(row, _entries(row)) for row in response.results}

        return await self._each(_several(resources), ask, final=())

    async def alter(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings; all others are unchanged."""

        async def ask(broker_id: int, waiting: list[ConfigResource]) -> _Found[None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configs=[_alterable(*change) for change in changes[resource].items()],
                    )
                    for resource in waiting
                ],
                validate_only=validate_only,
            )
            response = await self._change(broker_id, request, IncrementalAlterConfigsResponse)
            return {_resource(row): _outcome(row, None) for row in response.responses}

        await self._each(list(changes), ask)

    async def replace(
        self,
        settings: Mapping[ConfigResource, Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set exactly these settings; all others return to their defaults."""

        async def ask(broker_id: int, waiting: list[ConfigResource]) -> _Found[None]:
            request = alter_configs.AlterConfigsRequest(
                resources=[
                    alter_configs.AlterConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configs=[
                            alter_configs.AlterableConfig(name=key, value=value)
                            for key, value in settings[resource].items()
                        ],
                    )
                    for resource in waiting
                ],
                validate_only=validate_only,
            )
            response = await self._change(broker_id, request, alter_configs.AlterConfigsResponse)
            return {_resource(row): _outcome(row, None) for row in response.responses}

        await self._each(list(settings), ask)

    async def list_resources(
        self, kinds: Collection[ResourceType] = ()
    ) -> tuple[ConfigResource, ...]:
        """List the resources of these kinds, or all; some may have no settings yet."""
        request = list_config_resources.ListConfigResourcesRequest(resource_types=sorted(kinds))

        async def ask() -> tuple[ConfigResource, ...]:
            response = await self._view.ask_any(
                request, list_config_resources.ListConfigResourcesResponse
            )
            check(response.error_code, "the resources that have settings")
            return tuple(
                sorted(
                    ConfigResource(ResourceType(row.resource_type), row.resource_name)
                    for row in response.config_resources
                )
            )

        return await in_time(self._view, ask)

    async def _change(self, broker_id: int, request: Message, response_type: type[R]) -> R:
        if broker_id == _ANYBODY:
            return await self._view.ask_controller(request, response_type)
        return await self._view.ask_broker(broker_id, request, response_type)

    async def _each(
        self,
        resources: list[ConfigResource],
        ask: Callable[[int, list[ConfigResource]], Awaitable[_Found[V]]],
        final: Collection[ErrorCode] = _MISSING,
    ) -> dict[ConfigResource, V]:
        """Ask each broker about its own resource, and any broker about the others."""

        async def ask_all(waiting: list[ConfigResource]) -> _Found[V]:
            by_broker: dict[int, list[ConfigResource]] = {}
            for resource in waiting:
                by_broker.setdefault(_broker_of(resource), []).append(resource)
            return await ask_each(by_broker, ask)

        return await for_each(self._view, resources, ask_all, final=final)


def _several(resources: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    return [resources] if isinstance(resources, ConfigResource) else list(resources)


def _broker_of(resource: ConfigResource) -> int:
    is_broker = resource.kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}
    return int(resource.name) if is_broker and resource.name.isdigit() else _ANYBODY


def _resource(row: _Row) -> ConfigResource:
    return ConfigResource(ResourceType(row.resource_type), row.resource_name)


def _outcome(row: _Row, fine: V) -> V | ApiError:
    return outcome_of(row.error_code, row.error_message or f"there is no {_resource(row)}", fine)


def _entries(row: DescribeConfigsResult) -> Configs:
    return {one.name: _entry(one) for one in sorted(row.configs, key=lambda one: one.name)}


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.name,
        row.value,
        _source(row.config_source),
        row.read_only,
        row.is_sensitive,
        row.documentation,
        tuple(ConfigSynonym(one.name, one.value, _source(one.source)) for one in row.synonyms),
    )


def _source(number: int) -> ConfigSource:
    return _SOURCE_BY_NUMBER.get(number, ConfigSource.UNKNOWN)


def _alterable(name: str, change: ConfigChange) -> AlterableConfig:
    value = change.items if isinstance(change, Append | Subtract) else change
    return AlterableConfig(
        name=name, config_operation=_OPERATION_BY_TYPE[type(change)], value=value
    )
