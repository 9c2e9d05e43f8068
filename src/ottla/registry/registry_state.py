"""The registry's state: contexts, subjects, versions, ids, configurations and modes.

`replay` is the only writer; all else reads. Texts are not parsed here. Equal schemas of a context
share one `StoredSchema`, however many subjects have them.

A scope is a subject, a context (`:.c:`, or the empty text for the default context), or
`:.__GLOBAL:`; configurations and modes are kept by scope.
"""

import logging
from bisect import insort
from collections.abc import Iterator
from typing import Final

from ottla.registry.qualified_subjects import (
    DEFAULT_CONTEXT,
    GLOBAL,
    context_named,
    context_of,
    in_context_of,
    normalized,
    qualified,
    split,
)
from ottla.registry.schemas_log import SchemasRecord
from ottla.registry.schemas_records import (
    ConfigForm,
    ContextValue,
    ModeValue,
    NoopValue,
    SchemaKey,
    SchemaValue,
    SubjectValue,
    UnreadableRecordError,
    Value,
    read_record,
    schema_of,
)
from ottla.schemas.fingerprint import fingerprint
from ottla.schemas.schema import Schema, SchemaType

DEFAULT_SCOPE: Final = ""
"""The scope of the default context."""

_log = logging.getLogger(__name__)


class StoredSchema:
    """A schema with its id in a context. Immutable."""

    __slots__ = ("context", "guid", "id", "schema")

    def __init__(self, context: str, schema_id: int, schema: Schema, guid: bytes) -> None:
        self.context = context
        self.id = schema_id
        self.schema = schema
        self.guid = guid


class Version:
    """A version of a subject. Only replay changes `is_deleted`: the soft delete."""

    __slots__ = ("is_deleted", "number", "stored", "subject", "timestamp_ms")

    def __init__(
        self,
        subject: str,
        number: int,
        stored: StoredSchema,
        timestamp_ms: int,
        *,
        is_deleted: bool,
    ) -> None:
        self.subject = subject
        self.number = number
        self.stored = stored
        self.timestamp_ms = timestamp_ms
        self.is_deleted = is_deleted

    @property
    def place(self) -> tuple[str, int]:
        """Subject and number, which sort versions."""
        return self.subject, self.number


class _Context:
    __slots__ = ("ids_by_schema", "schema_by_id", "versions_by_id")

    def __init__(self) -> None:
        self.schema_by_id: dict[int, StoredSchema] = {}
        self.versions_by_id: dict[int, list[Version]] = {}
        # Imported logs may have a schema under several ids; the lowest is first.
        self.ids_by_schema: dict[tuple[bytes, SchemaType], list[int]] = {}


_NO_VERSIONS: Final[dict[int, Version]] = {}


