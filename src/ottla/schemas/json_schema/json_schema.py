"""JSON Schema: a text to a document with resolved references.

Drafts 4, 6, 7, 2019-09 and 2020-12, by `$schema`; draft 7 without it, or with an unknown one, as
in Confluent's registry. A `$ref` leads into the document, to a registered reference, or to a
published meta-schema; the network is never asked. Validation of values uses jsonschema-rs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from ottla.schemas.json_schema.json_text import (
    TooDeepError,
    compact_json,
    parse_json,
)
from ottla.schemas.parsed_schema import CompatibilityPolicy, Incompatibility, InvalidSchemaError
from ottla.schemas.schema import SchemaType

try:
    import jsonschema_rs
except ImportError as error:  # pragma: no cover - the tests have the extra
    raise ImportError(
        "JSON Schema needs the package jsonschema-rs: pip install 'ottla[schemas]'"
    ) from error

TEXT_BYTES_MAX: Final = 1 << 20
SUBSCHEMAS_MAX: Final = 20_000
PATTERN_CHARACTERS_MAX: Final = 8_192
PATTERNS_MAX: Final = 250
"""Different regular expressions of one schema."""
EVALUATIONS_MAX: Final = 100_000
"""Subschemas that apply to one value, counted along every path of `$ref`, `oneOf`, `allOf`, …"""
REGEX_BYTES_MAX: Final = 1 << 20
"""Memory of one compiled regular expression."""
BACKTRACK_MAX: Final = 100_000
"""Steps of a regular expression with lookaround, which cannot be matched in linear time."""

Document = dict[str, Any] | bool


class Draft(IntEnum):
    """A version of JSON Schema, in the order of publication."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 19
    DRAFT_2020_12 = 20


_META_SCHEMAS: Final = {
    Draft.DRAFT_4: "http://json-schema.org/draft-04/schema#",
    Draft.DRAFT_6: "http://json-schema.org/draft-06/schema#",
    Draft.DRAFT_7: "http://json-schema.org/draft-07/schema#",
    Draft.DRAFT_2019_09: "https://json-schema.org/draft/2019-09/schema",
    Draft.DRAFT_2020_12: "https://json-schema.org/draft/2020-12/schema",
}
_DRAFTS: Final = {
    "json-schema.org/schema": Draft.DRAFT_4,
    **{url.rstrip("#").partition("://")[2]: draft for draft, url in _META_SCHEMAS.items()},
}
_VALIDATORS: Final = {
    Draft.DRAFT_4: jsonschema_rs.Draft4Validator,
    Draft.DRAFT_6: jsonschema_rs.Draft6Validator,
    Draft.DRAFT_7: jsonschema_rs.Draft7Validator,
    Draft.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    Draft.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
}

# The keywords with subschemas. Those "in place" apply to the same value as their parent.
_SCHEMAS_IN_PLACE: Final = frozenset({"else", "if", "not", "then"})
_LISTS_IN_PLACE: Final = frozenset({"allOf", "anyOf", "oneOf"})
_MAPS_IN_PLACE: Final = frozenset({"dependencies", "dependentSchemas"})
_SCHEMAS: Final = _SCHEMAS_IN_PLACE | {
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
}
_LISTS: Final = _LISTS_IN_PLACE | {"items", "prefixItems"}
_MAPS: Final = _MAPS_IN_PLACE | {"$defs", "definitions", "patternProperties", "properties"}
_REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True, slots=True)
class Target:
    """The schema that a `$ref` leads to."""

    schema: Document
    siblings_apply: bool
    """Whether keywords beside `$ref` count: since 2019-09 they do."""
    owner: "JsonSchema"
    pointer: str
    """The place of the schema in its owner, as a URI fragment."""


