"""The records of `_schemas`: keys and values in Confluent's form.

Written: members in Confluent's order, because compaction compares the bytes of keys. Read: any
order of members, and unknown members are ignored, so that topics of Confluent and karapace load.

Key                                                           Value
{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}      SchemaValue
{"keytype":"CONFIG","subject":"s","magic":0}                  ConfigForm; subject null: default
{"keytype":"MODE","subject":"s","magic":0}                    ModeValue; subject null: default
{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}          SubjectValue: soft-deleted versions
{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}           SubjectValue: forget the soft-deleted
{"keytype":"CONTEXT","tenant":"default","context":".c"}       ContextValue
{"keytype":"NOOP","magic":0}                                  ignored by others; here: NoopValue
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct, field

from ottla.schemas.schema import Metadata, Rule, RuleSet, Schema, SchemaReference, SchemaType

TENANT: Final = "default"

Record = tuple[bytes, bytes | None]


class MetadataForm(Struct, omit_defaults=True):
    """`Metadata` in JSON."""

    tags: dict[str, list[str]] | None = None
    properties: dict[str, str] | None = None
    sensitive: list[str] | None = None


class RuleForm(Struct, rename="camel", omit_defaults=True):
    """`Rule` in JSON."""

    name: str | None = None
    doc: str | None = None
    kind: str | None = None
    mode: str | None = None
    type: str | None = None
    tags: list[str] | None = None
    params: dict[str, str] | None = None
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    # Confluent always writes this member, and `omit_defaults` spares defaults of a factory.
    disabled: bool | None = field(default_factory=bool)


class RuleSetForm(Struct, rename="camel", omit_defaults=True):
    """`RuleSet` in JSON."""

    migration_rules: list[RuleForm] | None = None
    domain_rules: list[RuleForm] | None = None
    encoding_rules: list[RuleForm] | None = None
    enable_at: str | None = None


class ReferenceForm(Struct):
    """`SchemaReference` in JSON."""

    name: str
    subject: str
    version: int = -1


class ConfigForm(Struct, rename="camel", omit_defaults=True, frozen=True):
    """The configuration of a subject or a context. A member that is None is inherited."""

    alias: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_new_schemas: bool | None = None
    validate_rules: bool | None = None
    compatibility_level: str | None = None
    compatibility_policy: str | None = None
    compatibility_group: str | None = None
    default_metadata: MetadataForm | None = None
    override_metadata: MetadataForm | None = None
    default_rule_set: RuleSetForm | None = None
    override_rule_set: RuleSetForm | None = None


class SchemaKey(Struct, frozen=True):
    """The key of any record; members that a kind of key does not have are None."""

    keytype: str
    subject: str | None = None
    version: int | None = None
    magic: int | None = None
    tenant: str | None = None
    context: str | None = None


class SchemaValue(Struct, rename="camel", omit_defaults=True):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str | None = None
    references: list[ReferenceForm] | None = None
    metadata: MetadataForm | None = None
    rule_set: RuleSetForm | None = None
    deleted: bool | None = field(default_factory=bool)


class ModeValue(Struct):
    """The mode of a subject or a context."""

    mode: str
    subject: str | None = None


class SubjectValue(Struct, omit_defaults=True):
    """For DELETE_SUBJECT: every version up to this number is soft-deleted."""

    subject: str
    version: int | None = None


class ContextValue(Struct):
    """A context that exists."""

    tenant: str
    context: str


class NoopValue(Struct, rename="camel", omit_defaults=True):
    """The highest id of each context with a hard delete.

    Compaction removes a hard-deleted schema, and its id must not be given again. Other registries
    do not look into the value of a NOOP.
    """

    max_ids: dict[str, int] | None = None


Value = SchemaValue | ConfigForm | ModeValue | SubjectValue | ContextValue | NoopValue

_VALUE_TYPES: Final[Mapping[str, type[Value]]] = {
    "SCHEMA": SchemaValue,
    "CONFIG": ConfigForm,
    "MODE": ModeValue,
    "DELETE_SUBJECT": SubjectValue,
    "CLEAR_SUBJECT": SubjectValue,
    "CONTEXT": ContextValue,
    "NOOP": NoopValue,
}
_encode = msgspec.json.Encoder().encode
_decode_key = msgspec.json.Decoder(SchemaKey).decode
_value_decoders = {kind: msgspec.json.Decoder(form) for kind, form in _VALUE_TYPES.items()}


class UnreadableRecordError(ValueError):
    """A record of `_schemas` that is none of the known forms; the message has the reason."""


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A key with its value; None is a tombstone."""

    key: SchemaKey
    value: Value | None


def read_record(key: bytes | None, value: bytes | None) -> ReadRecord:
    """Decode a record; UnreadableRecordError if that is impossible."""
    if key is None:
        raise UnreadableRecordError("the record has no key")
    try:
        read_key = _decode_key(key)
        decoder = _value_decoders.get(read_key.keytype)
        if decoder is None:
            raise UnreadableRecordError(f"unknown keytype {read_key.keytype[:40]!r}")
        # karapace writes an empty value where Confluent writes a null.
        read_value = decoder.decode(value) if value else None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as unreadable:
        raise UnreadableRecordError(str(unreadable)) from None
    return ReadRecord(read_key, read_value)


