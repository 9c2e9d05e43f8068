"""Decisions on new schemas: register, look up, check compatibility.

Register: the text, or the previous version's if it is empty → metadata and rules completed by the
configuration → canonical text → a live version of this subject with the same schema is the answer,
in every mode → mode → the id that the context has for this schema → compatible with the live
versions → the highest version plus 1, the context's highest id plus 1.
"""

from dataclasses import replace
from typing import Final

from msgspec import Struct

from ottla.registry.configuration import check_rule_set_form, completed
from ottla.registry.parsed_schemas import Directions
from ottla.registry.qualified_subjects import DEFAULT_CONTEXT, context_of
from ottla.registry.registry_errors import (
    id_differs,
    incompatible,
    invalid_schema,
    not_permitted,
    schema_not_found,
    subject_not_found,
    too_large,
    unprocessable,
)
from ottla.registry.registry_machine import Decision, RegistryMachine, check_subject
from ottla.registry.registry_state import StoredSchema, Version
from ottla.registry.schemas_records import (
    ConfigForm,
    MetadataForm,
    ReferenceForm,
    RuleSetForm,
    context_record,
    metadata_of,
    references_of,
    rule_set_of,
    schema_record,
)
from ottla.schemas.fingerprint import fingerprint
from ottla.schemas.parsed_schema import CompatibilityPolicy, InvalidSchemaError
from ottla.schemas.schema import Schema, SchemaReference, SchemaType

SCHEMA_BYTES_MAX: Final = 1 << 20
VERSIONS_MAX: Final = 10_000
"""The versions of a subject, with the soft-deleted."""
NUMBER_MAX: Final = (1 << 31) - 1
SHOWN_CHARACTERS_MAX: Final = 16 << 10
"""Of the old schema in a message."""
RESERVED_FIELDS: Final = "confluent:reserved"
"""The property of the metadata with names that fields must not have, separated by commas."""
RESERVED_PREFIX: Final = "$$"
"""Of field names, where fields are validated."""
COMPARED_MESSAGES_MAX: Final = 100
"""The reasons in a message; a changed record can have one for every field."""


