"""The sources of a broker's settings: `-X name=value`, the environment, server.properties.

The first source of a setting counts, even if the next has it under another name or unit.
In the environment `log.dirs` is OTTLA_LOG_DIRS, or KAFKA_LOG_DIRS as in Kafka's images: `.` is
written `_`, `_` is `__`, and `-` is `___`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.model.settings.broker_config import TOPIC_SYNONYMS, notes_on
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.kafka_settings import is_known_to_kafka
from ottla.model.settings.properties import PropertiesError, read_properties
from ottla.model.settings.settings import InvalidSettingsError, nearest_to, shown

OTTLA_PREFIX: Final = "OTTLA_"
KAFKA_PREFIX: Final = "KAFKA_"
CLIENT_VARIABLES: Final = frozenset(
    {
        "OTTLA_BROKERS",
        "OTTLA_CACHE_DIR",
        "OTTLA_JAVA_HOME",
        "OTTLA_PROFILE",
        "OTTLA_SCHEMA_REGISTRY_URL",
        "OTTLA_STATE_DIR",
    }
)
"""Variables of the command line and of pipelines: no settings of a broker."""

# In a pod, Kubernetes describes a service called ottla or kafka in variables like these.
_OF_KUBERNETES = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
# Kafka's start scripts take these for the JVM and for logging.
_OF_START_SCRIPTS = re.compile(
    r"KAFKA_(VERSION|HOME|DEBUG|LOG4J_\w+|TOOLS_LOG4J_\w+|JMX_\w+|(\w+_)?OPTS)"
)
_MARK_BY_UNDERSCORES = {"_": ".", "__": "_", "___": "-"}
_SAME_SETTINGS = [
    *({setting.name, setting.alias_of} for setting in BROKER_SETTINGS.values() if setting.alias_of),
    *(
        {synonym.name for synonym in synonyms}
        for synonyms in TOPIC_SYNONYMS.values()
        if any(synonym.factor != 1 for synonym in synonyms)
    ),
]


@dataclass(frozen=True, slots=True)
class GatheredSettings:
    """The settings of a broker, to be parsed, and notes for their author."""

    settings: dict[str, str]
    notes: tuple[str, ...]


def gather_settings(
    *,
    overrides: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    properties: str = "",
) -> GatheredSettings:
    """Merge overrides, as `name=value`, over the environment, over a file's text.

    InvalidSettingsError if an override or the file cannot be read.
    """
    environ = {} if environ is None else environ
    problems: list[str] = []
    settings = _settings_from_file(properties, problems)
    settings = _over(settings_from_environment(environ), settings)
    settings = _over(_settings_from_overrides(overrides, problems), settings)
    if problems:
        raise InvalidSettingsError(problems)
    return GatheredSettings(settings, (*_notes_on_environment(environ), *notes_on(settings)))


def settings_from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among the variables, by their dotted names.

    Every OTTLA_ variable is a setting, but a KAFKA_ variable only if such a setting exists: other
    programs use that prefix, too. If both exist, the OTTLA_ variable counts.
    """
    ours = {_setting_name(name): text for name, text in environ.items() if _is_ours(name)}
    kafkas = {
        _setting_name(name): text for name, text in environ.items() if _is_setting_of_kafka(name)
    }
    return _over(ours, kafkas)


def _over(settings: dict[str, str], lower: dict[str, str]) -> dict[str, str]:
    """Merge settings over lower ones; synonyms of the same setting are replaced, too."""
    said = [names for names in _SAME_SETTINGS if not names.isdisjoint(settings)]
    hidden = set().union(*said)
    return {name: text for name, text in lower.items() if name not in hidden} | settings


def _is_ours(variable: str) -> bool:
    return (
        variable.startswith(OTTLA_PREFIX)
        and variable not in CLIENT_VARIABLES
        and not _OF_KUBERNETES.fullmatch(variable)
    )


def _is_setting_of_kafka(variable: str) -> bool:
    if not variable.startswith(KAFKA_PREFIX):
        return False
    name = _setting_name(variable)
    return name in BROKER_SETTINGS or is_known_to_kafka(name)


def _setting_name(variable: str) -> str:
    _, _, rest = variable.partition("_")
    return re.sub("_{1,3}", lambda match: _MARK_BY_UNDERSCORES[match[0]], rest.lower())


def _notes_on_environment(environ: Mapping[str, str]) -> list[str]:
    return [
        f"{variable} stands for no setting, and was left out"
        f"{nearest_to(_setting_name(variable), BROKER_SETTINGS)}"
        for variable in environ
        if variable.startswith(KAFKA_PREFIX)
        and not _is_setting_of_kafka(variable)
        and not _OF_KUBERNETES.fullmatch(variable)
        and not _OF_START_SCRIPTS.fullmatch(variable)
    ]


def _settings_from_file(text: str, problems: list[str]) -> dict[str, str]:
    try:
        return read_properties(text)
    except PropertiesError as error:
        problems.append(f"the file of settings cannot be read at {error}")
        return {}


def _settings_from_overrides(overrides: Iterable[str], problems: list[str]) -> dict[str, str]:
    settings = {}
    for override in overrides:
        name, sign, text = override.partition("=")
        if sign and name.strip():
            settings[name.strip()] = text
        else:
            problems.append(f"-X cannot be {shown(override)}: it must be name=value")
    return settings
