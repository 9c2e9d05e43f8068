import pytest

from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.parsing import parse_schema
from ottla.schemas.schema import SchemaType

TEXTS = {
    SchemaType.AVRO: '{"type": "record", "name": "R", "fields": []}',
    SchemaType.JSON: '{"type": "object"}',
    SchemaType.PROTOBUF: 'syntax = "proto3"; message R {}',
}


@pytest.mark.parametrize("schema_type", SchemaType)
def test_every_type_has_a_parser(schema_type: SchemaType) -> None:
    assert parse_schema(schema_type, TEXTS[schema_type]).type is schema_type


@pytest.mark.parametrize("schema_type", SchemaType)
def test_a_broken_text_is_one_error(schema_type: SchemaType) -> None:
    with pytest.raises(InvalidSchemaError):
        parse_schema(schema_type, "{")


def test_a_reference_of_another_type_is_refused() -> None:
    other = parse_schema(SchemaType.JSON, "{}")
    with pytest.raises(InvalidSchemaError, match="'other' is a schema of type JSON"):
        parse_schema(SchemaType.AVRO, '"string"', {"other": other})
