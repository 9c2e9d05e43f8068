"""A schema as the registry stores it: text, type, references, metadata and rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SchemaType(StrEnum):
    """The type of a schema, by Confluent's names."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """The name that a schema uses for another schema, and that schema's place in the registry.

    The name is a full name in Avro, a `$ref` in JSON Schema and an import path in Protobuf.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """Tags by path, properties, and the names of sensitive properties."""

    tags: Mapping[str, tuple[str, ...]] | None = None
    properties: Mapping[str, str] | None = None
    sensitive: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a data contract; clients execute it."""

    name: str
    kind: str | None = None
    mode: str | None = None
    type: str | None = None
    doc: str | None = None
    tags: tuple[str, ...] | None = None
    params: Mapping[str, str] | None = None
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a schema, by the phase in which they apply."""

    migration_rules: tuple[Rule, ...] | None = None
    domain_rules: tuple[Rule, ...] | None = None
    encoding_rules: tuple[Rule, ...] | None = None
    enable_at: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a client registers it. Two equal schemas of one context have one id."""

    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[SchemaReference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = field(default=None)
