"""Parsed schemas and their comparisons, with a bound on memory and on the event loop's time.

Decisions are synchronous and need parsed schemas. A small text is parsed on the spot. A large one
raises `HeavyWorkError`: the caller runs its work in another thread and decides again, and then
the outcome is in the cache here. So a large schema of one client delays no other client.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, Generic, TypeVar

import msgspec

from ottla.registry.qualified_subjects import in_context_of
from ottla.registry.registry_state import RegistryState, Version
from ottla.schemas.entities import Entity, tagged_entities, top_level_fields
from ottla.schemas.parsed_schema import (
    CompatibilityPolicy,
    Incompatibility,
    InvalidSchemaError,
    ParsedSchema,
)
from ottla.schemas.parsing import parse_schema
from ottla.schemas.schema import Schema, SchemaReference, SchemaType

LIGHT_CHARACTERS_MAX: Final = 32 << 10
"""Texts up to this length, together, are parsed and compared on the event loop."""
CACHED_CHARACTERS_MAX: Final = 512 << 10
"""The length of all texts with a cached parsed schema; the last schema is always cached."""
CACHED_COMPARISONS_MAX: Final = 64
REFERENCES_MAX: Final = 100
"""The direct references of a schema."""
REFERENCE_DEPTH_MAX: Final = 10
_TOO_DEEP: Final = "the schema is nested too deeply"
_DESCENT_MAX: Final = 2 * REFERENCE_DEPTH_MAX
"""A chain of references in a log that another registry wrote is followed this far."""

T = TypeVar("T")


class HeavyWorkError(Exception):
    """A decision needs an outcome that takes too long for the event loop.

    `work` may run in any thread. After it, the same decision finds the outcome.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__("heavy work")
        self.work = work


@dataclass(frozen=True, slots=True)
class _Parsed:
    schema: ParsedSchema
    characters: int
    depth: int


# The count of removals is part of the key: a hard delete can change the meaning of references.
_SchemaKey = tuple[str, SchemaType, str, tuple[SchemaReference, ...], int]


_Comparison = list[tuple[Version, Incompatibility]] | InvalidSchemaError


class _Cache(Generic[T]):
    """A thread-safe LRU cache, bounded by the total cost of its entries."""

    def __init__(self, cost_max: int) -> None:
        self._cost_max = cost_max
        self._cost = 0
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: T, cost: int) -> None:
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._cost += cost - (0 if replaced is None else replaced[1])
            self._entries[key] = (value, cost)
            while self._cost > self._cost_max and len(self._entries) > 1:
                self._cost -= self._entries.popitem(last=False)[1][1]


