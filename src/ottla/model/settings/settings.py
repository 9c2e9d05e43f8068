"""The common part of broker, topic and group settings: their declarations, parsing and writing.

A setting is declared once, as a field of its configuration: `segment_bytes: int = setting(1 << 30,
integer(1 << 20), "How large …")` declares `segment.bytes`. Its table (`settings_of`), parsing,
validation, DescribeConfigs and docs/configuration.md follow from that.
"""

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
UNKNOWN_NAMES_MAX: Final = 10
"""The number of unknown names in an error message; the others are counted."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS

_SETTING = "setting"
"""The key of a field's declaration in its metadata."""
_T = TypeVar("_T")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_SHOWN_CHARACTERS_MAX = 100
_NAME_CHARACTERS_MAX = 100


class SettingType(IntEnum):
    """Kafka's types of settings, by their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(StrEnum):
    """Whether a setting changes at start only, or at any time per broker or cluster-wide."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class InvalidSettingsError(ApiError):
    """Invalid settings. Each problem is one sentence with the reason."""

    def __init__(self, problems: Collection[str]) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, "; ".join(problems))
        self.problems = tuple(problems)


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs, by the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a setting takes: their type, their description, and their parser.

    `read` raises ValueError for invalid text.
    """

    type: SettingType
    allowed: str
    read: Callable[[str], Any]


class Alias(NamedTuple):
    """Another name of a setting, which counts if the setting itself is not set."""

    name: str
    documentation: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    kind: Kind
    default: Any
    documentation: str
    update_mode: UpdateMode
    section: str = ""
    """The section of docs/configuration.md that begins with this setting."""
    alias: Alias | None = None
    alias_of: str = ""
    topic_setting: str = ""
    """The topic setting whose default this broker setting is."""
    factor: int = 1
    """The unit, in units of the topic setting."""

    @property
    def field(self) -> str:
        """The field that holds the value."""
        return field_name(self.alias_of or self.name)

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return self.kind.type is SettingType.PASSWORD

    def problem_with(self, text: str) -> str:
        """Return a sentence that refuses the text and names the valid values."""
        given = "the given value" if self.is_sensitive else shown(text)
        return f"{self.name} cannot be {given}: it must be {self.kind.allowed}"

    def converted(self, value: Any) -> Any:
        """Return the value for the topic setting; a negative value means no limit."""
        return value if self.factor == 1 else max(value * self.factor, -1)


# -- declarations ---------------------------------------------------------------------------------


def setting(
    default: _T,
    kind: Kind,
    documentation: str,
    update_mode: UpdateMode = UpdateMode.CLUSTER_WIDE,
    section: str = "",
    alias: Alias | None = None,
    topic_setting: str = "",
    factor: int = 1,
) -> _T:
    """Declare a field of a dataclass as a setting; the name is the field's, with dots."""
    declared = Setting(
        "", kind, default, documentation, update_mode, section, alias, "", topic_setting, factor
    )
    return field(default=default, metadata={_SETTING: declared})


def at_start(
    default: _T,
    kind: Kind,
    documentation: str,
    section: str = "",
    alias: Alias | None = None,
    topic_setting: str = "",
    factor: int = 1,
) -> _T:
    """Declare a setting that is fixed while a broker runs."""
    mode = UpdateMode.READ_ONLY
    return setting(default, kind, documentation, mode, section, alias, topic_setting, factor)