def schema_key(subject: str, version: int) -> bytes:
    """Return the key of a version."""
    return _encode({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def schema_record(
    subject: str, version: int, schema_id: int, schema: Schema, *, deleted: bool = False
) -> Record:
    """Return the record of a version that is registered, or soft-deleted."""
    value = SchemaValue(
        subject,
        version,
        schema_id,
        schema.text,
        None if schema.type is SchemaType.AVRO else schema.type.value,
        reference_forms(schema.references) or None,
        metadata_form(schema.metadata),
        rule_set_form(schema.rule_set),
        deleted,
    )
    return schema_key(subject, version), _encode(value)


def schema_tombstone(subject: str, version: int) -> Record:
    """Return the record that hard-deletes a version."""
    return schema_key(subject, version), None


def _subject_key(keytype: str, subject: str | None) -> bytes:
    return _encode({"keytype": keytype, "subject": subject, "magic": 0})


def config_record(subject: str | None, config: ConfigForm | None) -> Record:
    """Return the record of a configuration; None removes it."""
    if config is None:
        return _subject_key("CONFIG", subject), None
    value = {"subject": subject} if subject is not None else {}
    return _subject_key("CONFIG", subject), _encode(value | msgspec.to_builtins(config))


def mode_record(subject: str | None, mode: str | None) -> Record:
    """Return the record of a mode; None removes it."""
    value = None if mode is None else _encode({"subject": subject, "mode": mode})
    return _subject_key("MODE", subject), value


def delete_subject_record(subject: str, version: int) -> Record:
    """Return the record that soft-deletes the versions of a subject up to a number."""
    return _subject_key("DELETE_SUBJECT", subject), _encode(SubjectValue(subject, version))


def clear_subject_record(subject: str) -> Record:
    """Return the record that forgets the soft-deleted versions of a subject."""
    return _subject_key("CLEAR_SUBJECT", subject), _encode(SubjectValue(subject))


def context_record(context: str, *, deleted: bool = False) -> Record:
    """Return the record of a context."""
    key = _encode({"keytype": "CONTEXT", "tenant": TENANT, "context": context})
    return key, None if deleted else _encode(ContextValue(TENANT, context))


def max_ids_record(max_id_by_context: Mapping[str, int]) -> Record:
    """Return the NOOP that keeps the ids of hard-deleted schemas from being given again."""
    key = _encode({"keytype": "NOOP", "magic": 0})
    return key, _encode(NoopValue(dict(max_id_by_context)))


def schema_of(value: SchemaValue) -> Schema:
    """Return the schema of a value; UnreadableRecordError if its type is unknown."""
    try:
        schema_type = SchemaType(value.schema_type or "AVRO")
        references = references_of(value.references)
        rule_set = rule_set_of(value.rule_set)
    except ValueError as unreadable:
        raise UnreadableRecordError(str(unreadable)) from None
    return Schema(value.schema, schema_type, references, metadata_of(value.metadata), rule_set)


def references_of(forms: Sequence[ReferenceForm] | None) -> tuple[SchemaReference, ...]:
    """Return the values of forms."""
    return tuple(SchemaReference(one.name, one.subject, one.version) for one in forms or ())


def reference_forms(references: Sequence[SchemaReference]) -> list[ReferenceForm]:
    """Return the forms of values."""
    return [ReferenceForm(one.name, one.subject, one.version) for one in references]


def metadata_of(form: MetadataForm | None) -> Metadata | None:
    """Return the value of a form."""
    if form is None:
        return None
    return Metadata(
        None if form.tags is None else {path: tuple(tags) for path, tags in form.tags.items()},
        form.properties,
        None if form.sensitive is None else tuple(form.sensitive),
    )


def metadata_form(metadata: Metadata | None) -> MetadataForm | None:
    """Return the form of a value, without its empty members."""
    if metadata is None:
        return None
    return MetadataForm(
        {path: list(tags) for path, tags in (metadata.tags or {}).items()} or None,
        dict(metadata.properties or {}) or None,
        list(metadata.sensitive or ()) or None,
    )


def rule_set_of(form: RuleSetForm | None) -> RuleSet | None:
    """Return the value of a form; ValueError if a rule has no name."""
    if form is None:
        return None
    return RuleSet(
        _rules_of(form.migration_rules),
        _rules_of(form.domain_rules),
        _rules_of(form.encoding_rules),
        form.enable_at,
    )


def _rules_of(forms: Sequence[RuleForm] | None) -> tuple[Rule, ...] | None:
    return None if forms is None else tuple(_rule_of(form) for form in forms)


def _rule_of(form: RuleForm) -> Rule:
    if not form.name:
        raise ValueError("a rule has no name")
    tags = None if form.tags is None else tuple(form.tags)
    return Rule(
        form.name,
        form.kind,
        form.mode,
        form.type,
        form.doc,
        tags,
        form.params,
        form.expr,
        form.on_success,
        form.on_failure,
        bool(form.disabled),
    )


def rule_set_form(rule_set: RuleSet | None) -> RuleSetForm | None:
    """Return the form of a value, without its empty members."""
    if rule_set is None:
        return None
    return RuleSetForm(
        _rule_forms(rule_set.migration_rules),
        _rule_forms(rule_set.domain_rules),
        _rule_forms(rule_set.encoding_rules),
        rule_set.enable_at,
    )


def _rule_forms(rules: Sequence[Rule] | None) -> list[RuleForm] | None:
    return [_rule_form(rule) for rule in rules or ()] or None


def _rule_form(rule: Rule) -> RuleForm:
    return RuleForm(
        rule.name,
        rule.doc,
        rule.kind,
        rule.mode,
        rule.type,
        list(rule.tags or ()) or None,
        dict(rule.params or {}) or None,
        rule.expr,
        rule.on_success,
        rule.on_failure,
        rule.disabled,
    )
