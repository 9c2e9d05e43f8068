"""The common interface of parsed Avro, JSON and Protobuf schemas."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

from ottla.schemas.schema import SchemaType


class InvalidSchemaError(ValueError):
    """A text is not a valid schema; the message has the reason and the place."""


class CompatibilityPolicy(StrEnum):
    """How strictly JSON Schema compares open and closed objects; the other types ignore it."""

    STRICT = "STRICT"
    LENIENT = "LENIENT"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why a reader's schema cannot read data of a writer's schema."""

    rule: str
    """Confluent's name of the rule, such as READER_FIELD_MISSING_DEFAULT_VALUE."""
    path: str
    """The place in the schema, such as `/fields/1/type`."""
    message: str
    """One sentence: the change, and if it is known, a way out."""


class ParsedSchema(Protocol):
    """A valid schema with all its references resolved. Immutable."""

    @property
    def type(self) -> SchemaType:
        """The type of the schema."""
        ...

    @property
    def record_name(self) -> str | None:
        """The full name for RecordNameStrategy: of the record, the title, the first message."""
        ...

    def canonical(self) -> str:
        """Return the text that the registry stores."""
        ...

    def normalized(self) -> str:
        """Return the text that `normalize=true` stores. A fixed point: parsed again, the same."""
        ...

    def formatted(self, output_format: str) -> str:
        """Return the text in a format of `GET …?format=`; ValueError if there is no such format."""
        ...

    def reading(
        self, writer: Self, policy: CompatibilityPolicy = CompatibilityPolicy.STRICT
    ) -> list[Incompatibility]:
        """Return why this schema cannot read data of the writer's; an empty list if it can."""
        ...
