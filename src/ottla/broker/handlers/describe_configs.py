"""DescribeConfigs v1-v4: the settings of topics, brokers, loggers, groups and client metrics.

Each resource has an error of its own. A broker describes only itself, and the empty broker name
stands for the cluster-wide dynamic settings.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile
from typing import Final

from ottla.broker.describing.log_levels import log_levels
from ottla.broker.hosting.live_config import LiveConfig, topic_config
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.machines.controller.effective_configs import ConfigSource
from ottla.metadata.image import EVERY_BROKER, ClusterImage, ConfigResource, ResourceType
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.broker_config import (
    BROKER_SYNONYMS,
    TOPIC_SYNONYMS,
    BrokerConfig,
    can_change_while_running,
    is_unknown,
)
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.client_metrics_config import CLIENT_METRICS_SETTINGS, ClientMetricsConfig
from ottla.model.settings.group_config import GROUP_SETTINGS, GroupConfig
from ottla.model.settings.settings import Setting, SettingType, shown, split_list
from ottla.model.settings.topic_config import TOPIC_SETTINGS
from ottla.model.topic_names import check_topic_name
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

Described = list[DescribeConfigsResourceResult]
_DEFAULTS: Final[Mapping[str, str]] = BrokerConfig().as_strings()
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    name: (name, other)
    for setting in BROKER_SETTINGS.values()
    if setting.alias_of
    for name, other in (
        (setting.name, setting.alias_of),
        (setting.alias_of, setting.name),
    )
}

VERSIONS = range(1, 5)
SETTINGS_MAX: Final = 500_000
"""Settings in one response: all of more than 15,000 topics."""
_BROKER_LOGGER: Final = 8


class ConfigDescriptions:
    """Describes the resources of one request, by one image.

    The synonyms of a setting are in the order in which they count: the resource's own value, this
    broker's dynamic value, the cluster-wide dynamic value, the broker's configuration, the default.
    """

    def __init__(
        self,
        image: ClusterImage,
        live_config: LiveConfig,
        *,
        include_synonyms: bool,
        include_documentation: bool,
    ) -> None:
        self._image = image
        self._live_config = live_config
        self._include_synonyms = include_synonyms
        self._include_documentation = include_documentation

    def topic(self, name: str) -> Described:
        """Return the settings of a topic. Topics share the inherited ones."""
        own = self._image.topic_settings(name)
        if not own:
            return self._inherited
        texts = topic_config(own, self._live_config.topic_defaults, name).as_strings()
        return [
            self._own_of_topic(one.name, texts[one.name], own[one.name]) if one.name in own else one
            for one in self._inherited
        ]

    def broker(self) -> Described:
        """Return the settings of this broker."""
        texts = self._live_config.current.as_strings()
        others = {
            name: text
            for name, text in self._image.broker_settings(self._live_config.static.node_id).items()
            if name not in BROKER_SETTINGS
        }
        return [
            self._of_broker(name, text)
            for name, text in [
                *((name, texts.get(name)) for name in BROKER_SETTINGS),
                *others.items(),
            ]
        ]

    def every_broker(self) -> Described:
        """Return the cluster-wide dynamic settings of brokers, and no others."""
        settings = self._image.configs.get(EVERY_BROKER, {})
        return [
            self._entry(
                BROKER_SETTINGS.get(name),
                name,
                text,
                [_broker_synonym(name, text, ConfigSource.EVERY_BROKER)],
                is_read_only=is_unknown(name),
                is_sensitive=is_unknown(name),
            )
            for name, text in settings.items()
        ]

    def group(self, name: str) -> Described:
        """Return the settings of a group, which need not exist yet."""
        own = self._image.group_settings(name)
        defaults = GroupConfig().as_strings()
        return [
            self._entry(
                setting,
                setting.name,
                own.get(setting.name, defaults[setting.name]),
                _set_or_default(setting.name, own, defaults, ConfigSource.GROUP),
            )
            for setting in GROUP_SETTINGS.values()
        ]

    def client_metrics(self, name: str) -> Described:
        """Return the settings of a client metrics subscription, which need not exist yet."""
        own = self._image.configs.get(ConfigResource(ResourceType.CLIENT_METRICS, name), {})
        defaults = ClientMetricsConfig().as_strings()
        return [
            self._entry(
                setting,
                setting.name,
                own.get(setting.name, defaults[setting.name]),
                _set_or_default(setting.name, own, {}, ConfigSource.CLIENT_METRICS),
            )
            for setting in CLIENT_METRICS_SETTINGS.values()
        ]

    def loggers(self) -> Described:
        """Return the levels of this broker's loggers."""
        return [
            DescribeConfigsResourceResult(
                name=name, value=level, config_source=ConfigSource.BROKER_LOGGER
            )
            for name, level in log_levels().items()
        ]

    # -- single settings ------------------------------------------------------------------------

    @cached_property
    def _inherited(self) -> Described:
        """All settings of a topic that has set nothing itself."""
        texts = self._live_config.topic_defaults.as_strings()
        return [
            self._entry(setting, setting.name, texts[setting.name], self._behind(setting.name))
            for setting in TOPIC_SETTINGS.values()
        ]

    def _own_of_topic(self, name: str, text: str, given: str) -> DescribeConfigsResourceResult:
        setting = TOPIC_SETTINGS[name]
        own = _synonym(name, _in_order(setting, text, given), ConfigSource.TOPIC)
        return self._entry(setting, name, text, [own, *self._behind(name)])

    def _behind(self, topic_setting: str) -> list[DescribeConfigsSynonym]:
        """Return the broker synonyms of a topic's setting."""
        names = [synonym.name for synonym in TOPIC_SYNONYMS.get(topic_setting, ())]
        return self._since(names[0], names) if names else []

    def _of_broker(self, name: str, text: str | None) -> DescribeConfigsResourceResult:
        if name in BROKER_SYNONYMS:
            synonyms = self._since(name, BROKER_SYNONYMS[name])
        else:
            synonyms = self._at_brokers(_ALIASES.get(name, (name,)))
        # Kafka marks an unknown setting as read-only, too, although it can be altered.
        is_unknown_ = is_unknown(name)
        is_fixed = name in BROKER_SETTINGS and not can_change_while_running(name)
        return self._entry(
            BROKER_SETTINGS.get(name),
            name,
            text,
            synonyms,
            is_read_only=is_fixed or is_unknown_,
            is_sensitive=is_unknown_,
        )

    def _since(self, name: str, names: Iterable[str]) -> list[DescribeConfigsSynonym]:
        """Return the synonyms from the first synonym with this name on, as Kafka does.

        A setting in another unit that takes precedence is no source of this setting's value. A
        topic's `retention.ms` has no synonyms unless `log.retention.ms` is set, even if
        `log.retention.hours` provides the value.
        """
        return list(dropwhile(lambda one: one.name != name, self._at_brokers(names)))

    def _at_brokers(self, names: Iterable[str]) -> list[DescribeConfigsSynonym]:
        static = self._live_config.static
        own = ConfigResource(ResourceType.BROKER, str(static.node_id))
        levels = (
            (self._image.configs.get(own, {}), ConfigSource.BROKER),
            (self._image.configs.get(EVERY_BROKER, {}), ConfigSource.EVERY_BROKER),
            (static.given, ConfigSource.FILE),
            (_DEFAULTS, ConfigSource.DEFAULT),
        )
        return [
            _broker_synonym(name, settings[name], source)
            for settings, source in levels
            for name in names
            if name in settings
        ]

    def _entry(
        self,
        setting: Setting | None,
        name: str,
        text: str | None,
        synonyms: list[DescribeConfigsSynonym],
        *,
        is_read_only: bool = False,
        is_sensitive: bool = False,
    ) -> DescribeConfigsResourceResult:
        is_sensitive = is_sensitive or (setting is not None and setting.is_sensitive)
        if synonyms:
            text = _in_order(setting, text, synonyms[0].value)
        return DescribeConfigsResourceResult(
            name=name,
            value=None if is_sensitive else text,
            read_only=is_read_only,
            config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            is_sensitive=is_sensitive,
            synonyms=synonyms if self._include_synonyms else [],
            config_type=0 if setting is None else setting.kind.type,
            documentation=setting.documentation
            if setting and self._include_documentation
            else None,
        )


