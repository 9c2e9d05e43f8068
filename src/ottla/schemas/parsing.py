"""One function that parses a schema of any type.

A parser is imported when a schema of its type is parsed: a broker without schemas pays nothing.
"""

from collections.abc import Mapping
from typing import TypeVar

from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.schema import SchemaType

S = TypeVar("S", bound=ParsedSchema)


def parse_schema(
    schema_type: SchemaType, text: str, references: Mapping[str, ParsedSchema] | None = None
) -> ParsedSchema:
    """Parse a text. `references` has the parsed schema of each direct reference, by its name.

    InvalidSchemaError if the text is not valid, needs a reference that is missing, or refers to a
    schema of another type.
    """
    resolved = references or {}
    match schema_type:
        case SchemaType.AVRO:
            from ottla.schemas.avro.avro_schema import AvroSchema, parse_avro  # noqa: PLC0415

            return parse_avro(text, _of_type(resolved, AvroSchema))
        case SchemaType.JSON:
            from ottla.schemas.json_schema.json_schema import (  # noqa: PLC0415
                JsonSchema,
                parse_json_schema,
            )

            return parse_json_schema(text, _of_type(resolved, JsonSchema))
        case SchemaType.PROTOBUF:
            from ottla.schemas.protobuf.protobuf_schema import (  # noqa: PLC0415
                ProtobufSchema,
                parse_protobuf,
            )

            return parse_protobuf(text, _of_type(resolved, ProtobufSchema))


def _of_type(references: Mapping[str, ParsedSchema], expected: type[S]) -> dict[str, S]:
    found = {}
    for name, schema in references.items():
        if not isinstance(schema, expected):
            raise InvalidSchemaError(f"reference {name!r} is a schema of type {schema.type}")
        found[name] = schema
    return found