class JsonSchema:
    """A valid JSON Schema with all its references resolved. Immutable."""

    type: Final = SchemaType.JSON

    def __init__(
        self, text: str, document: Document, draft: Draft, references: Mapping[str, "JsonSchema"]
    ) -> None:
        self.document = document
        self.draft = draft
        self.references = references
        self._text = text
        self._targets: dict[int, Target] = {}

    @property
    def record_name(self) -> str | None:
        """The title."""
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    def canonical(self) -> str:
        """Return the text without white space; the order of keys and the digits are kept."""
        return compact_json(parse_json(self._text, exact=True))

    def normalized(self) -> str:
        """Return the text without white space and with sorted keys. A fixed point."""
        return compact_json(parse_json(self._text, exact=True), sort_keys=True)

    def formatted(self, output_format: str) -> str:
        """Return the canonical text. JSON Schema has no other format, and Confluent ignores it."""
        del output_format
        return self.canonical()

    def reading(
        self, writer: "JsonSchema", policy: CompatibilityPolicy = CompatibilityPolicy.STRICT
    ) -> list[Incompatibility]:
        """Return why this schema cannot read data of the writer's; an empty list if it can."""
        # The comparison imports this module.
        from ottla.schemas.json_schema.json_compatibility import incompatibilities  # noqa: PLC0415

        return incompatibilities(writer, self, policy)

    def target_of(self, node: Mapping[str, Any]) -> Target | None:
        """Return the target of a `$ref` in this document, or in a referenced document."""
        return self._targets.get(id(node))

    @cached_property
    def validator(self) -> Any:
        """The compiled validator. Formats are annotations, as in Confluent's Python client."""
        bundle = _Bundle(self)
        linear = jsonschema_rs.RegexOptions(size_limit=REGEX_BYTES_MAX)
        try:
            return bundle.validator(linear)
        except (jsonschema_rs.ValidationError, ValueError):
            # Lookaround needs the other engine, which gives up after a number of steps.
            bounded = jsonschema_rs.FancyRegexOptions(
                backtrack_limit=BACKTRACK_MAX, size_limit=REGEX_BYTES_MAX
            )
        try:
            return bundle.validator(bounded)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise InvalidSchemaError(f"the schema cannot be compiled: {_reason(error)}") from error


def parse_json_schema(text: str, references: Mapping[str, Any] | None = None) -> JsonSchema:
    """Parse a text. `references` has the parsed schema of each direct reference, by its `$ref`."""
    document = _document_of(text)
    draft = draft_of(document)
    own = {name: one for name, one in (references or {}).items() if isinstance(one, JsonSchema)}
    schema = JsonSchema(text, document, draft, own)
    _check_meta_schema(document, draft)
    _Resolution(schema, own).resolve(schema._targets)  # noqa: SLF001
    _check_evaluations(schema)
    return schema


def draft_of(document: Document) -> Draft:
    """Return the draft that `$schema` names, or else draft 7."""
    url = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(url, str):
        return Draft.DRAFT_7
    scheme, _, rest = url.removesuffix("#").partition("://")
    return _DRAFTS.get(rest, Draft.DRAFT_7) if scheme in {"http", "https"} else Draft.DRAFT_7