class SchemaRequest(Struct, rename="camel"):
    """The body of register, look-up and compatibility check."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[ReferenceForm] | None = None
    metadata: MetadataForm | None = None
    rule_set: RuleSetForm | None = None
    id: int | None = None
    version: int | None = None


class Registered(Struct):
    """The outcome of a registration."""

    schema_id: int
    version: int
    schema: Schema
    guid: bytes
    is_completed: bool
    """Whether the configuration changed metadata or rules: the response has to show them."""


def requested_schema(machine: RegistryMachine, subject: str, request: SchemaRequest) -> Schema:
    """Return the schema of a request as it was sent, with the numbers of its references."""
    if request.schema is not None and len(request.schema.encode()) > SCHEMA_BYTES_MAX:
        raise too_large("The schema", SCHEMA_BYTES_MAX)
    if request.rule_set is not None and machine.config(subject).validate_rules is not False:
        check_rule_set_form(request.rule_set)
    try:
        schema_type = SchemaType((request.schema_type or "AVRO").upper())
    except ValueError:
        raise invalid_schema(f"unknown schema type {request.schema_type!r}") from None
    return Schema(
        request.schema or "",
        schema_type,
        _numbered(machine, subject, references_of(request.references)),
        metadata_of(request.metadata),
        rule_set_of(request.rule_set),
    )


def _numbered(
    machine: RegistryMachine, subject: str, references: tuple[SchemaReference, ...]
) -> tuple[SchemaReference, ...]:
    """Replace version -1 by the number of the latest version."""
    numbered = []
    for reference in references:
        latest = reference.version == -1
        version = machine.parsed.referenced(context_of(subject), reference) if latest else None
        numbered.append(
            reference if version is None else replace(reference, version=version.number)
        )
    return tuple(numbered)


def canonical(
    machine: RegistryMachine, subject: str, schema: Schema, config: ConfigForm, *, normalize: bool
) -> Schema:
    """Return a schema with the text that is stored; RegistryError 42201 if it is not valid."""
    try:
        normalizes = normalize or bool(config.normalize)
        text = machine.parsed.canonical(context_of(subject), schema, normalize=normalizes)
    except InvalidSchemaError as invalid:
        raise invalid_schema(str(invalid)) from None
    if config.validate_fields:
        _check_field_names(machine, subject, schema)
    references = schema.references
    if normalizes:
        references = tuple(
            sorted(set(references), key=lambda one: (one.name, one.subject, one.version))
        )
    return replace(schema, text=text, references=references)


def register(
    machine: RegistryMachine,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool,
    force: bool = False,
) -> Decision:
    """Register a schema; the response is a `Registered`."""
    check_subject(subject)
    config = machine.config(subject)
    mode = machine.mode(subject)
    schema, is_completed = _completed_schema(machine, subject, request, config, mode, normalize)
    stored = machine.state.find(context_of(subject), schema)
    version = None if stored is None else _live_version(machine, subject, stored)
    if version is not None and _is_answer(request, version):
        return Decision((), _registered(version, is_completed))
    wanted_id = _wanted_id(machine, subject, request, stored, mode)
    _check_mode(subject, request, mode)
    number = _next_version(machine, subject, request, mode)
    if mode not in {"IMPORT", "FORWARD"} and not force:
        check_compatible(machine, subject, schema, config)
    return _decision(machine, subject, schema, number, wanted_id, is_completed)


def _completed_schema(
    machine: RegistryMachine,
    subject: str,
    request: SchemaRequest,
    config: ConfigForm,
    mode: str,
    normalize: bool,
) -> tuple[Schema, bool]:
    schema = requested_schema(machine, subject, request)
    previous = machine.state.latest(subject)
    if not schema.text.strip():
        if previous is None:
            raise invalid_schema("the text is empty")
        earlier = previous.stored.schema
        schema = replace(
            schema, text=earlier.text, type=earlier.type, references=earlier.references
        )
    own = schema
    if mode not in {"IMPORT", "FORWARD"}:
        schema = completed(config, schema, None if previous is None else previous.stored.schema)
    is_completed = (schema.metadata, schema.rule_set) != (own.metadata, own.rule_set)
    return canonical(machine, subject, schema, config, normalize=normalize), is_completed


def _live_version(machine: RegistryMachine, subject: str, stored: StoredSchema) -> Version | None:
    versions = [
        version
        for version in machine.state.versions_with(stored)
        if version.subject == subject and not version.is_deleted
    ]
    return versions[-1] if versions else None


def _is_answer(request: SchemaRequest, version: Version) -> bool:
    """Tell whether the version is the requested one; an id or a number may ask for another."""
    return (request.id or version.stored.id) == version.stored.id and (
        request.version or version.number
    ) == version.number


def _registered(version: Version, is_completed: bool) -> Registered:
    stored = version.stored
    return Registered(stored.id, version.number, stored.schema, stored.guid, is_completed)


def _check_mode(subject: str, request: SchemaRequest, mode: str) -> None:
    if mode in {"READONLY", "READONLY_OVERRIDE"}:
        raise not_permitted(f"Subject {subject} is in read-only mode")
    has_id = request.id is not None and request.id > 0
    if has_id and mode not in {"IMPORT", "FORWARD"}:
        raise not_permitted(f"Subject {subject} is not in import mode")
    if not has_id and mode == "IMPORT":
        raise not_permitted(f"Subject {subject} is in import mode: the request must have an id")


def _wanted_id(
    machine: RegistryMachine,
    subject: str,
    request: SchemaRequest,
    stored: StoredSchema | None,
    mode: str,
) -> int:
    """Return the id of the new version; 0 for the context's next id."""
    if not request.id or request.id < 0:
        return 0 if stored is None else stored.id
    if request.id > NUMBER_MAX:
        raise unprocessable(f"The id must be at most {NUMBER_MAX}.")
    known = machine.state.stored(context_of(subject), request.id)
    same = known is not None and stored is not None and known.guid == stored.guid
    if mode in {"IMPORT", "FORWARD"} and known is not None and not same:
        raise id_differs(request.id)
    return request.id


def _next_version(machine: RegistryMachine, subject: str, request: SchemaRequest, mode: str) -> int:
    versions = machine.state.versions(subject)
    if len(versions) >= VERSIONS_MAX:
        raise too_large(f"The number of versions of subject {subject}", VERSIONS_MAX)
    following = next(reversed(versions), 0) + 1
    wanted = request.version or 0
    if wanted <= 0 or wanted == following:
        return following
    if wanted > NUMBER_MAX:
        raise unprocessable(f"The version must be at most {NUMBER_MAX}.")
    if mode != "IMPORT":
        raise invalid_schema(f"the next version is {following}, the request has {wanted}")
    return wanted


def next_id(machine: RegistryMachine, context: str) -> int:
    """Return an id that the context never had."""
    return machine.state.max_ids.get(context, 0) + 1


def _decision(
    machine: RegistryMachine,
    subject: str,
    schema: Schema,
    number: int,
    wanted_id: int,
    is_completed: bool,
) -> Decision:
    context = context_of(subject)
    schema_id = wanted_id or next_id(machine, context)
    if schema_id > NUMBER_MAX:
        raise too_large(f"The next id of context {context}", NUMBER_MAX)
    records = [schema_record(subject, number, schema_id, schema)]
    if context != DEFAULT_CONTEXT and not machine.state.has_context(context):
        records.insert(0, context_record(context))
    registered = Registered(schema_id, number, schema, fingerprint(schema), is_completed)
    return Decision(tuple(records), registered)


