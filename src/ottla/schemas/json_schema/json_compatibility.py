"""The differences between two JSON Schemas, by Confluent's names, and which of them are compatible.

A schema is compared as a shape: the conjunction of its type, `enum`, `not`, `allOf` and so on. Each
difference makes the reader accept more values or fewer. Recursive schemas are compared until the
set of incompatible pairs does not change any more: a pair under comparison, or too deep inside of
other pairs, counts as compatible unless an earlier pass found it incompatible.

Stricter than Confluent's registry, so that compatible schemas read each other's data: added
`patternProperties`, `propertyNames`, `contains` and `type`, changed `if`/`then`/`else`, and
`required` names that are not in `properties` are differences here.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ottla.schemas.json_schema.json_rules import compatible_rules, message_of
from ottla.schemas.json_schema.json_schema import (
    Document,
    JsonSchema,
    matches_pattern,
)
from ottla.schemas.json_schema.json_shapes import Kind, Shape, Shapes
from ottla.schemas.json_schema.json_text import comparable
from ottla.schemas.parsed_schema import CompatibilityPolicy, Incompatibility

COMPARISONS_MAX: Final = 100_000
"""The most pairs of subschemas in a comparison."""
COMPARISON_DEPTH_MAX: Final = 60
"""Pairs of subschemas inside each other; deeper pairs are compared by themselves."""
CHANGES_MAX: Final = 20
"""The most differences reported for a pair of subschemas."""

PATH_CHARACTERS_MAX: Final = 1_000
"""Longer paths are cut: recursive schemas make them as long as the schema."""
LIMIT_RULE: Final = "COMPARISON_LIMIT_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Change:
    """A difference of the reader's schema from the writer's."""

    rule: str
    """Confluent's name, such as PATTERN_ADDED."""
    path: str
    """The place, such as `/properties/name/pattern`; empty at the root."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    is_compatible: bool
    changes: tuple[Change, ...]


class _LimitError(Exception):
    """The comparison reached one of its limits."""


def incompatibilities(
    writer: JsonSchema, reader: JsonSchema, policy: CompatibilityPolicy
) -> list[Incompatibility]:
    """Return why the reader's schema cannot read data of the writer's."""
    compatible = compatible_rules(policy)
    try:
        found = json_changes(writer, reader, policy)
    except (_LimitError, RecursionError):
        message = (
            f"the schemas are too large to compare: {COMPARISONS_MAX} pairs of subschemas are the "
            "most; use fewer alternatives in `oneOf`, `anyOf` and `allOf`, or the level NONE"
        )
        return [Incompatibility(LIMIT_RULE, "#/", message)]
    return [
        Incompatibility(change.rule, f"#{change.path or '/'}", message_of(change.rule, change.path))
        for change in found
        if change.rule not in compatible
    ]


def json_changes(
    writer: JsonSchema,
    reader: JsonSchema,
    policy: CompatibilityPolicy = CompatibilityPolicy.STRICT,
) -> list[Change]:
    """Return the differences, compatible ones included; at most `CHANGES_MAX` for a pair."""
    shapes = Shapes(writer, reader)
    compatible = compatible_rules(policy)
    known: dict[tuple[int, int], _Outcome] = {}
    comparisons = 0
    # The passes before the final pass only need the verdicts: lists of changes are their main cost.
    changes_max, is_last = CHANGES_MAX, False
    while True:
        comparison = _Comparison(shapes, compatible, known, comparisons, changes_max)
        outcome = comparison.compare(writer.document, reader.document)
        comparison.compare_deferred()
        found = comparison.incompatible()
        if is_last or not comparison.has_assumed:
            return list(outcome.changes)
        is_last = found.keys() == known.keys()
        changes_max = CHANGES_MAX if is_last else 1
        known, comparisons = found, comparison.count


_Changes = Iterator[Change]


class _Comparison:
    """One pass over all pairs of subschemas. `old` is the writer's side, `new` the reader's."""

    def __init__(
        self,
        shapes: Shapes,
        compatible: frozenset[str],
        known: dict[tuple[int, int], _Outcome],
        count: int,
        changes_max: int,
    ) -> None:
        self._changes_max = changes_max
        self.has_assumed = False
        self.count = count
        self._shapes = shapes
        self._compatible = compatible
        self._known = known
        self._outcomes: dict[tuple[int, int], _Outcome] = {}
        self._under_way: set[tuple[int, int]] = set()
        self._deferred: list[tuple[Shape, Shape]] = []
        self._compare_kind: dict[Kind, Callable[[Shape, Shape], _Changes]] = {
            Kind.STRING: self._strings,
            Kind.NUMBER: self._numbers,
            Kind.OBJECT: self._objects,
            Kind.ARRAY: self._arrays,
            Kind.ENUM: self._enums,
            Kind.NOT: self._nots,
            Kind.CONDITIONAL: self._conditionals,
            Kind.COMBINED: self._combined,
        }

    def compare_deferred(self) -> None:
        """Compare the pairs that were too deep inside of others."""
        while self._deferred:
            self.compare(*self._deferred.pop())

    def incompatible(self) -> dict[tuple[int, int], _Outcome]:
        """Return the incompatible pairs of this pass."""
        return {pair: one for pair, one in self._outcomes.items() if not one.is_compatible}

    def compare(self, old: Document | Shape, new: Document | Shape) -> _Outcome:
        """Compare two schemas; the paths of the changes are relative."""
        self.count += 1
        if self.count > COMPARISONS_MAX:
            raise _LimitError
        old_shape, new_shape = self._shapes.of(old), self._shapes.of(new)
        pair = (id(old_shape), id(new_shape))
        if (done := self._outcomes.get(pair)) is not None:
            return done
        is_deep = len(self._under_way) == COMPARISON_DEPTH_MAX
        if is_deep or pair in self._under_way:
            if is_deep:
                self._deferred.append((old_shape, new_shape))
            if pair not in self._known:
                self.has_assumed = True
            return self._known.get(pair, _Outcome(is_compatible=True, changes=()))
        self._under_way.add(pair)
        outcome = self._outcome(self._shape_changes(old_shape, new_shape))
        self._under_way.remove(pair)
        self._outcomes[pair] = outcome
        return outcome

    def _outcome(self, changes: Iterable[Change]) -> _Outcome:
        found = tuple(changes)
        bad = [change for change in found if change.rule not in self._compatible]
        if len(found) > self._changes_max:
            good = [change for change in found if change.rule in self._compatible]
            found = tuple((bad + good)[: self._changes_max])
        return _Outcome(not bad, found)

    def _at(self, path: str, old: Document | Shape, new: Document | Shape) -> _Changes:
        for change in self.compare(old, new).changes:
            yield Change(change.rule, (path + change.path)[:PATH_CHARACTERS_MAX])

    # Shapes

    def _shape_changes(self, old: Shape, new: Shape) -> _Changes:
        if old is new or old.kind is Kind.FALSE or new.kind is Kind.ANY:
            return
        if (found := self._one_part(old, new)) is not None:
            yield from found
        elif old.kind is not new.kind:
            if not old.is_connect_bytes or not new.is_connect_bytes:
                yield Change("TYPE_CHANGED", "")
        elif (comparison := self._compare_kind.get(old.kind)) is not None:
            if new.has_type and not old.has_type:
                yield Change("TYPE_NARROWED", "")
            yield from comparison(old, new)

    def _one_part(self, old: Shape, new: Shape) -> list[Change] | None:
        """Return the changes if one side is combined, and one of its parts suffices."""
        pairs: list[tuple[Shape, Shape]] = []
        rule = ""
        if new.kind is Kind.COMBINED and old.kind is not Kind.COMBINED:
            if len(new.parts) == 1 or new.criterion != "allOf":
                pairs = [(old, part) for part in new.parts]
                rule = "SUM_TYPE_EXTENDED" if len(new.parts) > 1 else ""
        elif (
            old.kind is Kind.COMBINED
            and new.kind is not Kind.COMBINED
            and (len(old.parts) == 1 or old.criterion == "allOf")
        ):
            pairs = [(part, new) for part in old.parts]
            rule = "PRODUCT_TYPE_NARROWED" if len(old.parts) > 1 else ""
        for old_part, new_part in pairs:
            outcome = self.compare(old_part, new_part)
            if outcome.is_compatible:
                return [*outcome.changes, *([Change(rule, "")] if rule else [])]
        return None

    # Scalars

    def _strings(self, old: Shape, new: Shape) -> _Changes:
        yield from _upper_limit(old, new, "maxLength", "MAX_LENGTH")
        yield from _lower_limit(old, new, "minLength", "MIN_LENGTH")
        before, after = old.node.get("pattern"), new.node.get("pattern")
        if before != after:
            action = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
            yield Change(f"PATTERN_{action}", "/pattern")

    def _numbers(self, old: Shape, new: Shape) -> _Changes:
        yield from _range(old, new)
        yield from _multiples(old.number("multipleOf"), new.number("multipleOf"))
        if old.is_integer != new.is_integer:
            yield Change("TYPE_EXTENDED" if old.is_integer else "TYPE_NARROWED", "")

    def _enums(self, old: Shape, new: Shape) -> _Changes:
        before, after = set(map(comparable, old.values)), set(map(comparable, new.values))
        if before != after:
            action = "EXTENDED" if before < after else "NARROWED" if after < before else "CHANGED"
            yield Change(f"ENUM_ARRAY_{action}", "/enum")

    def _nots(self, old: Shape, new: Shape) -> _Changes:
        # The writer must exclude all values that the reader excludes.
        if not self.compare(new.node["not"], old.node["not"]).is_compatible:
            yield Change("NOT_TYPE_EXTENDED", "/not")
        elif comparable(old.node["not"]) != comparable(new.node["not"]):
            yield Change("NOT_TYPE_NARROWED", "/not")

    def _conditionals(self, old: Shape, new: Shape) -> _Changes:
        if comparable(old.node["if"]) != comparable(new.node["if"]):
            yield Change("COMBINED_TYPE_CHANGED", "/if")
            return
        for keyword in ("then", "else"):
            yield from self._at(f"/{keyword}", old.schema(keyword), new.schema(keyword))

    # Combined schemas

    def _combined(self, old: Shape, new: Shape) -> _Changes:
        old_count, new_count = len(old.parts), len(new.parts)
        if old.criterion != new.criterion:
            is_loosening = (
                new.criterion == "anyOf"
                or (old_count == 1 and (new_count == 1 or new.criterion == "oneOf"))
                or (new_count == 1 and old.criterion == "allOf")
            )
            yield Change(f"COMBINED_TYPE_{'EXTENDED' if is_loosening else 'CHANGED'}", "")
            if not is_loosening:
                return
        if old_count < new_count:
            product = new.criterion == "allOf"
            yield Change("PRODUCT_TYPE_EXTENDED" if product else "SUM_TYPE_EXTENDED", "")
        elif old_count > new_count:
            product = old.criterion == "allOf"
            yield Change("PRODUCT_TYPE_NARROWED" if product else "SUM_TYPE_NARROWED", "")
        yield from self._matched_parts(old, new)

    def _matched_parts(self, old: Shape, new: Shape) -> _Changes:
        readable: list[list[int]] = []
        for old_part in old.parts:
            outcomes = [self.compare(old_part, new_part) for new_part in new.parts]
            # Pairs without a change come first: they are the likely ones.
            fitting = [index for index, one in enumerate(outcomes) if one.is_compatible]
            readable.append(sorted(fitting, key=lambda index: len(outcomes[index].changes)))
        matching = _maximum_matching(readable, len(new.parts))
        for new_index, old_index in sorted(matching.items(), key=lambda pair: pair[1]):
            path = f"/{old.criterion}/{old_index}"
            yield from self._at(path, old.parts[old_index], new.parts[new_index])
        if len(matching) < min(len(old.parts), len(new.parts)):
            yield Change("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "")

    # Objects

    def _objects(self, old: Shape, new: Shape) -> _Changes:
        yield from self._required(old, new)
        yield from self._properties(old, new)
        yield from self._patterns(old, new)
        yield from self._dependencies(old, new)
        yield from self._rest(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
        yield from self._rest(old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
        yield from self._optional_schema(old, new, "propertyNames")
        yield from _upper_limit(old, new, "maxProperties", "MAX_PROPERTIES")
        yield from _lower_limit(old, new, "minProperties", "MIN_PROPERTIES")

    def _required(self, old: Shape, new: Shape) -> _Changes:
        for name in old.properties:
            if name in old.required and name in new.properties and name not in new.required:
                yield Change("REQUIRED_ATTRIBUTE_REMOVED", f"/required/{name}")
        for name in sorted(new.required - old.required):
            # A required property that is new in `properties` is reported there.
            if name in old.properties or name not in new.properties:
                default = self._has_default(new, name)
                rule = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if default else None
                yield Change(rule or "REQUIRED_ATTRIBUTE_ADDED", f"/required/{name}")

    def _has_default(self, shape: Shape, name: str) -> bool:
        return self._shapes.has_default(shape.properties.get(name, True))

    def _properties(self, old: Shape, new: Shape) -> _Changes:
        for name, schema in old.properties.items():
            path = f"/properties/{name}"
            if name in new.properties:
                yield from self._at(path, schema, new.properties[name])
            else:
                yield from self._removed_property(path, name, schema, new)
        for name in new.properties.keys() - old.properties.keys():
            yield from self._added_property(f"/properties/{name}", name, old, new)

    def _removed_property(self, path: str, name: str, schema: Document, new: Shape) -> _Changes:
        rest = _schema_of_rest(new, name)
        if rest is None:
            yield Change("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", path)
        elif rest is not False:
            outcome = self.compare(schema, rest)
            yield from (Change(change.rule, path + change.path) for change in outcome.changes)
            covered = "IS" if outcome.is_compatible else "NOT"
            yield Change(
                f"PROPERTY_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path
            )
        elif self._shapes.of(schema).kind is Kind.FALSE:
            yield Change("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        else:
            yield Change("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)

    def _added_property(self, path: str, name: str, old: Shape, new: Shape) -> _Changes:
        schema = new.properties[name]
        is_new = name in new.required and name not in old.required
        presence = "REQUIRED" if is_new else "OPTIONAL"
        rest = _schema_of_rest(old, name)
        default = is_new and self._has_default(new, name)
        with_default = "_WITH_DEFAULT" if default else ""
        if rest is None:
            if self._shapes.of(schema).kind is Kind.ANY and (default or not is_new):
                yield Change("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", path)
            else:
                yield Change(f"{presence}_PROPERTY{with_default}_ADDED_TO_OPEN_CONTENT_MODEL", path)
            return
        if rest is not False:
            outcome = self.compare(rest, schema)
            yield from (Change(change.rule, path + change.path) for change in outcome.changes)
            covered = "IS" if outcome.is_compatible else "NOT"
            yield Change(f"PROPERTY_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        yield Change(f"{presence}_PROPERTY{with_default}_ADDED_TO_UNOPEN_CONTENT_MODEL", path)

    def _patterns(self, old: Shape, new: Shape) -> _Changes:
        before, after = old.pattern_properties, new.pattern_properties
        for pattern, schema in before.items():
            path = f"/patternProperties/{pattern}"
            if pattern in after:
                yield from self._at(path, schema, after[pattern])
            elif (rest := new.rest("additionalProperties")) is not True:
                yield from self._at(path, schema, rest)
        for pattern in after.keys() - before.keys():
            path = f"/patternProperties/{pattern}"
            for name, schema in old.properties.items():
                if matches_pattern(pattern, name):
                    yield from self._at(path, schema, after[pattern])
            rest = old.rest("additionalProperties")
            if rest is True and self._shapes.of(after[pattern]).kind is not Kind.ANY:
                yield Change("ADDITIONAL_PROPERTIES_NARROWED", path)
            elif rest is not True:
                yield from self._at(path, rest, after[pattern])

    def _dependencies(self, old: Shape, new: Shape) -> _Changes:
        before, after = old.required_dependencies, new.required_dependencies
        for name in sorted(before.keys() | after.keys()):
            path = f"/dependencies/{name}"
            if name not in after:
                yield Change("DEPENDENCY_ARRAY_REMOVED", path)
            elif name not in before:
                yield Change("DEPENDENCY_ARRAY_ADDED", path)
            elif before[name] != after[name]:
                less, more = after[name] < before[name], before[name] < after[name]
                action = "NARROWED" if less else "EXTENDED" if more else "CHANGED"
                yield Change(f"DEPENDENCY_ARRAY_{action}", path)
        schemas_before, schemas_after = old.schema_dependencies, new.schema_dependencies
        for name in sorted(schemas_before.keys() | schemas_after.keys()):
            path = f"/dependencies/{name}"
            if name not in schemas_after:
                yield Change("DEPENDENCY_SCHEMA_REMOVED", path)
            elif name not in schemas_before:
                yield Change("DEPENDENCY_SCHEMA_ADDED", path)
            else:
                yield from self._at(path, schemas_before[name], schemas_after[name])

    def _rest(self, old: Shape, new: Shape, keyword: str, rule: str) -> _Changes:
        """Compare the schemas of properties or items that no other keyword has."""
        before, after = old.rest(keyword), new.rest(keyword)
        old_kind, new_kind = self._shapes.of(before).kind, self._shapes.of(after).kind
        path = f"/{keyword}"
        if old_kind is Kind.FALSE and new_kind is not Kind.FALSE:
            yield Change(f"{rule}_ADDED", path)
        elif new_kind is Kind.FALSE and old_kind is not Kind.FALSE:
            yield Change(f"{rule}_REMOVED", path)
        elif old_kind is Kind.ANY and new_kind is not Kind.ANY:
            yield Change(f"{rule}_NARROWED", path)
        elif new_kind is Kind.ANY and old_kind is not Kind.ANY:
            yield Change(f"{rule}_EXTENDED", path)
        else:
            yield from self._at(path, before, after)

    def _optional_schema(self, old: Shape, new: Shape, keyword: str) -> _Changes:
        """Compare the schemas of a keyword that allows everything if it is not there."""
        before, after = old.schema(keyword), new.schema(keyword)
        if self._shapes.of(after).kind is Kind.ANY:
            if self._shapes.of(before).kind is not Kind.ANY:
                yield Change("SCHEMA_REMOVED", f"/{keyword}")
        elif self._shapes.of(before).kind is Kind.ANY:
            yield Change("SCHEMA_ADDED", f"/{keyword}")
        else:
            yield from self._at(f"/{keyword}", before, after)

    # Arrays

    def _arrays(self, old: Shape, new: Shape) -> _Changes:
        yield from self._items(old, new)
        yield from self._rest(old, new, "additionalItems", "ADDITIONAL_ITEMS")
        yield from self._rest(old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")
        yield from self._contains(old, new)
        yield from _upper_limit(old, new, "maxItems", "MAX_ITEMS")
        yield from _lower_limit(old, new, "minItems", "MIN_ITEMS")
        before, after = old.node.get("uniqueItems") is True, new.node.get("uniqueItems") is True
        if before != after:
            yield Change(f"UNIQUE_ITEMS_{'ADDED' if after else 'REMOVED'}", "/uniqueItems")

    def _items(self, old: Shape, new: Shape) -> _Changes:
        yield from self._optional_schema(old, new, "items")
        common = min(len(old.prefix_items), len(new.prefix_items))
        for index in range(common):
            yield from self._at(f"/items/{index}", old.prefix_items[index], new.prefix_items[index])
        for index in range(common, len(old.prefix_items)):
            yield from self._removed_item(f"/items/{index}", old.prefix_items[index], new)
        for index in range(common, len(new.prefix_items)):
            yield from self._added_item(f"/items/{index}", old, new.prefix_items[index])

    def _removed_item(self, path: str, schema: Document, new: Shape) -> _Changes:
        rest = _schema_of_further_items(new)
        if rest is None:
            yield Change("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", path)
        elif rest is not False:
            outcome = self.compare(schema, rest)
            yield from (Change(change.rule, path + change.path) for change in outcome.changes)
            covered = "IS" if outcome.is_compatible else "NOT"
            yield Change(f"ITEM_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        elif self._shapes.of(schema).kind is Kind.FALSE:
            yield Change("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        else:
            yield Change("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)

    def _added_item(self, path: str, old: Shape, schema: Document) -> _Changes:
        rest = _schema_of_further_items(old)
        if rest is None:
            is_any = self._shapes.of(schema).kind is Kind.ANY
            empty = "_WITH_EMPTY_SCHEMA" if is_any else ""
            yield Change(f"ITEM{empty}_ADDED_TO_OPEN_CONTENT_MODEL", path)
        elif rest is not False:
            outcome = self.compare(rest, schema)
            yield from (Change(change.rule, path + change.path) for change in outcome.changes)
            covered = "IS" if outcome.is_compatible else "NOT"
            yield Change(f"ITEM_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        else:
            yield Change("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", path)

    def _contains(self, old: Shape, new: Shape) -> _Changes:
        yield from _upper_limit(old, new, "maxContains", "MAX_CONTAINS")
        if "contains" not in new.node or (new.contains_min == 0 and "maxContains" not in new.node):
            if "contains" in old.node:
                yield Change("SCHEMA_REMOVED", "/contains")
            return
        if "contains" not in old.node:
            yield Change("SCHEMA_ADDED", "/contains")
            return
        before, after = old.contains_min, new.contains_min
        if before != after:
            action = "INCREASED" if before < after else "DECREASED"
            yield Change(f"MIN_CONTAINS_{action}", "/minContains")
        yield from self._at("/contains", old.node["contains"], new.node["contains"])
        # With an upper limit, more items that match can be too many.
        if "maxContains" in new.node:
            outcome = self.compare(new.node["contains"], old.node["contains"])
            if not outcome.is_compatible:
                yield Change("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "/contains")


_RANGE: Final = (
    ("minimum", "exclusiveMinimum", "MINIMUM", 1),
    ("exclusiveMinimum", "minimum", "EXCLUSIVE_MINIMUM", 1),
    ("maximum", "exclusiveMaximum", "MAXIMUM", -1),
    ("exclusiveMaximum", "maximum", "EXCLUSIVE_MAXIMUM", -1),
)


def _implies(limit: Fraction, added: Fraction, is_exclusive: bool) -> bool:
    return limit >= added if is_exclusive else limit > added


def _range(old: Shape, new: Shape) -> _Changes:
    """Compare minimum and maximum. An added limit that the writer's limits imply is no change."""
    for keyword, other, rule, sign in _RANGE:
        before, after = old.number(keyword), new.number(keyword)
        if before == after:
            continue
        if before is None and after is not None:
            implied = old.number(other)
            is_exclusive = other.startswith("exclusive")
            if implied is None or not _implies(sign * implied, sign * after, is_exclusive):
                yield Change(f"{rule}_ADDED", f"/{keyword}")
        elif before is None or after is None:
            yield Change(f"{rule}_REMOVED", f"/{keyword}")
        else:
            yield Change(f"{rule}_{'INCREASED' if before < after else 'DECREASED'}", f"/{keyword}")


