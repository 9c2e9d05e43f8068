"""Settings of connectors and transforms: declared in tables, read with errors that name the key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.model.settings.settings import nearest_to

Parse = Callable[[object], Any]
Values = Mapping[str, Any]
REQUIRED: Final = object()
"""Marks a setting without a default."""


class SettingError(Exception):
    """A setting is wrong: its key, and a sentence."""

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(sentence)
        self.key = key
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Setting:
    """A key: the parser of its value, its default, its purpose.

    A name that ends in a dot stands for all keys with that prefix; its value is a dict.
    """

    name: str
    parse: Parse
    default: Any
    summary: str
    choices: tuple[str, ...] = ()

    @property
    def is_family(self) -> bool:
        """Whether this stands for all keys that begin with its name."""
        return self.name.endswith(".")


def text(value: object) -> str:
    """Read a word or sentence; numbers may be written without quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError("is to be text")


def whole(value: object) -> int:
    """Read a whole number that is not negative."""
    try:
        number = int(value) if isinstance(value, str | int) else -1
    except ValueError:
        number = -1
    if number < 0 or isinstance(value, bool):
        raise ValueError(f"is to be a whole number, not {value!r}")
    return number


def yes_or_no(value: object) -> bool:
    """Read true or false."""
    known = {"true": True, "false": False}
    read = value if isinstance(value, bool) else known.get(str(value).lower())
    if read is None:
        raise ValueError(f"is to be true or false, not {value!r}")
    return read


def words(value: object) -> tuple[str, ...]:
    """Read a list, or words with commas between them."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError(f"is to be a list of words, not {value!r}")


def pairs(value: object) -> dict[str, str]:
    """Read a table of words, or `a:b,c:d`."""
    if isinstance(value, Mapping):
        return {str(key): text(item) for key, item in value.items()}
    split = [word.partition(":") for word in words(value)]
    if not all(colon for _, colon, _ in split):
        raise ValueError(f"is to be a table, or a:b,c:d, not {value!r}")
    return {key.strip(): item.strip() for key, _, item in split}


def read_settings(given: Mapping[str, object], table: Sequence[Setting]) -> dict[str, Any]:
    """Parse given settings by a table; SettingError names the wrong setting and the reason."""
    left = dict(given)
    values = {setting.name: _value(setting, left) for setting in table}
    for key in left:
        hint = nearest_to(key, [setting.name for setting in table])
        raise SettingError(key, f"there is no such setting{hint}")
    return values


def is_known(key: str, table: Sequence[Setting]) -> bool:
    """Return whether a table has a setting for a key."""
    return any(
        key == setting.name
        or (setting.is_family and key.startswith(setting.name))
        or (setting.parse is pairs and key.startswith(setting.name + "."))
        for setting in table
    )


def _value(setting: Setting, left: dict[str, object]) -> Any:
    found: object = left.pop(setting.name, None)
    members = [key for key in left if key.startswith(setting.name.rstrip(".") + ".")]
    if setting.is_family:
        return {key[len(setting.name) :]: text(left.pop(key)) for key in members}
    if setting.parse is pairs and found is None and members:
        found = {key[len(setting.name) + 1 :]: left.pop(key) for key in members}
    if found is None:
        if setting.default is REQUIRED:
            raise SettingError(setting.name, f"is missing: {setting.summary}")
        return setting.default
    return _parsed(setting, found)


def _parsed(setting: Setting, found: object) -> Any:
    try:
        value = setting.parse(found)
    except ValueError as error:
        raise SettingError(setting.name, str(error)) from None
    if setting.choices and value not in setting.choices:
        hint = nearest_to(str(value), setting.choices)
        known = ", ".join(setting.choices)
        raise SettingError(setting.name, f"is to be one of {known}, not {value!r}{hint}")
    return value
