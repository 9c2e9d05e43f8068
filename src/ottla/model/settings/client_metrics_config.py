"""A client metrics subscription (KIP-714): the clients, their metrics to push, and the interval."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from ottla.model.linear_regex import Pattern, PatternError
from ottla.model.settings.settings import (
    InvalidSettingsError,
    Kind,
    Setting,
    SettingType,
    integer,
    read_known_settings,
    setting,
    settings_of,
    split_list,
    texts_of,
)

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The client attributes that a subscription can match."""


@dataclass(frozen=True, slots=True)
class ClientMatch:
    """A condition on one attribute of a client."""

    attribute: str
    pattern: Pattern

    def __str__(self) -> str:
        return f"{self.attribute}={self.pattern.text}"


def _distinct(text: str) -> tuple[str, ...]:
    items = split_list(text)
    if "" in items or len(set(items)) != len(items):
        raise ValueError(text)
    return tuple(items)


def _conditions(text: str) -> tuple[ClientMatch, ...]:
    # As in Kafka, the last condition on an attribute counts.
    return tuple({one.attribute: one for one in map(_condition, _distinct(text))}.values())


def _condition(text: str) -> ClientMatch:
    attribute, sign, pattern = (part.strip() for part in text.partition("="))
    if not sign or not pattern or attribute not in ATTRIBUTES:
        raise ValueError(text)
    try:
        return ClientMatch(attribute, Pattern(pattern))
    except PatternError as error:
        raise ValueError(text) from error


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """All settings of one subscription. Metrics are prefixes of names, or all of them."""

    metrics: tuple[str, ...] = setting(
        (),
        Kind(SettingType.LIST, "a list of different prefixes, or * for all", _distinct),
        "The metrics that clients push, by prefixes of their names; none if the list is empty.",
    )
    interval_ms: int = setting(
        INTERVAL_MS_DEFAULT,
        integer(100, 3_600_000),
        "The interval at which clients push their metrics.",
    )
    match: tuple[ClientMatch, ...] = setting(
        (),
        Kind(
            SettingType.LIST,
            f"a list of conditions as client_id=app-.*, on {', '.join(ATTRIBUTES)}",
            _conditions,
        ),
        "The clients of the subscription: every pattern must match the whole attribute; all"
        " clients if the list is empty.",
    )

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Self:
        """Read settings by their dotted names; InvalidSettingsError names the valid values."""
        values, problems = read_known_settings(CLIENT_METRICS_SETTINGS, settings, "client metrics")
        if problems:
            raise InvalidSettingsError(problems)
        return replace(cls(), **values)

    def as_strings(self) -> dict[str, str]:
        """Write every setting by its dotted name, as `parse` reads it."""
        return texts_of(self, CLIENT_METRICS_SETTINGS)

    def is_for(self, attributes: Mapping[str, str | None]) -> bool:
        """Return whether all conditions hold for a client; without conditions, true."""
        return all(
            (text := attributes.get(condition.attribute)) is not None
            and condition.pattern.matches(text)
            for condition in self.match
        )


CLIENT_METRICS_SETTINGS: Final[Mapping[str, Setting]] = settings_of(ClientMetricsConfig)
"""Every setting of a subscription, by its name."""
