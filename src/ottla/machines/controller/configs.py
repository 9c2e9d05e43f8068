"""AlterConfigs and IncrementalAlterConfigs, for all resources with stored settings.

Both compute the new settings of a resource. They are checked as a whole (`config_checks`), and the
differences are written. Each resource succeeds or fails by itself.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.machines.controller.config_checks import (
    CONTRADICTING,
    MIN_ISR,
    ResourceRoom,
    alterable_resource,
    check_settings,
)
from ottla.machines.controller.leadership import Leadership
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage, ConfigResource, ResourceType
from ottla.metadata.records import ConfigRecord, MetadataRecord, PartitionChangeRecord
from ottla.metadata.replay import replay
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.client_metrics_config import CLIENT_METRICS_SETTINGS, ClientMetricsConfig
from ottla.model.settings.group_config import GROUP_SETTINGS, GroupConfig
from ottla.model.settings.settings import ConfigOperation, Setting, SettingType, shown
from ottla.model.settings.topic_config import TOPIC_SETTINGS, TopicConfig
from ottla.wire.messages import alter_configs, incremental_alter_configs

_DECLARED: Final[Mapping[int, tuple[Mapping[str, Setting], Mapping[str, str]]]] = {
    ResourceType.TOPIC: (TOPIC_SETTINGS, TopicConfig().as_strings()),
    ResourceType.BROKER: (BROKER_SETTINGS, BrokerConfig().as_strings()),
    ResourceType.CLIENT_METRICS: (CLIENT_METRICS_SETTINGS, ClientMetricsConfig().as_strings()),
    ResourceType.GROUP: (GROUP_SETTINGS, GroupConfig().as_strings()),
}
"""The settings of each type of resource, and their defaults."""

Settings = Mapping[str, str]


class ConfigOutcome(NamedTuple):
    """The result of one resource."""

    resource_type: int
    resource_name: str
    error: ApiError | None


class _Request(NamedTuple):
    """One resource of either request, and how to compute its new settings."""

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
    """Decide on AlterConfigs: settings that are not named return to their defaults."""
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
    """Decide on IncrementalAlterConfigs: settings that are not named stay."""
    requests = [
        _Request(
            one.resource_type,
            one.resource_name,
            partial(_changed, one.resource_type, one.configs),
        )
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
    room = ResourceRoom(image)
    before = image
    # Each may be valid by itself, and yet a topic contradicts its new defaults when both change.
    has_brokers = any(request.resource_type == ResourceType.BROKER for request in requests)
    for request in requests:
        error = None
        try:
            if count_by_resource[request[:2]] > 1:
                raise _refused("the resource is named more than once")
            resource = alterable_resource(image, request.resource_type, request.resource_name)
            old = image.configs.get(resource, {})
            new = request.altered(old)
            check_settings(image, settings, resource, new)
            room.take(resource, new)
            changes = _differences(resource, old, new)
            records += changes
            if has_brokers and any(change.name in CONTRADICTING for change in changes):
                image = replay(image, changes, Offset(image.end_offset + len(changes)))
        except ApiError as raised:
            error = raised
        outcomes.append(ConfigOutcome(request.resource_type, request.resource_name, error))
    records += _without_needless_candidates(before, settings, records)
    return Decision(() if validate_only else tuple(records), outcomes)


def _without_needless_candidates(
    image: ClusterImage, settings: ControllerSettings, records: list[MetadataRecord]
) -> list[PartitionChangeRecord]:
    """Drop eligible leader replicas where the ISR reaches the new min.insync.replicas."""
    if not any(isinstance(one, ConfigRecord) and one.name == MIN_ISR for one in records):
        return []
    after = replay(image, records, Offset(image.end_offset + len(records)))
    leadership = Leadership(after, settings)
    places = leadership.places(lambda one: bool(one.isr and one.eligible_leader_replicas))
    changes = (leadership.change(place).record() for place in places)
    return [change for change in changes if change is not None]


# -- the new settings -----------------------------------------------------------------------------


def _replaced(configs: Sequence[alter_configs.AlterableConfig], _: Settings) -> dict[str, str]:
    _check_distinct([config.name for config in configs])
    return {config.name: _needed(config.name, config.value) for config in configs}


def _changed(
    resource_type: int, configs: Sequence[incremental_alter_configs.AlterableConfig], old: Settings
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
                items = _list_of(resource_type, config.name, old)
                new[config.name] = ",".join(_changed_list(operation, items, _listed(value)))
            case operation:
                raise _refused(f"there is no operation {operation}")
    return new


def _list_of(resource_type: int, name: str, old: Settings) -> list[str]:
    """Return the current list; ApiError INVALID_CONFIG if the setting is not a list."""
    table, defaults = _DECLARED[resource_type]
    setting = table.get(name)
    if setting is None or setting.kind.type is not SettingType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{shown(name)} is no list: set its value instead")
    # A list without a value starts from Kafka's default, not from the broker's.
    return _listed(old.get(name, defaults.get(name, "")))


def _changed_list(operation: int, items: list[str], named: list[str]) -> list[str]:
    """Append the missing items to a list, or subtract items from it."""
    if operation == ConfigOperation.APPEND:
        return list(dict.fromkeys(items + named))
    subtracted = set(named)
    return [item for item in items if item not in subtracted]


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


def _refused(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)