class ParsedSchemas:
    """Parses schemas with the references that the state has."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self._schemas: _Cache[_Parsed | InvalidSchemaError] = _Cache(CACHED_CHARACTERS_MAX)
        self._texts: _Cache[str | ValueError] = _Cache(CACHED_CHARACTERS_MAX)
        self._comparisons: _Cache[_Comparison] = _Cache(CACHED_COMPARISONS_MAX)

    def canonical(self, context: str, schema: Schema, *, normalize: bool) -> str:
        """Return the text that is stored; InvalidSchemaError or HeavyWorkError."""

        def derive(parsed: ParsedSchema) -> str:
            text = parsed.normalized() if normalize else parsed.canonical()
            # The stored text means the same, and is compared next: it need not be parsed again.
            stored_key = self._key(context, replace(schema, text=text))
            found = self._schemas.get(self._key(context, schema))
            if found is not None:
                self._schemas.put(stored_key, found, len(text))
            return text

        return self._derived(context, schema, "normalized" if normalize else "canonical", derive)

    def formatted(self, context: str, schema: Schema, text_format: str) -> str:
        """Return the text in a format; ValueError or HeavyWorkError."""
        return self._derived(
            context, schema, f"format={text_format}", lambda parsed: parsed.formatted(text_format)
        )

    def tagged_entities(self, context: str, schema: Schema) -> list[Entity]:
        """Return the records and fields with tags; InvalidSchemaError or HeavyWorkError."""

        def derive(parsed: ParsedSchema) -> str:
            return msgspec.json.encode(tagged_entities(parsed)).decode()

        text = self._derived(context, schema, "entities", derive)
        return msgspec.json.decode(text, type=list[Entity])

    def top_level_fields(self, context: str, schema: Schema) -> list[str]:
        """Return the names of the top-level fields; InvalidSchemaError or HeavyWorkError."""

        def derive(parsed: ParsedSchema) -> str:
            return msgspec.json.encode(top_level_fields(parsed)).decode()

        text = self._derived(context, schema, "fields", derive)
        return msgspec.json.decode(text, type=list[str])

    def _derived(
        self, context: str, schema: Schema, name: str, derive: Callable[[ParsedSchema], str]
    ) -> str:
        key = self._key(context, schema)
        found = self._texts.get((key, name))
        if found is None and self._characters(key, set()) <= LIGHT_CHARACTERS_MAX:
            found = self._derive(key, derive)
        if found is None:
            raise HeavyWorkError(lambda: self._keep(key, name, derive))
        if isinstance(found, ValueError):
            raise type(found)(str(found))
        return found

    def _keep(self, key: _SchemaKey, name: str, derive: Callable[[ParsedSchema], str]) -> None:
        text = self._derive(key, derive)
        self._texts.put((key, name), text, len(text) if isinstance(text, str) else 1)

    def _derive(self, key: _SchemaKey, derive: Callable[[ParsedSchema], str]) -> str | ValueError:
        try:
            return derive(_result(self._parsed(key, 0)).schema)
        except InvalidSchemaError as invalid:
            return InvalidSchemaError(str(invalid))
        except ValueError as failed:
            return ValueError(str(failed))
        except RecursionError:
            return InvalidSchemaError(_TOO_DEEP)

    def incompatibilities(
        self,
        context: str,
        schema: Schema,
        previous: Sequence[Version],
        directions: "Directions",
        policy: CompatibilityPolicy,
    ) -> list[tuple[Version, Incompatibility]]:
        """Compare a schema with earlier versions and return the reasons of the first that fails.

        InvalidSchemaError or HeavyWorkError.
        """
        key = self._key(context, schema)
        places = tuple((one.place, one.stored.guid) for one in previous)
        comparison = (key, places, directions, policy)
        found = self._comparisons.get(comparison)
        if found is not None:
            return _unless_invalid(found)
        characters = self._characters(key, set()) + sum(
            self._characters(self._key(one.stored.context, one.stored.schema), set())
            for one in previous
        )
        if characters <= LIGHT_CHARACTERS_MAX:
            return _unless_invalid(self._compared(key, previous, directions, policy))

        def work() -> None:
            self._comparisons.put(comparison, self._compared(key, previous, directions, policy), 1)

        raise HeavyWorkError(work)

    def _compared(
        self,
        key: _SchemaKey,
        previous: Sequence[Version],
        directions: "Directions",
        policy: CompatibilityPolicy,
    ) -> _Comparison:
        try:
            return self._compare(key, previous, directions, policy)
        except InvalidSchemaError as invalid:
            return InvalidSchemaError(str(invalid))
        except RecursionError:
            return InvalidSchemaError(_TOO_DEEP)

    def _compare(
        self,
        key: _SchemaKey,
        previous: Sequence[Version],
        directions: "Directions",
        policy: CompatibilityPolicy,
    ) -> list[tuple[Version, Incompatibility]]:
        parsed = _result(self._parsed(key, 0)).schema
        for version in reversed(previous):
            earlier_key = self._key(version.stored.context, version.stored.schema)
            earlier = _result(self._parsed(earlier_key, 0)).schema
            reasons = _reasons(parsed, earlier, directions, policy)
            if reasons:
                return [(version, reason) for reason in reasons]
        return []

    def _key(self, context: str, schema: Schema) -> _SchemaKey:
        removals = self._state.removals
        return context, schema.type, schema.text, schema.references, removals

    def _characters(self, key: _SchemaKey, seen: set[_SchemaKey]) -> int:
        if key in seen:
            return 0
        if len(seen) > REFERENCES_MAX:
            return LIGHT_CHARACTERS_MAX
        parsed = self._schemas.get(key)
        if parsed is not None:
            return parsed.characters if isinstance(parsed, _Parsed) else 0
        seen.add(key)
        context, _, text, references, _ = key
        total = len(text)
        for reference in references:
            version = self.referenced(context, reference)
            if version is not None:
                referenced_key = self._key(version.stored.context, version.stored.schema)
                total += self._characters(referenced_key, seen)
        return total

    def referenced(self, context: str, reference: SchemaReference) -> Version | None:
        """Return the version that a reference names, soft-deleted or not; -1 is the latest."""
        referrer = f":{context}:"
        subject = in_context_of(referrer, reference.subject)
        if reference.version == -1:
            return self._state.latest(subject)
        return self._state.versions(subject).get(reference.version)

    def _parsed(self, key: _SchemaKey, descent: int) -> _Parsed | InvalidSchemaError:
        found = self._schemas.get(key)
        if found is not None:
            return found
        try:
            parsed: _Parsed | InvalidSchemaError = self._parse(key, descent)
        except InvalidSchemaError as invalid:
            parsed = invalid.with_traceback(None)
        except RecursionError:
            parsed = InvalidSchemaError(_TOO_DEEP)
        # Failures are cached too: a web of references is tried once, not once a path.
        self._schemas.put(key, parsed, len(key[2]))
        return parsed

    def _parse(self, key: _SchemaKey, descent: int) -> _Parsed:
        context, schema_type, text, references, _ = key
        if len(references) > REFERENCES_MAX:
            raise InvalidSchemaError(f"more than {REFERENCES_MAX} references")
        if descent > _DESCENT_MAX:
            raise InvalidSchemaError(f"references deeper than {REFERENCE_DEPTH_MAX}, or circular")
        parsed_by_name: dict[str, ParsedSchema] = {}
        characters, depth = len(text), 0
        for reference in references:
            parsed = self._reference(context, reference, descent)
            parsed_by_name[reference.name] = parsed.schema
            characters += parsed.characters
            depth = max(depth, parsed.depth)
        if depth >= REFERENCE_DEPTH_MAX:
            raise InvalidSchemaError(f"references deeper than {REFERENCE_DEPTH_MAX}")
        return _Parsed(parse_schema(schema_type, text, parsed_by_name), characters, depth + 1)

    def _reference(self, context: str, reference: SchemaReference, descent: int) -> _Parsed:
        version = self.referenced(context, reference)
        name = f"reference {reference.name!r}"
        if version is None:
            place = f"version {reference.version} of subject {reference.subject!r}"
            raise InvalidSchemaError(f"{name}: no {place}")
        found = self._parsed(self._key(version.stored.context, version.stored.schema), descent + 1)
        if isinstance(found, InvalidSchemaError):
            raise InvalidSchemaError(f"{name}: {found}")
        return found


@dataclass(frozen=True, slots=True)
class Directions:
    """Whether the new schema must read old data, and old schemas new data."""

    backward: bool
    forward: bool


def _result(found: _Parsed | InvalidSchemaError) -> _Parsed:
    if isinstance(found, InvalidSchemaError):
        raise InvalidSchemaError(str(found))
    return found


def _unless_invalid(compared: _Comparison) -> list[tuple[Version, Incompatibility]]:
    if isinstance(compared, InvalidSchemaError):
        raise InvalidSchemaError(str(compared))
    return compared


def _reasons(
    parsed: ParsedSchema,
    earlier: ParsedSchema,
    directions: Directions,
    policy: CompatibilityPolicy,
) -> list[Incompatibility]:
    if parsed.type is not earlier.type:
        message = f"the type of the schema changed from {earlier.type} to {parsed.type}"
        return [Incompatibility("SCHEMA_TYPE_CHANGED", "/", message)]
    reasons: list[Incompatibility] = []
    if directions.backward:
        reasons += parsed.reading(earlier, policy)
    if directions.forward:
        reasons += earlier.reading(parsed, policy)
    return reasons