def _synonym(name: str, text: str | None, source: ConfigSource) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=text, source=source)


def _broker_synonym(name: str, text: str, source: ConfigSource) -> DescribeConfigsSynonym:
    setting = BROKER_SETTINGS.get(name)
    is_sensitive = is_unknown(name) or (setting is not None and setting.is_sensitive)
    return _synonym(name, None if is_sensitive else text, source)


def _in_order(setting: Setting | None, text: str | None, given: str | None) -> str | None:
    """Return a list as it was given, if it is that list, and anything else as it counts."""
    if setting is None or setting.kind.type is not SettingType.LIST or not text or not given:
        return text
    items = split_list(given)
    return ",".join(items) if sorted(items) == sorted(split_list(text)) else text


def _set_or_default(
    name: str, own: Mapping[str, str], defaults: Mapping[str, str], source: ConfigSource
) -> list[DescribeConfigsSynonym]:
    found = [_synonym(name, own[name], source)] if name in own else []
    if name in defaults:
        found.append(_synonym(name, defaults[name], ConfigSource.DEFAULT))
    return found


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
        budget, count = self.slices.begin(steps_per_look=1), 0
        for resource in request.resources:
            result = self._result(image, descriptions, resource, SETTINGS_MAX - count)
            count += len(result.configs)
            results.append(result)
            await budget.yield_if_spent()
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
