"""The rules of the comparison by Confluent's names: which are compatible, and their messages."""

from typing import Final

from ottla.schemas.parsed_schema import CompatibilityPolicy

_COMPATIBLE: Final = frozenset(
    [
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "MAX_LENGTH_INCREASED",
        "MAX_LENGTH_REMOVED",
        "MIN_LENGTH_DECREASED",
        "MIN_LENGTH_REMOVED",
        "PATTERN_REMOVED",
        "MAXIMUM_INCREASED",
        "MAXIMUM_REMOVED",
        "MINIMUM_DECREASED",
        "MINIMUM_REMOVED",
        "EXCLUSIVE_MAXIMUM_INCREASED",
        "EXCLUSIVE_MAXIMUM_REMOVED",
        "EXCLUSIVE_MINIMUM_DECREASED",
        "EXCLUSIVE_MINIMUM_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "MAX_PROPERTIES_INCREASED",
        "MAX_PROPERTIES_REMOVED",
        "MIN_PROPERTIES_DECREASED",
        "MIN_PROPERTIES_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "MAX_ITEMS_INCREASED",
        "MAX_ITEMS_REMOVED",
        "MIN_ITEMS_DECREASED",
        "MIN_ITEMS_REMOVED",
        "MAX_CONTAINS_INCREASED",
        "MAX_CONTAINS_REMOVED",
        "MIN_CONTAINS_DECREASED",
        "MIN_CONTAINS_REMOVED",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
    ]
)
_COMPATIBLE_IF_LENIENT: Final = frozenset(
    [
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ]
)

_OPEN: Final = (
    "the writer's schema allows other properties, so its data may hold this property with "
    "another type; close the schema with `additionalProperties: false` in the first version, "
    "declare other properties by `patternProperties`, or set the compatibility policy LENIENT"
)
_SENTENCES: Final = {
    "TYPE_CHANGED": "the type differs",
    "TYPE_NARROWED": "the reader accepts fewer types",
    "SCHEMA_ADDED": "the reader has a schema where the writer has none; remove it",
    "REQUIRED_ATTRIBUTE_ADDED": "the property became required; give it a default, or leave it "
    "optional",
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": f"an optional property was added, but {_OPEN}",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": "a required property with a "
    f"default was added, but {_OPEN}",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "a required property was added; make it "
    "optional, or give it a default",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "a required property was added; make it "
    "optional, or give it a default",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "the property was removed, and the reader allows "
    "no other properties; keep it, or allow additional properties",
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": "an item was added, but the writer's schema allows other "
    "items there; close it with `additionalItems: false` in the first version",
    "ENUM_ARRAY_CHANGED": "values of the enum were removed and added; keep the old values",
    "ENUM_ARRAY_NARROWED": "values of the enum were removed; keep them",
    "COMBINED_TYPE_CHANGED": "the schema combines or tests its parts differently",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "a part of the combined schema has no counterpart that "
    "reads its data",
    "PRODUCT_TYPE_EXTENDED": "`allOf` got another part, which data must satisfy as well",
    "SUM_TYPE_NARROWED": "`oneOf`, `anyOf` or a list of types lost a part; keep the old parts",
    "NOT_TYPE_EXTENDED": "`not` excludes more values",
}
_ENDINGS: Final = (
    ("_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "the schema of other properties or items does "
     "not accept the same values"),
    ("_ADDED", "the keyword was added, and the writer's data need not satisfy it"),
    ("_REMOVED", "values that the writer's schema accepts are not allowed any more"),
    ("_INCREASED", "the lower limit was raised"),
    ("_DECREASED", "the upper limit was lowered"),
    ("_EXTENDED", "more is required of the data than before"),
    ("_EXPANDED", "the new value is a multiple of the old value"),
    ("_NARROWED", "fewer values are accepted than before"),
    ("_CHANGED", "the value differs, and old data need not satisfy the new value"),
)  # fmt: skip


def compatible_rules(policy: CompatibilityPolicy) -> frozenset[str]:
    """Return the rules that do not make a reader incompatible."""
    if policy is CompatibilityPolicy.LENIENT:
        return _COMPATIBLE | _COMPATIBLE_IF_LENIENT
    return _COMPATIBLE


def message_of(rule: str, path: str) -> str:
    """Return a sentence about an incompatible change, with a known way out."""
    sentence = _SENTENCES.get(rule)
    if sentence is None:
        endings = (text for ending, text in _ENDINGS if rule.endswith(ending))
        sentence = next(endings, "fewer values are accepted than before")
    return f"{rule} at #{path or '/'}: {sentence}"