def children_of(node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the subschemas of a schema, each after its path as a JSON pointer."""
    found: list[tuple[str, Any]] = []
    for keyword, value in node.items():
        if isinstance(value, dict | bool) and keyword in _SCHEMAS:
            found.append((f"/{_escaped(keyword)}", value))
        elif isinstance(value, list) and keyword in _LISTS:
            found += [(f"/{keyword}/{index}", item) for index, item in enumerate(value)]
        elif isinstance(value, dict) and keyword in _MAPS:
            found += [
                (f"/{keyword}/{_escaped(name)}", item)
                for name, item in value.items()
                if isinstance(item, dict | bool)
            ]
    return found


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _document_of(text: str) -> Document:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidSchemaError("the schema has half of a surrogate pair") from error
    if size > TEXT_BYTES_MAX:
        raise InvalidSchemaError(f"the schema has {size} bytes, and {TEXT_BYTES_MAX} are the most")
    try:
        document = parse_json(text)
        compact_json(document).encode()
    except TooDeepError as error:
        raise InvalidSchemaError(f"the schema has {error}") from error
    except UnicodeEncodeError as error:
        raise InvalidSchemaError("the schema has half of a surrogate pair") from error
    except ValueError as error:
        raise InvalidSchemaError(f"the schema is not JSON: {error}") from error
    if not isinstance(document, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object, true or false")
    return document


def _check_meta_schema(document: Document, draft: Draft) -> None:
    if isinstance(document, bool):
        return
    try:
        jsonschema_rs.meta.validate({**document, "$schema": _META_SCHEMAS[draft]})
    except jsonschema_rs.ValidationError as error:
        raise InvalidSchemaError(_reason(error)) from error
    except ValueError as error:
        raise InvalidSchemaError(f"the schema cannot be checked: {error}") from error


def _reason(error: Exception) -> str:
    if not isinstance(error, jsonschema_rs.ValidationError):
        return str(error)[:200]
    place = "/".join(_escaped(str(step)) for step in error.instance_path)
    return f"at #/{place}: {error.message[:200]}"


class _Resolution:
    """Finds the target of each `$ref` of one document."""

    def __init__(self, schema: JsonSchema, references: Mapping[str, JsonSchema]) -> None:
        self._schema = schema
        self._id = "id" if schema.draft is Draft.DRAFT_4 else "$id"
        document = schema.document
        own = document.get(self._id) if isinstance(document, dict) else None
        self._base = own if isinstance(own, str) else ""
        self._references = _by_uri(references, self._base)
        self._walked: dict[int, tuple[str, str]] = {}
        """The base URI and the pointer of each schema, by its identity."""
        self._schemas: list[dict[str, Any]] = []
        self._resources: dict[str, tuple[dict[str, Any], str]] = {}
        """The schemas with an identifier, and their pointers, by URI without a fragment."""
        self._anchors: dict[str, tuple[dict[str, Any], str]] = {}
        """The schemas with an anchor, by URI with the fragment."""
        self._patterns: set[str] = set()
        self._settled = 0
        self._others: dict[int, _Resolution] = {}
        if isinstance(document, dict):
            self._resources[urldefrag(self._base).url] = (document, "")
            self._walk(document, self._base, "")

    def resolve(self, targets: dict[int, Target]) -> None:
        """Add the target of each `$ref` in this document, and in the referenced ones."""
        for reference in self._schema.references.values():
            targets.update(reference._targets)  # noqa: SLF001
        # A pointer may lead to a place that no keyword leads to. Then that place is walked, too.
        while self._settled < len(self._schemas):
            node = self._schemas[self._settled]
            self._settled += 1
            keyword = next((one for one in _REFERENCE_KEYWORDS if one in node), None)
            if keyword is not None and id(node) not in targets:
                targets[id(node)] = self._target(node, node[keyword])
        for other in self._others.values():
            other.resolve(targets)

    def _walk(self, root: dict[str, Any], base: str, pointer: str) -> None:
        stack: list[tuple[Any, str, str]] = [(root, base, pointer)]
        while stack:
            node, base, pointer = stack.pop()
            if not isinstance(node, dict) or id(node) in self._walked:
                continue
            if len(self._schemas) == SUBSCHEMAS_MAX:
                raise InvalidSchemaError(f"the schema has more than {SUBSCHEMAS_MAX} subschemas")
            base = self._enter(node, base, pointer)
            self._walked[id(node)] = (base, pointer)
            self._schemas.append(node)
            stack += [(child, base, pointer + path) for path, child in reversed(children_of(node))]

    def _enter(self, node: dict[str, Any], base: str, pointer: str) -> str:
        """Remember identifiers, anchors and patterns; return the base URI of the subschemas."""
        self._check_patterns(node)
        ignored = "$ref" in node and self._schema.draft < Draft.DRAFT_2019_09
        identifier = node.get(self._id)
        if isinstance(identifier, str) and not ignored:
            if identifier.startswith("#"):
                self._anchors.setdefault(_joined(base, identifier), (node, pointer))
            else:
                base = _joined(base, identifier)
                self._resources.setdefault(urldefrag(base).url, (node, pointer))
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(keyword), str):
                self._anchors.setdefault(_joined(base, f"#{anchor}"), (node, pointer))
        return base

    def _check_patterns(self, node: dict[str, Any]) -> None:
        patterns = [pattern] if isinstance(pattern := node.get("pattern"), str) else []
        if isinstance(properties := node.get("patternProperties"), dict):
            patterns += properties
        for pattern in set(patterns) - self._patterns:
            check_pattern(pattern)
            self._patterns.add(pattern)
        if len(self._patterns) > PATTERNS_MAX:
            raise InvalidSchemaError(
                f"the schema has more than {PATTERNS_MAX} different regular expressions"
            )

    def _target(self, node: dict[str, Any], reference: Any) -> Target:
        if not isinstance(reference, str):
            raise InvalidSchemaError(f"`$ref` is {compact_json(reference)[:100]} and not a string")
        base, _ = self._walked[id(node)]
        uri, fragment = urldefrag(_joined(base, reference))
        siblings_apply = self._schema.draft >= Draft.DRAFT_2019_09
        found = self._resources.get(uri)
        if found is None and uri == urldefrag(base).url:
            found = self._resources[urldefrag(self._base).url]
        if found is not None:
            schema, pointer = self._in_document(*found, uri, fragment, reference)
            return Target(schema, siblings_apply, self._schema, pointer)
        other = self._references.get(uri) or self._references.get(urldefrag(reference).url)
        if other is not None:
            if id(other) not in self._others:
                self._others[id(other)] = _Resolution(other, other.references)
            schema, pointer = self._others[id(other)].lookup(fragment, reference)
            return Target(schema, siblings_apply, other, pointer)
        if uri.partition("://")[2] in _DRAFTS:
            return Target({}, siblings_apply, _ANYTHING, "")
        raise InvalidSchemaError(
            f"the $ref {reference!r} is neither in the schema nor a registered reference; "
            "the network is not asked: register that schema and name it in `references`"
        )

    def lookup(self, fragment: str, reference: str) -> tuple[Document, str]:
        """Return a place of this document, for a reference from another document."""
        document = self._schema.document
        if isinstance(document, bool):
            return document, ""
        return self._in_document(document, "", urldefrag(self._base).url, fragment, reference)

    def _in_document(
        self, resource: dict[str, Any], pointer: str, uri: str, fragment: str, reference: str
    ) -> tuple[Document, str]:
        if not fragment:
            return resource, pointer
        if not fragment.startswith("/"):
            anchor = self._anchors.get(f"{uri}#{fragment}")
            if anchor is None:
                raise InvalidSchemaError(f"the $ref {reference!r} leads to no anchor")
            return anchor
        node: Any = resource
        for step in fragment[1:].split("/"):
            node = _step(node, unquote(step).replace("~1", "/").replace("~0", "~"))
        if not isinstance(node, dict | bool):
            raise InvalidSchemaError(f"the $ref {reference!r} leads to no schema")
        if isinstance(node, dict) and id(node) not in self._walked:
            base, _ = self._walked.get(id(resource), (self._base, ""))
            _check_meta_schema(node, self._schema.draft)
            self._walk(node, base, pointer + unquote(fragment))
        return node, pointer + unquote(fragment)


def _joined(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return urldefrag(base).url + reference
    try:
        # `urljoin` only knows the schemes of the web; `urn:…` and the like are absolute anyway.
        return urljoin(base, reference)
    except ValueError as error:
        raise InvalidSchemaError(f"{reference[:200]!r} is not a URI: {error}") from error


def _by_uri(references: Mapping[str, JsonSchema], base: str) -> dict[str, JsonSchema]:
    """Return the references by each URI that may lead to them."""
    found: dict[str, JsonSchema] = {}
    for name, schema in references.items():
        for uri in (name, _joined(base, name), f"./{name}"):
            found.setdefault(urldefrag(uri).url, schema)
    for schema in references.values():
        document = schema.document if isinstance(schema.document, dict) else {}
        own = document.get("id" if schema.draft is Draft.DRAFT_4 else "$id")
        if isinstance(own, str):
            found.setdefault(urldefrag(own).url, schema)
    return found


def _step(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return node.get(name)
    if isinstance(node, list) and name.isascii() and name.isdigit() and len(name) < 9:
        return node[int(name)] if int(name) < len(node) else None
    return None


def check_pattern(pattern: str) -> None:
    """Raise InvalidSchemaError if a regular expression is too long or not valid."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise InvalidSchemaError(
            f"a regular expression has {len(pattern)} characters, "
            f"and {PATTERN_CHARACTERS_MAX} are the most"
        )
    schema = {"$schema": _META_SCHEMAS[Draft.DRAFT_7], "pattern": pattern}
    if not jsonschema_rs.meta.is_valid(schema):
        raise InvalidSchemaError(f"{pattern[:100]!r} is not a regular expression")


