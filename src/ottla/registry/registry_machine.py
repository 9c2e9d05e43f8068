"""The parts that every rule of the registry needs, and the form of a decision.

A rule reads the state and returns a `Decision`, or raises a RegistryError. It writes nothing: the
records of a decision are appended to `_schemas` and change the state when they are replayed.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from ottla.registry.parsed_schemas import ParsedSchemas
from ottla.registry.qualified_subjects import is_valid
from ottla.registry.registry_errors import invalid_subject
from ottla.registry.registry_state import RegistryState
from ottla.registry.schemas_records import ConfigForm, Record

BUILT_IN_LEVEL: Final = "BACKWARD"
BUILT_IN_MODE: Final = "READWRITE"


class Operation(StrEnum):
    """The kinds of operations that rights are granted on."""

    READ = "READ"
    WRITE = "WRITE"
    DELETE = "DELETE"
    READ_CONFIG = "READ_CONFIG"
    WRITE_CONFIG = "WRITE_CONFIG"
    DESCRIBE = "DESCRIBE"


class Authorizer(Protocol):
    """Decides whether a principal may do an operation on a subject."""

    def authorize(self, principal: str | None, operation: Operation, subject: str | None) -> None:
        """RegistryError 40301 if it may not. A subject of None means all subjects."""
        ...


class AllowEverything:
    """The authorizer of a registry without users."""

    def authorize(self, principal: str | None, operation: Operation, subject: str | None) -> None:
        """Allow it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Records to append atomically, and the response once they are replayed."""

    records: tuple[Record, ...] = ()
    response: Any = None


@dataclass(frozen=True, slots=True)
class RegistryMachine:
    """The state with its parsed schemas."""

    state: RegistryState = field(default_factory=RegistryState)
    parsed: ParsedSchemas = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parsed", ParsedSchemas(self.state))

    def config(self, subject: str) -> ConfigForm:
        """Return the configuration that applies to a subject; each member comes from the nearest.

        An alias is not inherited.
        """
        configs = self.state.configs
        found = [configs[scope] for scope in self.state.scopes(subject) if scope in configs]
        if len(found) == 1 and found[0].compatibility_level is not None:
            return found[0]
        members: dict[str, Any] = {"compatibility_level": BUILT_IN_LEVEL}
        for config in reversed(found):
            for member in ConfigForm.__struct_fields__:
                if (value := getattr(config, member)) is not None:
                    members[member] = value
        own = configs.get(subject)
        members["alias"] = None if own is None else own.alias
        return ConfigForm(**members)

    def mode(self, subject: str) -> str:
        """Return the mode that applies to a subject.

        READONLY_OVERRIDE of a context, or of all contexts, is stronger than the subject's mode.
        """
        modes = self.state.modes
        found = [modes[scope] for scope in self.state.scopes(subject) if scope in modes]
        if "READONLY_OVERRIDE" in found[1:]:
            return "READONLY_OVERRIDE"
        return found[0] if found else BUILT_IN_MODE

    def is_read_only(self, subject: str) -> bool:
        """Tell whether the mode of a subject forbids changes."""
        return self.mode(subject) in {"READONLY", "READONLY_OVERRIDE"}

    def target(self, subject: str) -> str:
        """Return the subject that a name stands for: its alias, if it has one."""
        config = self.state.configs.get(subject)
        if config is None or not config.alias:
            return subject
        return config.alias


def check_subject(subject: str) -> None:
    """RegistryError 42208 if a subject cannot have this name."""
    if not is_valid(subject):
        raise invalid_subject(subject)
