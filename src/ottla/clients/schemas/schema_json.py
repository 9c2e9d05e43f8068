"""Schemas as JSON, in the bodies of requests to a registry and of its responses."""

from collections.abc import Mapping
from typing import Any

from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.schema import Metadata, Rule, RuleSet, Schema, SchemaReference, SchemaType


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """Return the body that registers a schema."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.type is not SchemaType.AVRO:
        body["schemaType"] = schema.type.value
    if schema.references:
        body["references"] = [
            {"name": row.name, "subject": row.subject, "version": row.version}
            for row in schema.references
        ]
    if schema.metadata is not None:
        body["metadata"] = without_none(
            tags=schema.metadata.tags and {k: list(v) for k, v in schema.metadata.tags.items()},
            properties=schema.metadata.properties and dict(schema.metadata.properties),
            sensitive=schema.metadata.sensitive and list(schema.metadata.sensitive),
        )
    if schema.rule_set is not None:
        body["ruleSet"] = without_none(
            migrationRules=_rules_to_json(schema.rule_set.migration_rules),
            domainRules=_rules_to_json(schema.rule_set.domain_rules),
            encodingRules=_rules_to_json(schema.rule_set.encoding_rules),
            enableAt=schema.rule_set.enable_at,
        )
    return body


def _rules_to_json(rules: tuple[Rule, ...] | None) -> list[dict[str, Any]] | None:
    return None if rules is None else [_rule_to_json(rule) for rule in rules]


def _rule_to_json(rule: Rule) -> dict[str, Any]:
    names = ("name", "kind", "mode", "type", "doc", "expr")
    return without_none(
        **{name: getattr(rule, name) for name in names},
        tags=rule.tags and list(rule.tags),
        params=rule.params and dict(rule.params),
        onSuccess=rule.on_success,
        onFailure=rule.on_failure,
        disabled=rule.disabled or None,
    )


def schema_from_json(answer: Mapping[str, Any]) -> Schema:
    """Read the schema of a response; unknown members are ignored."""
    try:
        schema_type = SchemaType(answer.get("schemaType") or "AVRO")
    except ValueError:
        raise InvalidSchemaError(
            f"the schema has the type {answer['schemaType']!r}: known are AVRO, JSON and PROTOBUF"
        ) from None
    references = tuple(
        SchemaReference(str(row["name"]), str(row["subject"]), int(row["version"]))
        for row in answer.get("references") or ()
    )
    return Schema(
        str(answer.get("schema", "")),
        schema_type,
        references,
        _metadata_from_json(answer.get("metadata")),
        _rule_set_from_json(answer.get("ruleSet")),
    )


def _metadata_from_json(found: Mapping[str, Any] | None) -> Metadata | None:
    if not found:
        return None
    tags = found.get("tags")
    sensitive = found.get("sensitive")
    return Metadata(
        None if tags is None else {path: tuple(names) for path, names in tags.items()},
        found.get("properties"),
        None if sensitive is None else tuple(sensitive),
    )


def _rule_set_from_json(found: Mapping[str, Any] | None) -> RuleSet | None:
    if not found:
        return None
    return RuleSet(
        _rules_from_json(found.get("migrationRules")),
        _rules_from_json(found.get("domainRules")),
        _rules_from_json(found.get("encodingRules")),
        found.get("enableAt"),
    )


def _rules_from_json(found: list[Any] | None) -> tuple[Rule, ...] | None:
    return None if found is None else tuple(map(_rule_from_json, found))


def _rule_from_json(found: Mapping[str, Any]) -> Rule:
    tags = found.get("tags")
    return Rule(
        str(found.get("name")),
        found.get("kind"),
        found.get("mode"),
        found.get("type"),
        found.get("doc"),
        None if tags is None else tuple(tags),
        found.get("params"),
        found.get("expr"),
        found.get("onSuccess"),
        found.get("onFailure"),
        bool(found.get("disabled")),
    )


def without_none(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}