@lru_cache(maxsize=256)
def _pattern_validator(pattern: str) -> Any:
    schema = {"pattern": pattern}
    try:
        options = jsonschema_rs.RegexOptions(size_limit=REGEX_BYTES_MAX)
        return jsonschema_rs.Draft7Validator(schema, pattern_options=options)
    except (jsonschema_rs.ValidationError, ValueError):
        return jsonschema_rs.Draft7Validator(
            schema, pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_MAX)
        )


def matches_pattern(pattern: str, name: str) -> bool:
    """Return whether a regular expression of a valid schema matches somewhere in a name."""
    return bool(_pattern_validator(pattern).is_valid(name))


def _check_evaluations(schema: JsonSchema) -> None:
    """Refuse schemas that lead back to themselves, or apply too often, at one value."""
    counts: dict[int, int] = {}
    stack = [schema.document]
    while stack:
        root = stack.pop()
        if isinstance(root, dict) and id(root) not in counts:
            _count_evaluations(schema, root, counts)
            stack += [child for _, child in children_of(root)]
            if (target := schema.target_of(root)) is not None:
                stack.append(target.schema)


_UNDER_WAY: Final = -1


def _count_evaluations(schema: JsonSchema, root: dict[str, Any], counts: dict[int, int]) -> None:
    # A depth-first search without recursion: chains of `$ref` may be long.
    stack: list[tuple[dict[str, Any], list[dict[str, Any]], Iterator[dict[str, Any]]]] = []

    def push(node: dict[str, Any]) -> None:
        counts[id(node)] = _UNDER_WAY
        children = _in_place(schema, node)
        stack.append((node, children, iter(children)))

    push(root)
    while stack:
        node, children, waiting = stack[-1]
        child = next((one for one in waiting if counts.get(id(one), _UNDER_WAY) < 0), None)
        if child is not None and id(child) in counts:
            raise InvalidSchemaError(
                "a `$ref` leads back to itself without a property or an item in between"
            )
        if child is not None:
            push(child)
            continue
        counts[id(node)] = 1 + sum(counts[id(one)] for one in children)
        if counts[id(node)] > EVALUATIONS_MAX:
            raise InvalidSchemaError(
                f"more than {EVALUATIONS_MAX} subschemas apply to one value: "
                "`oneOf`, `anyOf` or `allOf` repeat the same `$ref` too often"
            )
        stack.pop()


