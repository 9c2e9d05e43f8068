"""Decisions on configurations and modes, and how a configuration completes a schema.

PUT changes the members that the body names; null takes a member away. A configuration without
members is removed.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ottla.registry.qualified_subjects import in_context_of
from ottla.registry.registry_errors import (
    LEVELS,
    MODES,
    invalid_level,
    invalid_mode,
    invalid_rule_set,
    no_level_of_its_own,
    no_mode_of_its_own,
    not_permitted,
    subject_not_found,
    unprocessable,
)
from ottla.registry.registry_machine import (
    BUILT_IN_LEVEL,
    BUILT_IN_MODE,
    Decision,
    RegistryMachine,
)
from ottla.registry.registry_state import DEFAULT_SCOPE
from ottla.registry.schemas_records import (
    ConfigForm,
    MetadataForm,
    Record,
    RuleForm,
    RuleSetForm,
    clear_subject_record,
    config_record,
    metadata_of,
    mode_record,
    rule_set_of,
)
from ottla.schemas.parsed_schema import CompatibilityPolicy
from ottla.schemas.schema import Metadata, Rule, RuleSet, Schema


class ConfigUpdate(Struct, rename="camel", omit_defaults=True):
    """The body of PUT /config, and its response."""

    alias: str | UnsetType | None = UNSET
    normalize: bool | UnsetType | None = UNSET
    validate_fields: bool | UnsetType | None = UNSET
    validate_new_schemas: bool | UnsetType | None = UNSET
    validate_rules: bool | UnsetType | None = UNSET
    compatibility: str | UnsetType | None = UNSET
    compatibility_policy: str | UnsetType | None = UNSET
    compatibility_group: str | UnsetType | None = UNSET
    default_metadata: MetadataForm | UnsetType | None = UNSET
    override_metadata: MetadataForm | UnsetType | None = UNSET
    default_rule_set: RuleSetForm | UnsetType | None = UNSET
    override_rule_set: RuleSetForm | UnsetType | None = UNSET


class ModeUpdate(Struct):
    """The body of PUT /mode, and the response of every operation on a mode."""

    mode: str


def record_scope(scope: str) -> str | None:
    """Return the subject in the key of a scope's records."""
    return None if scope == DEFAULT_SCOPE else scope


def get_config(machine: RegistryMachine, scope: str, *, inherited: bool) -> ConfigForm:
    """Return the configuration of a scope; with `inherited`, all that applies to it."""
    own = machine.state.configs.get(scope)
    if inherited or scope == DEFAULT_SCOPE:
        return machine.config(scope)
    if own is None:
        raise no_level_of_its_own(scope)
    return own


def put_config(machine: RegistryMachine, scope: str, update: ConfigUpdate) -> Decision:
    """Change the named members of a configuration."""
    members: dict[str, Any] = {}
    old = machine.state.configs.get(scope, ConfigForm())
    for member in ConfigForm.__struct_fields__:
        named = getattr(update, "compatibility" if member == "compatibility_level" else member)
        members[member] = getattr(old, member) if named is UNSET else named
    config = _checked(ConfigForm(**members), scope)
    response = ConfigUpdate(
        **{
            "compatibility" if member == "compatibility_level" else member: value
            for member in ConfigForm.__struct_fields__
            if (value := getattr(config, member)) is not None
        }
    )
    if config == old:
        return Decision(response=response)
    removed = config == ConfigForm()
    return Decision((config_record(record_scope(scope), None if removed else config),), response)


def _checked(config: ConfigForm, scope: str) -> ConfigForm:
    members = {member: getattr(config, member) for member in ConfigForm.__struct_fields__}
    if config.compatibility_level is not None:
        members["compatibility_level"] = config.compatibility_level.upper()
        if members["compatibility_level"] not in LEVELS:
            raise invalid_level()
    if config.compatibility_policy is not None:
        members["compatibility_policy"] = config.compatibility_policy.upper()
        if members["compatibility_policy"] not in set(CompatibilityPolicy):
            raise unprocessable("Invalid compatibility policy. Valid values are STRICT, LENIENT")
    if config.alias:
        members["alias"] = in_context_of(scope, config.alias)
    for rule_set in (config.default_rule_set, config.override_rule_set):
        if rule_set is not None:
            check_rule_set_form(rule_set)
    return ConfigForm(**members)


def delete_config(machine: RegistryMachine, scope: str) -> Decision:
    """Remove a configuration and return it."""
    own = machine.state.configs.get(scope)
    if own is None:
        if scope != DEFAULT_SCOPE:
            raise subject_not_found(scope)
        return Decision(response=ConfigForm(compatibility_level=BUILT_IN_LEVEL))
    return Decision((config_record(record_scope(scope), None),), own)


def get_mode(machine: RegistryMachine, scope: str, *, inherited: bool) -> ModeUpdate:
    """Return the mode of a scope; with `inherited`, the mode that applies to it."""
    own = machine.state.modes.get(scope)
    if inherited or scope == DEFAULT_SCOPE:
        return ModeUpdate(machine.mode(scope))
    if own is None:
        raise no_mode_of_its_own(scope)
    return ModeUpdate(own)


