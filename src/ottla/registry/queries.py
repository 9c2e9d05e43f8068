"""Answers to reads: versions, ids, guids, lists.

Members that old clients do not know (`guid`, `ts`, `deleted`, and `schemaType` AVRO) are left out
unless the request says that the client ignores unknown members.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from msgspec import Struct

from ottla.registry.qualified_subjects import (
    DEFAULT_CONTEXT,
    EVERY_CONTEXT,
    context_of,
    is_qualified,
    normalized,
    qualified,
    split,
)
from ottla.registry.registration import NUMBER_MAX, Registered
from ottla.registry.registry_errors import (
    invalid_schema,
    invalid_version,
    schema_not_found,
    subject_not_found,
    unprocessable,
    version_not_found,
)
from ottla.registry.registry_machine import RegistryMachine
from ottla.registry.registry_state import StoredSchema, Version
from ottla.registry.schemas_records import (
    MetadataForm,
    ReferenceForm,
    RuleSetForm,
    metadata_form,
    reference_forms,
    rule_set_form,
)
from ottla.schemas.fingerprint import guid_text
from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.schema import Schema, SchemaType

PAGE_MAX: Final = 20_000
"""The entries of a list; further ones are on the next page, by `offset`."""
SCHEMAS_PAGE_MAX: Final = 1000
"""The schemas of a list."""
T = TypeVar("T")


class SchemaAnswer(Struct, rename="camel", omit_defaults=True):
    """A schema in an answer; the operation decides which members are there."""

    subject: str | None = None
    version: int | None = None
    id: int | None = None
    guid: str | None = None
    schema_type: str | None = None
    references: list[ReferenceForm] | None = None
    metadata: MetadataForm | None = None
    rule_set: RuleSetForm | None = None
    schema: str | None = None
    max_id: int | None = None
    schema_tags: list["TagsAnswer"] | None = None
    ts: int | None = None
    deleted: bool | None = None


class EntityAnswer(Struct, rename="camel"):
    """A record or a field of a schema."""

    entity_path: str
    entity_type: str


class TagsAnswer(Struct, rename="camel"):
    """The tags of an entity."""

    schema_entity: EntityAnswer
    tags: tuple[str, ...]


class SubjectVersion(Struct):
    """A version in a list."""

    subject: str
    version: int


class ContextId(Struct):
    """An id in a list."""

    context: str
    id: int


class Shape(Struct, frozen=True):
    """How the request wants schemas to be shown."""

    with_unknown: bool = False
    text_format: str = ""
    reference_format: str = ""
    tags: tuple[str, ...] = ()
    """Entities with one of these tags are shown, too; `*` is every tag."""


def _answer(
    machine: RegistryMachine, context: str, schema: Schema, guid: bytes, shape: Shape
) -> SchemaAnswer:
    references = reference_forms(schema.references)
    if shape.reference_format.lower() == "qualified":
        for reference in references:
            if not is_qualified(reference.subject):
                reference.subject = f":{context}:{reference.subject}"
    shows_type = shape.with_unknown or schema.type is not SchemaType.AVRO
    return SchemaAnswer(
        guid=guid_text(guid) if shape.with_unknown else None,
        schema_type=schema.type.value if shows_type else None,
        references=references or None,
        metadata=metadata_form(schema.metadata),
        rule_set=rule_set_form(schema.rule_set),
        schema=formatted(machine, context, schema, shape.text_format),
        schema_tags=_tags(machine, context, schema, shape.tags) if shape.tags else None,
    )


def _tags(
    machine: RegistryMachine, context: str, schema: Schema, wanted: tuple[str, ...]
) -> list[TagsAnswer] | None:
    try:
        entities = machine.parsed.tagged_entities(context, schema)
    except InvalidSchemaError as invalid:
        raise invalid_schema(str(invalid)) from None
    found = [
        TagsAnswer(EntityAnswer(one.path, "SR_FIELD" if one.is_field else "SR_RECORD"), one.tags)
        for one in entities
        if "*" in wanted or not set(wanted).isdisjoint(one.tags)
    ]
    return found or None


def formatted(machine: RegistryMachine, context: str, schema: Schema, text_format: str) -> str:
    """Return the text of a schema in a format; without one, as it is stored."""
    if not text_format:
        return schema.text
    try:
        return machine.parsed.formatted(context, schema, text_format)
    except InvalidSchemaError as invalid:
        raise invalid_schema(str(invalid)) from None
    except ValueError as unknown:
        raise unprocessable(str(unknown)) from None


def stored_answer(machine: RegistryMachine, stored: StoredSchema, shape: Shape) -> SchemaAnswer:
    """Show a schema without its place."""
    return _answer(machine, stored.context, stored.schema, stored.guid, shape)


def version_answer(machine: RegistryMachine, version: Version, shape: Shape) -> SchemaAnswer:
    """Show a schema with its place."""
    answer = stored_answer(machine, version.stored, shape)
    answer.subject, answer.version = version.place
    answer.id = version.stored.id
    if shape.with_unknown:
        answer.ts = version.timestamp_ms
        answer.deleted = version.is_deleted
    return answer


def registered_answer(
    machine: RegistryMachine, subject: str, registered: Registered, shape: Shape
) -> SchemaAnswer:
    """Show the outcome of a registration: the id, and the version for a client that expects it.

    The text is left out unless the configuration has completed the schema, or the request names a
    format: a client remembers the text of this response in place of a later answer, and the
    Protobuf deserializer for Python can only read serialized descriptors.
    """
    if registered.is_completed or shape.text_format:
        answer = _answer(machine, context_of(subject), registered.schema, registered.guid, shape)
    elif shape.with_unknown:
        kind = registered.schema.type.value
        answer = SchemaAnswer(guid=guid_text(registered.guid), schema_type=kind)
    else:
        return SchemaAnswer(id=registered.schema_id)
    answer.id, answer.version = registered.schema_id, registered.version
    return answer


def version_number(text: str) -> int:
    """Return the number that a path names; -1 is the latest version."""
    if text in {"latest", "-1"}:
        return -1
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise invalid_version(text)
    if not 1 <= int(text) <= NUMBER_MAX:
        raise invalid_version(text)
    return int(text)


def find_version(
    machine: RegistryMachine, subject: str, number: int, *, with_deleted: bool
) -> Version:
    """Return a version; RegistryError 40401 or 40402 if there is none."""
    latest = machine.state.latest(subject, with_deleted=with_deleted)
    if latest is None:
        raise subject_not_found(subject)
    version = latest if number == -1 else machine.state.versions(subject).get(number)
    if version is None or (version.is_deleted and not with_deleted):
        raise version_not_found(number)
    return version


def find_id(machine: RegistryMachine, schema_id: int, subject: str) -> StoredSchema:
    """Return the schema with an id.

    A subject with a context names the context. One without names the context where it has the id;
    if it has it nowhere, and without a subject, it is the default context.
    """
    if is_qualified(subject):
        contexts = [context_of(normalized(subject))]
    else:
        contexts = [DEFAULT_CONTEXT]
        if subject:
            contexts = _contexts_with(machine, subject, schema_id) + contexts
    for context in contexts:
        stored = machine.state.stored(context, schema_id)
        if stored is not None:
            return stored
    raise schema_not_found(schema_id)


def _contexts_with(machine: RegistryMachine, subject: str, schema_id: int) -> list[str]:
    contexts = []
    for context in machine.state.contexts():
        versions = machine.state.versions(qualified(context, subject)).values()
        if any(version.stored.id == schema_id for version in versions):
            contexts.append(context)
    return contexts


def versions_of_id(
    machine: RegistryMachine, stored: StoredSchema, subject: str, *, with_deleted: bool
) -> list[Version]:
    """Return the versions with a schema; a subject with a name selects its versions."""
    name = split(normalized(subject))[1] if subject else ""
    return [
        version
        for version in machine.state.versions_with(stored)
        if (with_deleted or not version.is_deleted)
        and (not name or split(version.subject)[1] == name)
    ]


def find_guid(machine: RegistryMachine, text: str) -> list[StoredSchema]:
    """Return the schemas with a guid, one for each context."""
    try:
        found = list(machine.state.find_guid(UUID(text).bytes))
    except ValueError:
        found = []
    if not found:
        raise schema_not_found(text[:40])
    return found


def context_ids(stored: Iterable[StoredSchema]) -> list[ContextId]:
    """Show where schemas are."""
    return [ContextId(one.context, one.id) for one in stored]


def matching_subjects(
    machine: RegistryMachine, prefix: str, is_listed: Callable[[Version], bool]
) -> list[str]:
    """Return the subjects with a prefix that have a version that is listed."""
    state = machine.state
    return [
        subject
        for subject in state.subjects()
        if has_prefix(subject, prefix) and any(map(is_listed, state.versions(subject).values()))
    ]


def has_prefix(subject: str, prefix: str) -> bool:
    """Tell whether a subject has a prefix; `:*:` leaves the context open."""
    if prefix.startswith(EVERY_CONTEXT):
        return split(subject)[1].startswith(prefix[len(EVERY_CONTEXT) :])
    context, name = split(normalized(prefix))
    subject_context, subject_name = split(subject)
    return subject_context == context and subject_name.startswith(name)


def matching_schemas(
    machine: RegistryMachine, subjects: Iterable[str], *, with_deleted: bool, latest_only: bool
) -> list[Version]:
    """Return the versions of subjects."""
    found: list[Version] = []
    for subject in subjects:
        versions = [
            version
            for version in machine.state.versions(subject).values()
            if with_deleted or not version.is_deleted
        ]
        found += versions[-1:] if latest_only else versions
    return found


def has_rule_of_type(version: Version, rule_type: str) -> bool:
    """Tell whether a version has a rule of a type."""
    rule_set = version.stored.schema.rule_set
    if rule_set is None:
        return False
    phases = (rule_set.migration_rules, rule_set.domain_rules, rule_set.encoding_rules)
    return any(rule.type == rule_type for rules in phases for rule in rules or ())


def version_with_metadata(
    machine: RegistryMachine, subject: str, wanted: Mapping[str, str], *, with_deleted: bool
) -> Version:
    """Return the latest version with these properties."""
    versions = machine.state.versions(subject).values()
    listed = [version for version in versions if with_deleted or not version.is_deleted]
    if not listed:
        raise subject_not_found(subject)
    for version in reversed(listed):
        metadata = version.stored.schema.metadata
        properties = {} if metadata is None else metadata.properties or {}
        if wanted.items() <= properties.items():
            return version
    raise schema_not_found()


def page(entries: Sequence[T], offset: int, limit: int, limit_max: int = PAGE_MAX) -> Sequence[T]:
    """Return a page of a list; a negative limit is the largest page."""
    start = max(offset, 0)
    size = limit_max if limit < 0 else min(limit, limit_max)
    return entries[start : start + size]


def listed_numbers(
    versions: Iterable[Version],
    *,
    with_deleted: bool,
    deleted_only: bool,
    deleted_as_negative: bool,
) -> list[int]:
    """Return the numbers of versions."""
    numbers = []
    for version in versions:
        if deleted_only and not version.is_deleted:
            continue
        if version.is_deleted and not (with_deleted or deleted_only or deleted_as_negative):
            continue
        negative = deleted_as_negative and version.is_deleted
        numbers.append(-version.number if negative else version.number)
    return numbers


def cluster_scope(cluster_id: str) -> dict[str, Any]:
    """Return the answer to GET /v1/metadata/id."""
    clusters = {"kafka-cluster": cluster_id, "schema-registry-cluster": "schema-registry"}
    return {"scope": {"path": [], "clusters": clusters}}