def look_up(
    machine: RegistryMachine,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool,
    with_deleted: bool,
) -> Version:
    """Return the version of a subject that has a schema.

    A request without metadata and rules also finds a version that has some.
    """
    versions = machine.state.versions(subject).values()
    if not any(with_deleted or not version.is_deleted for version in versions):
        raise subject_not_found(subject)
    config = machine.config(subject)
    schema = requested_schema(machine, subject, request)
    schema = canonical(machine, subject, schema, config, normalize=normalize)
    bare = schema.metadata is None and schema.rule_set is None
    fallback = None
    for version in reversed(versions):
        if version.is_deleted and not with_deleted:
            continue
        stored = version.stored.schema
        if stored == schema:
            return version
        if bare and fallback is None and _is_same_text(stored, schema):
            fallback = version
    if fallback is None:
        raise schema_not_found()
    return fallback


def _is_same_text(stored: Schema, schema: Schema) -> bool:
    return (stored.text, stored.type, stored.references) == (
        schema.text,
        schema.type,
        schema.references,
    )


def check_compatible(
    machine: RegistryMachine, subject: str, schema: Schema, config: ConfigForm
) -> None:
    """RegistryError 40901 unless a schema is compatible with the live versions of a subject."""
    versions = machine.state.live_versions(subject)
    messages = incompatibilities(machine, subject, schema, versions, config)
    if messages:
        raise incompatible(subject, messages)


def incompatibilities(
    machine: RegistryMachine,
    subject: str,
    schema: Schema,
    versions: list[Version],
    config: ConfigForm,
) -> list[str]:
    """Return why a schema breaks a subject's level against some of its versions."""
    reserved = _reserved_conflicts(machine, subject, schema, versions, config)
    if reserved:
        return reserved
    level = config.compatibility_level or "NONE"
    versions = _same_group(schema, versions, config.compatibility_group)
    if level == "NONE" or not versions:
        return []
    if not level.endswith("_TRANSITIVE"):
        versions = versions[-1:]
    is_full = level.startswith("FULL")
    directions = Directions(
        backward=is_full or level.startswith("BACKWARD"),
        forward=is_full or level.startswith("FORWARD"),
    )
    policy = CompatibilityPolicy(config.compatibility_policy or CompatibilityPolicy.STRICT)
    try:
        found = machine.parsed.incompatibilities(
            context_of(subject), schema, versions, directions, policy
        )
    except InvalidSchemaError as invalid:
        raise invalid_schema(str(invalid)) from None
    if not found:
        return []
    version = found[0][0]
    messages = [
        f"{{errorType:'{one.rule}', description:'{one.message}', additionalInfo:'{one.path}'}}"
        for _, one in found[:COMPARED_MESSAGES_MAX]
    ]
    return [
        *messages,
        f"{{oldSchemaVersion: {version.number}}}",
        f"{{oldSchema: '{_shortened(version.stored.schema.text)}'}}",
        f"{{compatibility: '{level}'}}",
    ]


def _reserved_conflicts(
    machine: RegistryMachine,
    subject: str,
    schema: Schema,
    versions: list[Version],
    config: ConfigForm,
) -> list[str]:
    """Return the conflicts with reserved fields, where the configuration validates fields.

    They count at every level of compatibility. A later version may reserve more fields, not less.
    """
    if not config.validate_fields:
        return []
    reserved = _reserved_fields(schema)
    before = _reserved_fields(versions[-1].stored.schema) if versions else []
    fields = frozenset(_top_level_fields(machine, subject, schema))
    return [
        *(
            f"The new schema has reserved field {name} removed from its metadata"
            for name in before
            if name not in reserved
        ),
        *(
            f"The new schema has field that conflicts with the reserved field {name}"
            for name in reserved
            if name in fields
        ),
    ]


def _reserved_fields(schema: Schema) -> list[str]:
    names = (_property(schema, RESERVED_FIELDS) or "").split(",")
    return [name.strip() for name in names if name.strip()]


def _top_level_fields(machine: RegistryMachine, subject: str, schema: Schema) -> list[str]:
    try:
        return machine.parsed.top_level_fields(context_of(subject), schema)
    except InvalidSchemaError as invalid:
        raise invalid_schema(str(invalid)) from None


def _check_field_names(machine: RegistryMachine, subject: str, schema: Schema) -> None:
    for name in _top_level_fields(machine, subject, schema):
        if name.startswith(RESERVED_PREFIX):
            raise invalid_schema(f"the name of field {name} must not begin with {RESERVED_PREFIX}")


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"


def _same_group(schema: Schema, versions: list[Version], group: str | None) -> list[Version]:
    if not group:
        return versions
    value = _property(schema, group)
    return [version for version in versions if _property(version.stored.schema, group) == value]


def _property(schema: Schema, name: str) -> str | None:
    if schema.metadata is None or schema.metadata.properties is None:
        return None
    return schema.metadata.properties.get(name)