def put_mode(machine: RegistryMachine, scope: str, mode: str, *, force: bool) -> Decision:
    """Set a mode. IMPORT needs `force` where live versions exist, and forgets the soft-deleted."""
    mode = mode.upper()
    if mode not in MODES:
        raise invalid_mode()
    records: list[Record] = [mode_record(record_scope(scope), mode)]
    if mode == "IMPORT" and machine.mode(scope) != "IMPORT" and not force:
        subjects = _subjects_in(machine, scope)
        if any(machine.state.latest(subject) is not None for subject in subjects):
            raise not_permitted("Cannot import since found existing subjects")
        records[:0] = [clear_subject_record(subject) for subject in subjects]
    return Decision(tuple(records), ModeUpdate(mode))


def _subjects_in(machine: RegistryMachine, scope: str) -> list[str]:
    """Return the subjects that the mode of a scope applies to."""
    state = machine.state
    return [subject for subject in state.subjects() if scope in state.scopes(subject)]


def delete_mode(machine: RegistryMachine, scope: str, *, recursive: bool) -> Decision:
    """Remove a mode and return it; with `recursive`, also the modes of subjects in the scope."""
    own = machine.state.modes.get(scope)
    scopes = [scope] if own is not None else []
    if recursive:
        modes = machine.state.modes
        scopes += [one for one in sorted(modes) if _is_below(machine, one, scope)]
    if not scopes and scope != DEFAULT_SCOPE:
        raise subject_not_found(scope)
    records = tuple(mode_record(record_scope(one), None) for one in scopes)
    return Decision(records, ModeUpdate(own or BUILT_IN_MODE))


def _is_below(machine: RegistryMachine, scope: str, upper: str) -> bool:
    return scope != upper and upper in machine.state.scopes(scope)


# Metadata and rules


def completed(config: ConfigForm, schema: Schema, previous: Schema | None) -> Schema:
    """Return a schema with the metadata and the rules that it is to be stored with.

    Its own, or the previous version's if it has none; over the configuration's default; under the
    configuration's override.
    """
    from_previous = previous if previous is not None else Schema("")
    metadata = _merged_metadata(
        metadata_of(config.default_metadata),
        schema.metadata if schema.metadata is not None else from_previous.metadata,
        metadata_of(config.override_metadata),
    )
    rule_set = _merged_rule_sets(
        rule_set_of(config.default_rule_set),
        schema.rule_set if schema.rule_set is not None else from_previous.rule_set,
        rule_set_of(config.override_rule_set),
    )
    return Schema(schema.text, schema.type, schema.references, metadata, rule_set)


def _merged_metadata(*layers: Metadata | None) -> Metadata | None:
    present = [layer for layer in layers if layer is not None]
    if len(present) <= 1:
        return present[0] if present else None
    tags: dict[str, dict[str, None]] = {}
    properties: dict[str, str] = {}
    sensitive: dict[str, None] = {}
    for layer in present:
        for path, names in (layer.tags or {}).items():
            tags.setdefault(path, {}).update(dict.fromkeys(names))
        properties |= layer.properties or {}
        sensitive |= dict.fromkeys(layer.sensitive or ())
    return Metadata(
        {path: tuple(names) for path, names in tags.items()} or None,
        properties or None,
        tuple(sensitive) or None,
    )


def _merged_rule_sets(*layers: RuleSet | None) -> RuleSet | None:
    present = [layer for layer in layers if layer is not None]
    if len(present) <= 1:
        return present[0] if present else None
    enabled = [layer.enable_at for layer in present if layer.enable_at is not None]
    return RuleSet(
        _merged_rules(layer.migration_rules for layer in present),
        _merged_rules(layer.domain_rules for layer in present),
        _merged_rules(layer.encoding_rules for layer in present),
        enabled[-1] if enabled else None,
    )


def _merged_rules(layers: Iterable[tuple[Rule, ...] | None]) -> tuple[Rule, ...] | None:
    """Return the rules of all layers; a later rule replaces one of the same name, at the end."""
    rules: dict[str, Rule] = {}
    for layer in layers:
        for rule in layer or ():
            rules.pop(rule.name, None)
            rules[rule.name] = rule
    return tuple(rules.values()) or None


_DATA_MODES = frozenset({"WRITE", "READ", "WRITEREAD"})
_MIGRATION_MODES = frozenset({"UPGRADE", "DOWNGRADE", "UPDOWN"})
_KINDS = frozenset({"TRANSFORM", "CONDITION"})


def check_rule_set_form(rule_set: RuleSetForm) -> None:
    """RegistryError 42210 if names are missing or not unique, or a mode is of another phase."""
    names: set[str] = set()
    _check_rules(rule_set.migration_rules or (), _MIGRATION_MODES, names)
    _check_rules(rule_set.domain_rules or (), _DATA_MODES, names)
    _check_rules(rule_set.encoding_rules or (), _DATA_MODES, names)


def _check_rules(rules: Sequence[RuleForm], modes: frozenset[str], names: set[str]) -> None:
    for rule in rules:
        if not rule.name:
            raise invalid_rule_set("a rule has no name")
        if rule.name in names:
            raise invalid_rule_set(f"there are two rules named {rule.name!r}")
        names.add(rule.name)
        if rule.mode is not None and rule.mode not in modes:
            valid = ", ".join(sorted(modes))
            raise invalid_rule_set(f"rule {rule.name!r}: the mode must be one of {valid}")
        if rule.kind is not None and rule.kind not in _KINDS:
            raise invalid_rule_set(f"rule {rule.name!r}: the kind must be TRANSFORM or CONDITION")
