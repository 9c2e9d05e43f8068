"""Parses client settings from a dict and keywords, according to tables.

Names are Kafka's, with dots or underscores. A value is text, as in a properties file, or a Python
value: a number, True, a list, a function. None means that the setting is not given.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from ottla.model.settings.settings import INT32_MAX, INT64_MAX, Kind, SettingType, nearest_to, shown

T = TypeVar("T")
_NOT_YET: Final = "is not supported yet: connections have neither TLS nor SASL"
_PREFIXES_NOT_YET: Final = ("security.", "sasl.", "ssl.", "tls.", "enable.ssl.", "enable.sasl.")


class InvalidClientSettingError(ValueError):
    """An unknown setting of a client, or an invalid value."""


@dataclass(frozen=True, slots=True)
class ClientSetting:
    """One setting, its field, and its aliases.

    A value of an object kind is not text: it is passed as it is.
    """

    name: str
    kind: Kind
    documentation: str
    field: str = ""
    aliases: tuple[str, ...] = ()
    is_object: bool = False

    @property
    def field_name(self) -> str:
        """The field of the value; by default it has the setting's name."""
        return self.field or self.name.replace(".", "_")

    def read(self, value: Any) -> Any:
        """Return the parsed value; InvalidClientSettingError names the valid values."""
        try:
            return self.kind.read(value if self.is_object else _text_of(value).strip())
        except InvalidClientSettingError as error:
            raise InvalidClientSettingError(f"{self.name}: {error}") from None
        except (TypeError, ValueError):
            raise InvalidClientSettingError(
                f"{self.name} cannot be {shown(_text_of(value))}: it must be {self.kind.allowed}"
            ) from None


@dataclass(frozen=True, slots=True)
class SettingTable:
    """The settings of one kind of client, and the error texts for other names."""

    noun: str
    """The kind of client in error texts: producer, consumer."""
    settings: tuple[ClientSetting, ...]
    foreign: Mapping[str, str]
    """Why a setting of another client is not supported, as the end of a sentence."""

    def find(self, name: str) -> ClientSetting | None:
        """Find a setting by its name or alias, with dots or underscores."""
        return self._by_name().get(name.replace("_", "."))

    def read(
        self, given: Mapping[str, Any] | None, keywords: Mapping[str, Any]
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """Return values by field, and the names of the given settings.

        InvalidClientSettingError lists all faults, with one sentence for each.
        """
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(
                f"settings come in a dict, or as keywords (bootstrap_servers=...), not as {given!r}"
            )
        problems: list[str] = []
        value_by_field: dict[str, Any] = {}
        said: dict[str, str] = {}
        for name, value in [*(given or {}).items(), *keywords.items()]:
            try:
                setting = self._setting_for(name, said, is_none=value is None)
                if value is not None:
                    value_by_field[setting.field_name] = setting.read(value)
            except InvalidClientSettingError as error:
                problems.append(str(error))
        raise_problems(problems)
        return value_by_field, frozenset(said)

    def _setting_for(self, name: object, said: dict[str, str], *, is_none: bool) -> ClientSetting:
        if not isinstance(name, str):
            raise InvalidClientSettingError(f"a setting has a name, not {name!r}")
        if (setting := self.find(name)) is None:
            raise InvalidClientSettingError(self._why_unknown(name))
        if not is_none and setting.name in said:
            raise InvalidClientSettingError(
                f"{setting.name} is said twice: as {said[setting.name]} and as {name}"
            )
        if not is_none:
            said[setting.name] = name
        return setting

    def _why_unknown(self, name: str) -> str:
        dotted = name.replace("_", ".")
        if dotted in self.foreign:
            return f"{dotted} {self.foreign[dotted]}"
        if dotted.startswith(_PREFIXES_NOT_YET):
            return f"{dotted} {_NOT_YET}"
        near = nearest_to(dotted, self._by_name()) or "; docs/client-settings.md lists them"
        return f"{shown(name)} is not a {self.noun} setting{near}"

    def _by_name(self) -> dict[str, ClientSetting]:
        return {name: row for row in self.settings for name in (row.name, *row.aliases)}


def fields_of(settings: type[T], values: Mapping[str, Any]) -> T:
    """Make a dataclass from the values of its fields."""
    names = [field.name for field in fields(settings)]  # type: ignore[arg-type]
    return settings(**{name: values[name] for name in names if name in values})


def raise_problems(problems: Collection[str]) -> None:
    """Raise InvalidClientSettingError if there are problems."""
    if problems:
        raise InvalidClientSettingError("; ".join(problems))


# -- kinds that only clients have -----------------------------------------------------------------


def milliseconds(least: int = 0, most: int = INT64_MAX) -> Kind:
    """Whole milliseconds; a float with a zero fraction, as in JSON, is accepted."""
    allowed = f"a whole number of milliseconds from {least} to {most}"
    return Kind(SettingType.LONG, allowed, lambda text: _whole(text, least, most))


def fine_milliseconds(most: int = INT32_MAX) -> Kind:
    """Milliseconds, which may have a fraction."""

    def read(text: str) -> float:
        number = float(text)
        if not 0 <= number <= most:  # also True for NaN
            raise ValueError(text)
        return int(number) if number.is_integer() else number

    return Kind(SettingType.DOUBLE, f"a number of milliseconds from 0 to {most}", read)


def one_word_of(values: Mapping[str, T], allowed: str = "") -> Kind:
    """One of several words, case-insensitive, each with a value."""

    def read(text: str) -> T:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    return Kind(SettingType.STRING, allowed or f"one of {', '.join(values)}", read)


def some_object(allowed: str, read: Callable[[Any], Any]) -> Kind:
    """Any object that is not text: `read` returns it, or raises ValueError if it is invalid."""
    return Kind(SettingType.CLASS, allowed, read)


def text_that_says_something(text: str) -> str:
    """Return the text; ValueError if it is empty."""
    if not text:
        raise ValueError(text)
    return text


NAME: Final = Kind(SettingType.STRING, "any text that is not empty", text_that_says_something)


def _whole(text: str, least: int, most: int) -> int:
    number = float(text)
    if not number.is_integer() or not least <= number <= most:
        raise ValueError(text)
    return int(number) if "." in text or "e" in text.lower() else int(text)


def _text_of(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case list() | tuple() | set() | frozenset():
            return ",".join(map(_text_of, value))
        case _:
            return str(value)