def _upper_limit(old: Shape, new: Shape, keyword: str, rule: str) -> _Changes:
    before, after = old.number(keyword), new.number(keyword)
    if before == after:
        return
    if before is None or after is None:
        yield Change(f"{rule}_{'ADDED' if before is None else 'REMOVED'}", f"/{keyword}")
    else:
        yield Change(f"{rule}_{'INCREASED' if before < after else 'DECREASED'}", f"/{keyword}")


def _lower_limit(old: Shape, new: Shape, keyword: str, rule: str) -> _Changes:
    # Zero is the same as no limit.
    before, after = old.number(keyword) or None, new.number(keyword) or None
    if before == after:
        return
    if before is None or after is None:
        yield Change(f"{rule}_{'ADDED' if before is None else 'REMOVED'}", f"/{keyword}")
    else:
        yield Change(f"{rule}_{'INCREASED' if before < after else 'DECREASED'}", f"/{keyword}")


def _multiples(before: Fraction | None, after: Fraction | None) -> _Changes:
    if before == after:
        return
    if before is None or after is None:
        action = "ADDED" if before is None else "REMOVED"
    elif after % before == 0:
        action = "EXPANDED"
    else:
        action = "REDUCED" if before % after == 0 else "CHANGED"
    yield Change(f"MULTIPLE_OF_{action}", "/multipleOf")


def _schema_of_rest(shape: Shape, name: str) -> Document | None:
    """Return the schema of a property that is not in `properties`; None if anything goes."""
    for pattern, schema in shape.pattern_properties.items():
        if matches_pattern(pattern, name):
            return schema
    rest = shape.rest("additionalProperties")
    if rest in (True, {}):
        rest = shape.rest("unevaluatedProperties")
    return None if rest in (True, {}) else rest


def _schema_of_further_items(shape: Shape) -> Document | None:
    rest = shape.rest("additionalItems")
    if rest in (True, {}):
        rest = shape.rest("unevaluatedItems")
    return None if rest in (True, {}) else rest


def _maximum_matching(readable: list[list[int]], new_count: int) -> dict[int, int]:
    """Match as many old parts as possible with new parts; return the old part by the new part."""
    matching: dict[int, int] = {}

    def extend(old: int, seen: set[int]) -> bool:
        for new in readable[old]:
            if new in seen:
                continue
            seen.add(new)
            if new not in matching or extend(matching[new], seen):
                matching[new] = old
                return True
        return False

    for old in range(len(readable)):
        if len(matching) == new_count:
            break
        extend(old, set())
    return matching
