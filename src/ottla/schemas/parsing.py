"""One function that parses a schema of any type.

The parsers are imported when a schema of their type is parsed: a broker without schemas pays nothing.
"""

from collections.abc import Mapping

from ottla.schemas.parsed_schema import ParsedSchema
from ottla.schemas.schema import SchemaType


def parse_schema(
    schema_type: SchemaType, text: str, references: Mapping[str, ParsedSchema] | None = None
) -> ParsedSchema:
    """Parse a text. `references` has the parsed schema of each direct reference, by its name.

    InvalidSchemaError if the text is not valid or needs a reference that is missing.
    """
    resolved = references or {}
    match schema_type:
        case SchemaType.AVRO:
            from ottla.schemas.avro.avro_schema import parse_avro  # noqa: PLC0415

            return parse_avro(text, resolved)
        case SchemaType.JSON:
            from ottla.schemas.json_schema.json_schema import parse_json_schema  # noqa: PLC0415

            return parse_json_schema(text, resolved)
        case SchemaType.PROTOBUF:
            from ottla.schemas.protobuf.protobuf_schema import parse_protobuf  # noqa: PLC0415

            return parse_protobuf(text, resolved)