def settings_of(config: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, and their aliases, by name."""
    table: dict[str, Setting] = {}
    for one in fields(config):
        if (declared := one.metadata.get(_SETTING)) is None:
            continue
        name = one.name.replace("_", ".")
        assert name not in table, "a name is declared twice"
        table[name] = replace(declared, name=name)
        if (alias := declared.alias) is not None:
            assert alias.name not in table, "a name is declared twice"
            table[alias.name] = replace(
                declared, name=alias.name, documentation=alias.documentation, alias_of=name
            )
    return table


# -- tables ---------------------------------------------------------------------------------------


def read_settings(
    table: Mapping[str, Setting], settings: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Read settings of the table: values by field, and problems by name."""
    value_by_field: dict[str, Any] = {}
    problem_by_name: dict[str, str] = {}
    # A name takes precedence over its aliases.
    for name in sorted(settings, key=lambda name: not table[name].alias_of):
        setting = table[name]
        try:
            value_by_field[setting.field] = setting.kind.read(settings[name].strip())
        except ValueError:
            problem_by_name[name] = setting.problem_with(settings[name])
    return value_by_field, problem_by_name


def read_known_settings(
    table: Mapping[str, Setting], settings: Mapping[str, str], noun: str
) -> tuple[dict[str, Any], list[str]]:
    """Read settings of which each must be in the table: values by field, and all problems."""
    known = {name: text for name, text in settings.items() if name in table}
    unknown = [name for name in settings if name not in table]
    values, problem_by_name = read_settings(table, known)
    return values, [*unknown_settings(unknown, noun, table), *problem_by_name.values()]


def unknown_settings(names: Sequence[str], noun: str, known: Collection[str]) -> list[str]:
    """Return a sentence for each unknown setting, with the nearest known name."""
    problems = [
        f"no {noun} setting is called {shown(name)}{nearest_to(name, known)}"
        for name in names[:UNKNOWN_NAMES_MAX]
    ]
    if len(names) > UNKNOWN_NAMES_MAX:
        problems.append(f"{len(names) - UNKNOWN_NAMES_MAX} more names are unknown")
    return problems


def nearest_to(name: str, known: Collection[str]) -> str:
    """Return a question for the nearest known name, to end a sentence about a wrong name."""
    # The search is slow for long names, and long names are near to none.
    near = get_close_matches(name, known, n=1) if len(name) <= _NAME_CHARACTERS_MAX else []
    return f"; did you mean {near[0]}?" if near else ""


def texts_of(config: object, table: Mapping[str, Setting]) -> dict[str, str]:
    """Write the settings of a configuration as text; settings without a value are left out.

    A setting with a default that is set to nothing is written as empty text.
    """
    values = {name: getattr(config, setting.field) for name, setting in table.items()}
    return {
        name: "" if value is None else text_of(value)
        for name, value in values.items()
        if value is not None or table[name].default is not None
    }


def text_of(value: object) -> str:
    """Write one value as it is read."""
    match value:
        case bool():
            return str(value).lower()
        case frozenset():
            return ",".join(sorted(value))
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def field_name(name: str) -> str:
    """Return the field of a setting."""
    return name.replace(".", "_")


def shown(text: str) -> str:
    """Quote a user's text, up to a length."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…")


def split_list(text: str) -> list[str]:
    """Split a list at its commas; nothing is an empty list."""
    return [item.strip() for item in text.split(",")] if text else []


# -- kinds ----------------------------------------------------------------------------------------


def short(least: int, most: int = INT16_MAX) -> Kind:
    """Whole numbers that Kafka keeps in two bytes."""
    return _whole(SettingType.SHORT, least, most)


def integer(least: int, most: int = INT32_MAX, *, also: int | None = None) -> Kind:
    """Whole numbers that Kafka keeps in four bytes."""
    return _whole(SettingType.INT, least, most, also)


def long(least: int, most: int = INT64_MAX, *, also: int | None = None) -> Kind:
    """Whole numbers that Kafka keeps in eight bytes."""
    return _whole(SettingType.LONG, least, most, also)


def double(least: float, most: float = sys.float_info.max) -> Kind:
    """Numbers with a fraction, not below 0."""
    limit = "" if most == sys.float_info.max else f" to {most:g}"

    def read(text: str) -> float:
        number = float(text) if _DECIMAL.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise ValueError(text)
        return number

    return Kind(SettingType.DOUBLE, f"a number from {least:g}{limit}", read)


def one_of(*allowed: str) -> Kind:
    """One of a few words."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return Kind(SettingType.STRING, f"one of {', '.join(allowed)}", read)


def optional(kind: Kind) -> Kind:
    """Return the kind that also accepts empty text, which is None."""
    return Kind(
        kind.type, f"{kind.allowed}, or empty", lambda text: kind.read(text) if text else None
    )


def _whole(type_: SettingType, least: int, most: int, also: int | None = None) -> Kind:
    def read(text: str) -> int:
        number = int(text) if _NUMBER.fullmatch(text) else None
        if number is None or not (least <= number <= most or number == also):
            raise ValueError(text)
        return number

    exception = "" if also is None else f", or {also}"
    return Kind(type_, f"a whole number from {least} to {most}{exception}", read)


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


FLAG: Final = Kind(SettingType.BOOLEAN, "true or false", _flag)
TEXT: Final = Kind(SettingType.STRING, "any text", str)
