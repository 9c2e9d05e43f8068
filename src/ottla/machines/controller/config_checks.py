"""Validates the settings of a resource before they are written."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla.machines.controller.effective_configs import (
    parsed_broker_settings,
    topic_defaults,
)
from ottla.machines.controller.limits import check_config_size
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import EVERY_BROKER, ClusterImage, ConfigResource, ResourceType
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.broker_config import can_change_while_running, is_unknown
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.client_metrics_config import ClientMetricsConfig
from ottla.model.settings.group_config import GroupConfig
from ottla.model.settings.kafka_settings import IDLE_SETTINGS
from ottla.model.settings.settings import (
    InvalidSettingsError,
    read_settings,
    shown,
)
from ottla.model.settings.topic_config import TopicConfig
from ottla.model.topic_names import check_topic_name

SUBSCRIPTIONS_MAX: Final = 100
"""Client metrics subscriptions: every client is held against all of them."""
GROUPS_WITH_SETTINGS_MAX: Final = 10_000
NAME_CHARACTERS_MAX: Final = 249
"""Of subscriptions, of groups that have settings, and of settings that Ottla does not know."""
UNKNOWN_SETTINGS_MAX: Final = 100
"""Settings of one broker, or of all brokers, that are kept for plug-ins."""
COUNT_MAX: Final = {
    ResourceType.CLIENT_METRICS: SUBSCRIPTIONS_MAX,
    ResourceType.GROUP: GROUPS_WITH_SETTINGS_MAX,
}
_LAGS: Final = frozenset({"max.compaction.lag.ms", "min.compaction.lag.ms"})
"""Topic settings that may contradict each other if one is inherited."""
CONTRADICTING: Final = _LAGS | {f"log.cleaner.{name}" for name in _LAGS}
"""The same, with the broker's names."""
MIN_ISR: Final = "min.insync.replicas"
_BROKER_ID_DIGITS_MAX: Final = 10

Settings = Mapping[str, str]


def alterable_resource(image: ClusterImage, resource_type: int, name: str) -> ConfigResource:
    """Return the resource if it can be altered; ApiError says why not."""
    match resource_type:
        case ResourceType.TOPIC:
            _check_topic(image, name)
        case ResourceType.BROKER:
            _check_broker(image, name)
        case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            _check_named(name)
        case other:
            raise _refused(f"resources of type {other} have no settings that can be altered")
    return ConfigResource(ResourceType(resource_type), name)


def _check_topic(image: ClusterImage, name: str) -> None:
    if not name:
        raise _refused("there are no settings for all topics; brokers have the defaults")
    check_topic_name(name)
    if name not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _check_broker(image: ClusterImage, name: str) -> None:
    if name and (len(name) > _BROKER_ID_DIGITS_MAX or str(_number(name)) != name):
        raise _refused("a broker is named by its number, and all brokers by no name")
    if name and int(name) not in image.brokers:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {name} is registered")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _check_named(name: str) -> None:
    if not name:
        raise _refused("groups and client metrics subscriptions are altered one by one, by name")
    if len(name) > NAME_CHARACTERS_MAX:
        raise _refused(f"the name has more than {NAME_CHARACTERS_MAX} characters")


def check_settings(
    image: ClusterImage, settings: ControllerSettings, resource: ConfigResource, new: Settings
) -> None:
    """Raise ApiError unless the resource may have these settings."""
    for name, text in new.items():
        check_config_size(name, text)
    match resource.kind:
        case ResourceType.TOPIC:
            TopicConfig.parse(new, topic_defaults(image, settings))
        case ResourceType.BROKER:
            _check_broker_settings(image, settings, resource, new)
        case ResourceType.GROUP:
            GroupConfig.parse(new)
        case ResourceType.CLIENT_METRICS:
            ClientMetricsConfig.parse(new)


class ResourceRoom:
    """How many more groups and subscriptions may have settings, in the course of one request."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._count_by_kind = Counter(resource.kind for resource in image.configs)

    def take(self, resource: ConfigResource, new: Settings) -> None:
        """Count a resource that gets its first settings; ApiError if there are too many."""
        if not new or resource in self._image.configs or resource.kind not in COUNT_MAX:
            return
        count_max = COUNT_MAX[resource.kind]
        if self._count_by_kind[resource.kind] >= count_max:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{count_max} resources have settings already: delete those settings first",
            )
        self._count_by_kind[resource.kind] += 1


# -- brokers --------------------------------------------------------------------------------------


def _check_broker_settings(
    image: ClusterImage, settings: ControllerSettings, resource: ConfigResource, new: Settings
) -> None:
    """Raise ApiError INVALID_REQUEST, as Kafka does for all that is wrong with brokers."""
    unknown = [name for name in new if is_unknown(name)]
    _check_unknown_settings(unknown)
    for name in new.keys() - unknown:
        if not can_change_while_running(name) and name not in IDLE_SETTINGS:
            raise _refused(
                f"{shown(name)} cannot be changed while the broker runs: set it in the broker's"
                f" configuration, and restart it"
            )
    if MIN_ISR in new and resource != EVERY_BROKER:
        raise _refused(f"{MIN_ISR} has to be the same for all brokers: set it for those")
    used = {name: text for name, text in new.items() if name in BROKER_SETTINGS}
    value_by_field, problem_by_name = read_settings(BROKER_SETTINGS, used)
    if problem_by_name:
        raise _refused("; ".join(problem_by_name.values()))
    if value_by_field.get("max_connections") == 0:
        raise _refused("max.connections cannot be 0: no client could connect to change it back")
    try:
        for broker_settings in _broker_settings_with(image, resource, new):
            _check_topics_agree(image, parsed_broker_settings(broker_settings, settings))
    except InvalidSettingsError as error:
        raise _refused(error.detail) from None


def _check_unknown_settings(names: Sequence[str]) -> None:
    """Refuse more settings that nothing in the broker uses than one resource may have."""
    if len(names) > UNKNOWN_SETTINGS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"a broker has at most {UNKNOWN_SETTINGS_MAX} settings that Ottla does not know",
        )
    if any(len(name) > NAME_CHARACTERS_MAX for name in names):
        raise _refused(f"the name of a setting has more than {NAME_CHARACTERS_MAX} characters")


def _broker_settings_with(
    image: ClusterImage, resource: ConfigResource, new: Settings
) -> Iterator[Settings]:
    """Yield the effective settings of the changed broker, or of all brokers."""
    if resource != EVERY_BROKER:
        yield {**image.configs.get(EVERY_BROKER, {}), **new}
        return
    yield new
    for other, own in image.configs.items():
        if other.kind is ResourceType.BROKER and other != EVERY_BROKER:
            yield {**new, **own}


def _check_topics_agree(image: ClusterImage, defaults: TopicConfig) -> None:
    """Refuse defaults that contradict the topics' own settings."""
    for resource, own in image.configs.items():
        if resource.kind is ResourceType.TOPIC and not _LAGS.isdisjoint(own):
            try:
                TopicConfig.parse(own, defaults)
            except InvalidSettingsError as error:
                raise _refused(f"topic {resource.name} would not agree: {error.detail}") from None


def _refused(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)