def _in_place(schema: JsonSchema, node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the subschemas that apply to the same value."""
    target = schema.target_of(node)
    found: list[Any] = [] if target is None else [target.schema]
    if target is None or target.siblings_apply:
        found += [node.get(keyword) for keyword in _SCHEMAS_IN_PLACE]
        for keyword in _LISTS_IN_PLACE:
            found += schemas_in(node, keyword)
        for keyword in _MAPS_IN_PLACE:
            found += schemas_by_name(node, keyword).values()
    return [one for one in found if isinstance(one, dict)]


def schemas_in(node: Mapping[str, Any], keyword: str) -> list[Document]:
    """Return the subschemas in an array; none if the keyword is not there, or has another form."""
    value = node.get(keyword)
    if not isinstance(value, list):
        return []
    return [one for one in value if isinstance(one, dict | bool)]


def schemas_by_name(node: Mapping[str, Any], keyword: str) -> dict[str, Document]:
    """Return the subschemas in an object, such as `properties`; none as in `schemas_in`."""
    value = node.get(keyword)
    if not isinstance(value, dict):
        return {}
    return {name: one for name, one in value.items() if isinstance(one, dict | bool)}


class _Bundle:
    """A schema and the schemas that it references, with absolute `$ref`s, for jsonschema-rs."""

    def __init__(self, schema: JsonSchema) -> None:
        self._root = schema
        self._numbers: dict[int, int] = {}
        self._owners: list[JsonSchema] = []
        self._number(schema)
        self._documents: list[Document] = []
        while len(self._documents) < len(self._owners):
            self._documents.append(self._copy_of(self._owners[len(self._documents)]))

    def validator(self, pattern_options: Any) -> Any:
        """Compile the validator."""
        resources = [
            (_uri(number), document)
            for number, document in enumerate(self._documents)
            if number > 0
        ]
        return _VALIDATORS[self._root.draft](
            self._documents[0],
            registry=jsonschema_rs.Registry(resources) if resources else None,
            base_uri=_uri(0),
            pattern_options=pattern_options,
            validate_formats=False,
            offline=True,
        )

    def _number(self, schema: JsonSchema) -> int:
        if id(schema) not in self._numbers:
            self._numbers[id(schema)] = len(self._owners)
            self._owners.append(schema)
        return self._numbers[id(schema)]

    def _copy_of(self, schema: JsonSchema) -> Document:
        document = schema.document
        if isinstance(document, bool):
            # The registry of jsonschema-rs takes only objects.
            return document if schema is self._root else {"allOf": [document]}
        copy = self._copied(document)
        assert isinstance(copy, dict)
        return {**copy, "$schema": _META_SCHEMAS[schema.draft]}

    def _copied(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self._copied(item) for item in node]
        if not isinstance(node, dict):
            return node
        target = self._root.target_of(node)
        copied = {}
        for key, value in node.items():
            if key in {"$id", "id"} and isinstance(value, str):
                continue
            if key in _REFERENCE_KEYWORDS and target is not None:
                copied["$ref"] = f"{_uri(self._number(target.owner))}#{_fragment(target.pointer)}"
            else:
                copied[key] = value if key in {"const", "enum"} else self._copied(value)
        return copied


def _uri(number: int) -> str:
    return f"urn:ottla:schema:{number}"


def _fragment(pointer: str) -> str:
    return pointer.replace("%", "%25").replace("#", "%23").replace(" ", "%20").replace('"', "%22")


_ANYTHING: Final = JsonSchema("{}", {}, Draft.DRAFT_7, {})
"""The target of references to published meta-schemas, which are not followed."""