class RegistryState:
    """The replayed state of `_schemas` up to `end_offset`."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.changes = 0
        """Counts the records that were replayed; an equal number means an equal state."""
        self.removals = 0
        """Counts hard deletes and replaced schemas: parsed references may have become stale."""
        self.unreadable = 0
        self.configs: dict[str, ConfigForm] = {}
        self.modes: dict[str, str] = {}
        self.max_ids: dict[str, int] = {}
        """The highest id that a context ever had."""
        self._contexts: dict[str, _Context] = {DEFAULT_CONTEXT: _Context()}
        self._subjects: dict[str, dict[int, Version]] = {}
        self._referrers: dict[tuple[str, int], dict[tuple[str, int], Version]] = {}

    # Queries

    def contexts(self) -> list[str]:
        """Return the contexts in order; the default context is always there."""
        return sorted(self._contexts)

    def has_context(self, context: str) -> bool:
        """Tell whether a context is known."""
        return context in self._contexts

    def subjects(self) -> list[str]:
        """Return all subjects with a version that is not hard-deleted, in order."""
        return sorted(self._subjects)

    def subjects_of(self, context: str) -> list[str]:
        """Return the subjects of a context."""
        return [subject for subject in self.subjects() if context_of(subject) == context]

    def versions(self, subject: str) -> dict[int, Version]:
        """Return the versions of a subject by number, in order, with the soft-deleted."""
        return self._subjects.get(subject, _NO_VERSIONS)

    def live_versions(self, subject: str) -> list[Version]:
        """Return the versions of a subject in order, without the soft-deleted."""
        return [one for one in self.versions(subject).values() if not one.is_deleted]

    def latest(self, subject: str, *, with_deleted: bool = False) -> Version | None:
        """Return the highest version of a subject."""
        for version in reversed(self.versions(subject).values()):
            if with_deleted or not version.is_deleted:
                return version
        return None

    def stored(self, context: str, schema_id: int) -> StoredSchema | None:
        """Return the schema with an id."""
        known = self._contexts.get(context)
        return None if known is None else known.schema_by_id.get(schema_id)

    def versions_with(self, stored: StoredSchema) -> list[Version]:
        """Return the versions with a schema, ordered by subject and number."""
        known = self._contexts[stored.context].versions_by_id.get(stored.id, ())
        return sorted(known, key=lambda version: version.place)

    def find(self, context: str, schema: Schema) -> StoredSchema | None:
        """Return the stored schema that equals a schema, in a context."""
        return self._find(context, fingerprint(schema), schema.type)

    def find_guid(self, guid: bytes) -> Iterator[StoredSchema]:
        """Yield the schemas with a guid, the default context first."""
        for context in self.contexts():
            for schema_type in SchemaType:
                stored = self._find(context, guid, schema_type)
                if stored is not None:
                    yield stored

    def _find(self, context: str, guid: bytes, schema_type: SchemaType) -> StoredSchema | None:
        known = self._contexts.get(context)
        ids = None if known is None else known.ids_by_schema.get((guid, schema_type))
        return known.schema_by_id[ids[0]] if known is not None and ids else None

    def referrers(self, subject: str, number: int) -> list[Version]:
        """Return the versions that refer to a version, with the soft-deleted."""
        return list(self._referrers.get((subject, number), {}).values())

    def scopes(self, subject: str) -> Iterator[str]:
        """Yield where a subject's configuration and mode are looked up, the nearest first."""
        yield subject
        context, name = split(subject)
        if name:
            yield qualified(context, "")
        if subject != GLOBAL:
            yield GLOBAL

    # Replay

    def replay(self, record: SchemasRecord) -> None:
        """Apply a committed record; an unreadable record is logged and skipped."""
        try:
            read = read_record(record.key, record.value)
            self._apply(read.key, read.value, record.timestamp_ms)
        except UnreadableRecordError as unreadable:
            self.unreadable += 1
            _log.warning("Skip record %d of _schemas: %s", record.offset, unreadable)
        self.changes += 1
        self.end_offset = record.offset + 1

    def _apply(self, key: SchemaKey, value: Value | None, timestamp_ms: int) -> None:
        scope = normalized(key.subject or "")
        match value:
            case SchemaValue():
                self._register(value, timestamp_ms)
            case ConfigForm():
                self.configs[scope] = value
            case ModeValue():
                self.modes[scope] = value.mode
            case SubjectValue():
                self._delete_versions(key.keytype, scope, value)
            case ContextValue():
                self._contexts.setdefault(context_named(value.context), _Context())
            case NoopValue():
                for context, max_id in (value.max_ids or {}).items():
                    self._raise_max_id(context, max_id)
            case None:
                self._remove(key, scope)

    def _remove(self, key: SchemaKey, scope: str) -> None:
        if key.keytype == "SCHEMA" and key.version is not None:
            self._drop(scope, key.version)
        elif key.keytype == "CONFIG":
            self.configs.pop(scope, None)
        elif key.keytype == "MODE":
            self.modes.pop(scope, None)
        elif key.keytype == "CONTEXT" and key.context:
            context = context_named(key.context)
            known = self._contexts.get(context)
            if known is not None and not known.schema_by_id and context != DEFAULT_CONTEXT:
                del self._contexts[context]

    def _register(self, value: SchemaValue, timestamp_ms: int) -> None:
        if value.version < 1 or value.id < 0:
            raise UnreadableRecordError(f"version {value.version} or id {value.id} out of range")
        subject = normalized(value.subject)
        stored = self._store(context_of(subject), value.id, schema_of(value))
        self._drop(subject, value.version)
        version = Version(
            subject, value.version, stored, timestamp_ms, is_deleted=bool(value.deleted)
        )
        self._insert(version)
        known = self._contexts[stored.context]
        # The drop above may have removed the schema's last version.
        known.schema_by_id[stored.id] = stored
        known.versions_by_id.setdefault(stored.id, []).append(version)
        ids = known.ids_by_schema.setdefault((stored.guid, stored.schema.type), [])
        if stored.id not in ids:
            insort(ids, stored.id)
        for target in _targets(version):
            self._referrers.setdefault(target, {})[version.place] = version

    def _store(self, context: str, schema_id: int, schema: Schema) -> StoredSchema:
        known = self._contexts.setdefault(context, _Context())
        self._raise_max_id(context, schema_id)
        stored = known.schema_by_id.get(schema_id)
        if stored is not None and stored.schema == schema:
            return stored
        if stored is not None:
            self.removals += 1
            self._forget_ids(known, stored)
        return StoredSchema(context, schema_id, schema, fingerprint(schema))

    def _raise_max_id(self, context: str, schema_id: int) -> None:
        self.max_ids[context] = max(self.max_ids.get(context, 0), schema_id)

    def _insert(self, version: Version) -> None:
        versions = self._subjects.setdefault(version.subject, {})
        is_last = not versions or version.number > next(reversed(versions))
        versions[version.number] = version
        if not is_last:  # an import, or a soft delete, which writes the version again
            self._subjects[version.subject] = dict(sorted(versions.items()))

    def _drop(self, subject: str, number: int) -> None:
        versions = self._subjects.get(subject)
        version = None if versions is None else versions.pop(number, None)
        if versions is None or version is None:
            return
        if not versions:
            del self._subjects[subject]
        for target in _targets(version):
            self._drop_referrer(target, version)
        self._drop_place(version)

    def _drop_referrer(self, target: tuple[str, int], version: Version) -> None:
        referrers = self._referrers.get(target, {})
        referrers.pop(version.place, None)
        if not referrers:
            self._referrers.pop(target, None)

    def _drop_place(self, version: Version) -> None:
        stored = version.stored
        known = self._contexts[stored.context]
        places = known.versions_by_id[stored.id]
        places.remove(version)
        if places:
            return
        self.removals += 1
        del known.versions_by_id[stored.id]
        known.schema_by_id.pop(stored.id, None)
        self._forget_ids(known, stored)

    @staticmethod
    def _forget_ids(known: _Context, stored: StoredSchema) -> None:
        key = (stored.guid, stored.schema.type)
        ids = known.ids_by_schema.get(key, [])
        if stored.id in ids:
            ids.remove(stored.id)
        if not ids:
            known.ids_by_schema.pop(key, None)

    def _delete_versions(self, keytype: str, scope: str, value: SubjectValue) -> None:
        if keytype == "CLEAR_SUBJECT":
            self._clear(normalized(value.subject or "") or scope)
            return
        for version in self.versions(normalized(value.subject)).values():
            if value.version is None or version.number <= value.version:
                version.is_deleted = True

    def _clear(self, scope: str) -> None:
        context, name = split(scope)
        subjects = [scope] if name else self.subjects_of(context)
        for subject in subjects:
            for number in [one.number for one in self.versions(subject).values() if one.is_deleted]:
                self._drop(subject, number)


def _targets(version: Version) -> Iterator[tuple[str, int]]:
    for reference in version.stored.schema.references:
        yield in_context_of(version.subject, reference.subject), reference.version
