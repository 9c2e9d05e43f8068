"""The invariants of the registry, checked in its log at the end and in the responses to clients.

S1  an id belongs to one schema, for ever
S2  a schema that is known in a context keeps its id
S3  an acknowledged schema, or delete, is in the log
S4  a schema that a reader saw is in the log
S5  a client that registers at a broker reads the schema there
S6  the versions of a subject follow each other, unless versions were removed
S7  in the end all brokers show the schemas of the log
S8  no valid request is refused
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ottla.registry.qualified_subjects import context_of, normalized
from ottla.registry.registry_state import RegistryState
from ottla.registry.schemas_log import SchemasRecord
from ottla.registry.schemas_records import (
    SchemaKey,
    SchemaValue,
    SubjectValue,
    read_record,
    schema_of,
)
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.registry.registry_workload import Place, RegistryHistory


class LogFacts:
    """The records of `_schemas`, read once."""

    def __init__(self, records: Sequence[SchemasRecord]) -> None:
        self.violations: list[Violation] = []
        self.state = RegistryState()
        self.places: dict[Place, None] = {}
        self.texts: dict[tuple[str, int], str] = {}
        """By context and id."""
        self.soft_deletes: list[tuple[str, int]] = []
        """The last version, of a subject, that a record deletes."""
        self.tombstones: dict[tuple[str, int], None] = {}
        self._highest: dict[str, int] = {}
        self._has_removals = any(record.value is None for record in records)
        for record in records:
            self._take(record)
            self.state.replay(record)

    def _take(self, record: SchemasRecord) -> None:
        read = read_record(record.key, record.value)
        if isinstance(read.value, SchemaValue):
            self._take_schema(read.value)
        elif isinstance(read.value, SubjectValue) and read.value.version is not None:
            self.soft_deletes.append((normalized(read.value.subject), read.value.version))
        elif read.value is None and read.key.keytype == "SCHEMA":
            self.tombstones[_place_of(read.key)] = None

    def _take_schema(self, value: SchemaValue) -> None:
        subject, context = normalized(value.subject), context_of(normalized(value.subject))
        self.places[Place(subject, value.version, value.id, value.schema)] = None
        if self.texts.setdefault((context, value.id), value.schema) != value.schema:
            self._fail("S1 id-twice", f"{value.id} of {context} is of {value.schema}, too")
        known = self.state.find(context, schema_of(value))
        if known is not None and known.id != value.id:
            self._fail("S2 two-ids", f"{value.schema} of {context} has {known.id} and {value.id}")
        if value.deleted:
            self.soft_deletes.append((subject, value.version))
        elif not self._has_removals:
            if value.version != self._highest.get(subject, 0) + 1:
                self._fail("S6 versions", f"{subject}: {value.version} is not the next version")
            self._highest[subject] = value.version

    def _fail(self, rule: str, detail: str) -> None:
        self.violations.append(Violation(rule, detail))

    def schemas(self) -> list[Place]:
        """Return the schemas that registries show after a replay, with the soft-deleted."""
        return [
            Place(subject, one.number, one.stored.id, one.stored.schema.text)
            for subject in self.state.subjects()
            for one in self.state.versions(subject).values()
        ]


def _place_of(key: SchemaKey) -> tuple[str, int]:
    return normalized(key.subject or ""), key.version or 0


def registry_violations(
    records: Sequence[SchemasRecord],
    history: RegistryHistory,
    shown: Mapping[str, Iterable[Place]],
) -> Iterator[Violation]:
    """Check the log, the history, and the schemas that each broker shows in the end."""
    facts = LogFacts(records)
    yield from facts.violations
    yield from _lost(facts, history)
    yield from _undone(facts, history)
    yield from (Violation("S5 unread", one) for one in history.unread)
    yield from (Violation("S8 refused", one) for one in history.refused)
    expected = sorted(facts.schemas(), key=str)
    for broker, places in shown.items():
        if sorted(places, key=str) != expected:
            yield Violation("S7 diverged", f"{broker} shows other schemas than the log has")


def _lost(facts: LogFacts, history: RegistryHistory) -> Iterator[Violation]:
    for place in history.registered:
        if place not in facts.places:
            yield Violation("S3 lost-schema", f"{place} is not in the log")
    for one in history.deleted:
        subject, version = normalized(one.subject), one.version
        is_hidden = not one.is_permanent and any(
            deleted == subject and last >= version for deleted, last in facts.soft_deletes
        )
        if not is_hidden and (subject, version) not in facts.tombstones:
            yield Violation("S3 lost-delete", f"{one} is not in the log")


def _undone(facts: LogFacts, history: RegistryHistory) -> Iterator[Violation]:
    for place in history.read:
        if place not in facts.places:
            yield Violation("S4 undone", f"{place} was read, and is not in the log")
    contexts = dict.fromkeys(context for context, _ in facts.texts)
    for subject, schema_id, text in history.texts:
        # A subject without a context names the context where it has the id.
        if text not in {facts.texts.get((context, schema_id)) for context in contexts}:
            yield Violation("S4 undone", f"{text} was read as {schema_id} of {subject}")
