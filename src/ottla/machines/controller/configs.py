"""AlterConfigs and IncrementalAlterConfigs, for topics and brokers.

Both come down to the same: the settings that a resource shall have. They are checked as a whole,
and what differs from those it has is written down. A resource succeeds or fails by itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from ottla.machines.controller.effective import (
    TOPIC_SETTING_BY_BROKER_SETTING,
    parsed_broker_settings,
    topic_defaults,
)
from ottla.machines.controller.limits import check_config_size
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import EVERY_BROKER, ClusterImage, ConfigResource, ResourceType
from ottla.metadata.records import ConfigRecord, MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings import SettingType, shown
from ottla.model.topic_config import TOPIC_SETTINGS, TopicConfig
from ottla.model.topic_names import check_topic_name
from ottla.wire.messages import alter_configs, incremental_alter_configs

_LAGS: Final = frozenset({"max.compaction.lag.ms", "min.compaction.lag.ms"})
"""The settings that contradict each other where one of them comes from elsewhere."""
_BROKER_ID_DIGITS_MAX: Final = 10

Settings = Mapping[str, str]


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs can do to one setting, by the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOutcome(NamedTuple):
    """What became of one resource: an error, or nothing to say."""

    resource_type: int
    resource_name: str
    error: ApiError | None


class _Request(NamedTuple):
    """One resource of either request, and what its settings become."""

    resource_type: int
    resource_name: str
    altered: Callable[[Settings], dict[str, str]]


def decide_replacement(
    image: ClusterImage,
    settings: ControllerSettings,
    resources: Sequence[alter_configs.AlterConfigsResource],
    *,
    validate_only: bool = False,
) -> Decision[MetadataRecord, list[ConfigOutcome]]:
    """Decide on AlterConfigs: what is not named falls back to its default."""
    requests = [
        _Request(one.resource_type, one.resource_name, partial(_replaced, one.configs))
        for one in resources
    ]
    return _decide(image, settings, requests, validate_only=validate_only)


def decide_changes(
    image: ClusterImage,
    settings: ControllerSettings,
    resources: Sequence[incremental_alter_configs.AlterConfigsResource],
    *,
    validate_only: bool = False,
) -> Decision[MetadataRecord, list[ConfigOutcome]]:
    """Decide on IncrementalAlterConfigs: what is not named stays as it is."""
    requests = [
        _Request(one.resource_type, one.resource_name, partial(_changed, one.configs))
        for one in resources
    ]
    return _decide(image, settings, requests, validate_only=validate_only)


def _decide(
    image: ClusterImage,
    settings: ControllerSettings,
    requests: Sequence[_Request],
    *,
    validate_only: bool,
) -> Decision[MetadataRecord, list[ConfigOutcome]]:
    records: list[MetadataRecord] = []
    outcomes: list[ConfigOutcome] = []
    count_by_resource = Counter(request[:2] for request in requests)
    for request in requests:
        error = None
        try:
            if count_by_resource[request[:2]] > 1:
                raise _refused("the resource is named more than once")
            resource = _resource(image, request)
            old = image.configs.get(resource, {})
            new = request.altered(old)
            _check(image, settings, resource, new)
            records += _differences(resource, old, new)
        except ApiError as raised:
            error = raised
        outcomes.append(ConfigOutcome(request.resource_type, request.resource_name, error))
    return Decision(() if validate_only else tuple(records), outcomes)


# -- what the settings become ---------------------------------------------------------------------


def _replaced(configs: Sequence[alter_configs.AlterableConfig], _: Settings) -> dict[str, str]:
    _check_distinct([config.name for config in configs])
    return {config.name: _needed(config.name, config.value) for config in configs}


def _changed(
    configs: Sequence[incremental_alter_configs.AlterableConfig], old: Settings
) -> dict[str, str]:
    _check_distinct([config.name for config in configs])
    new = dict(old)
    for config in configs:
        match config.config_operation:
            case ConfigOperation.DELETE:
                new.pop(config.name, None)
            case ConfigOperation.SET:
                new[config.name] = _needed(config.name, config.value)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT as operation:
                value = _needed(config.name, config.value)
                new[config.name] = _changed_list(operation, config.name, old, value)
            case operation:
                raise _refused(f"there is no operation {operation}")
    return new


def _changed_list(operation: int, name: str, old: Settings, value: str) -> str:
    """Append to a list what it lacks, or subtract what it has."""
    topic_setting = TOPIC_SETTING_BY_BROKER_SETTING.get(name, name)
    setting = TOPIC_SETTINGS.get(topic_setting)
    if setting is None or setting.kind.type is not SettingType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{shown(name)} is no list")
    # What a list without a value begins with is Kafka's default, whatever brokers say.
    items = _listed(old.get(name, TopicConfig().as_strings()[topic_setting]))
    named = _listed(value)
    if operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys(items + named))
    subtracted = set(named)
    return ",".join(item for item in items if item not in subtracted)


def _listed(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]


def _check_distinct(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise _refused("a setting is named more than once")


def _needed(name: str, value: str | None) -> str:
    if value is None:
        raise _refused(f"{shown(name)} needs a value")
    return value


def _differences(resource: ConfigResource, old: Settings, new: Settings) -> list[ConfigRecord]:
    changed: dict[str, str | None] = {
        name: text for name, text in new.items() if old.get(name) != text
    }
    changed |= {name: None for name in old if name not in new}
    return [
        ConfigRecord(
            resource_type=resource.kind, resource_name=resource.name, name=name, value=value
        )
        for name, value in changed.items()
    ]


# -- whether they may -----------------------------------------------------------------------------


def _resource(image: ClusterImage, request: _Request) -> ConfigResource:
    """Return the resource if it is there; ApiError says why it has no settings."""
    name = request.resource_name
    match request.resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise _refused("there are no settings for all topics; brokers have the defaults")
            check_topic_name(name)
            if name not in image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            return ConfigResource(ResourceType.TOPIC, name)
        case ResourceType.BROKER:
            if name and (len(name) > _BROKER_ID_DIGITS_MAX or str(_number(name)) != name):
                raise _refused("a broker is named by its number, and all brokers by no name")
            if name and int(name) not in image.brokers:
                raise ApiError(
                    ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {name} is registered"
                )
            return ConfigResource(ResourceType.BROKER, name)
        case other:
            raise _refused(f"resources of type {other} have no settings that can be altered")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _check(
    image: ClusterImage, settings: ControllerSettings, resource: ConfigResource, new: Settings
) -> None:
    """Raise ApiError unless the resource may have these settings."""
    for name, text in new.items():
        check_config_size(name, text)
    if resource.kind is ResourceType.TOPIC:
        TopicConfig.parse(new, topic_defaults(image, settings))
        return
    for name in new:
        if name not in TOPIC_SETTING_BY_BROKER_SETTING:
            raise _refused(f"{shown(name)} is no setting that a running broker can change")
    try:
        for broker_settings in _broker_settings_with(image, resource, new):
            _check_topics_agree(image, parsed_broker_settings(broker_settings, settings))
    except ApiError as error:  # which Kafka answers with another code for brokers than for topics
        raise _refused(error.detail) from None


def _broker_settings_with(
    image: ClusterImage, resource: ConfigResource, new: Settings
) -> Iterator[Settings]:
    """Yield what brokers will go by: the one that changes, or all of them."""
    if resource != EVERY_BROKER:
        yield {**image.configs.get(EVERY_BROKER, {}), **new}
        return
    yield new
    for other, own in image.configs.items():
        if other.kind is ResourceType.BROKER and other != EVERY_BROKER:
            yield {**new, **own}


def _check_topics_agree(image: ClusterImage, defaults: TopicConfig) -> None:
    """Refuse defaults that contradict what topics have set."""
    for resource, own in image.configs.items():
        if resource.kind is ResourceType.TOPIC and not _LAGS.isdisjoint(own):
            TopicConfig.parse(own, defaults)


def _refused(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)
