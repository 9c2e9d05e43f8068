"""A parsed Avro schema: its types, its texts, and its compatibility."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ottla.schemas.avro.avro_compatibility import Comparison
from ottla.schemas.avro.avro_parser import branch_name, parse_types
from ottla.schemas.avro.avro_printer import print_type
from ottla.schemas.avro.avro_types import AvroType, Enum, Fixed, NamedType, Record
from ottla.schemas.parsed_schema import CompatibilityPolicy, Incompatibility
from ottla.schemas.schema import SchemaType


@dataclass(frozen=True, eq=False)
class AvroSchema:
    """A valid Avro schema with its references resolved. Immutable."""

    root: AvroType
    named: Mapping[str, NamedType]
    """All named types by full name, including the types of the references."""
    referenced_names: frozenset[str]
    """Full names of the schemas that are references, directly or through a reference."""

    @property
    def type(self) -> SchemaType:
        """The type of the schema."""
        return SchemaType.AVRO

    @property
    def record_name(self) -> str | None:
        """The full name of the record; None if the schema is another type."""
        return self.root.full_name if isinstance(self.root, Record) else None

    def canonical(self) -> str:
        """Return the text that the registry stores, as Avro for Java prints it."""
        return self._canonical

    @cached_property
    def _canonical(self) -> str:
        return print_type(self.root, self._known_names())

    def normalized(self) -> str:
        """Return the text that `normalize=true` stores. A fixed point: parsed again, the same."""
        return print_type(self.root, self._known_names(), is_normalized=True)

    def formatted(self, output_format: str) -> str:
        """Return the text in a format: `resolved` has the references inside.

        Any other format is the canonical text, as in Confluent's registry.
        """
        return print_type(self.root) if output_format == "resolved" else self.canonical()

    def _known_names(self) -> frozenset[str]:
        """Return the names that are not printed as definitions."""
        # A text that repeats the definition of a reference stays a definition.
        return self.referenced_names - {branch_name(self.root)}

    def reading(
        self,
        writer: "AvroSchema",
        policy: CompatibilityPolicy = CompatibilityPolicy.STRICT,  # noqa: ARG002
    ) -> list[Incompatibility]:
        """Return why this schema cannot read data of the writer's; an empty list if it can."""
        if self.type is not writer.type:
            message = f"An Avro schema cannot read data of type {writer.type}; use a new subject"
            return [Incompatibility("TYPE_MISMATCH", "", message)]
        return Comparison(self.root, writer.root).incompatibilities()


def parse_avro(
    text: str,
    references: Mapping[str, "AvroSchema"] | None = None,
    *,
    is_checked: bool = True,
) -> AvroSchema:
    """Parse a text. `references` has the parsed schema of each direct reference, by its name.

    InvalidSchemaError if the text is not valid or needs a reference that is missing. Unless
    `is_checked`, namespaces and defaults may be invalid: other registries store such texts.
    """
    named: dict[str, NamedType] = {}
    referenced: set[str] = set()
    for reference in (references or {}).values():
        for full_name, definition in reference.named.items():
            named.setdefault(full_name, definition)
        referenced |= reference.referenced_names
        if isinstance(reference.root, Record | Enum | Fixed):
            referenced.add(reference.root.full_name)
    root = parse_types(text, named, is_checked=is_checked)
    return AvroSchema(root, named, frozenset(referenced))
