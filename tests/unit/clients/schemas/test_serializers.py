"""Serializers and deserializers on a small registry: subjects, settings, evolution, errors."""

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import ottla
from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.records.serializers import MissingSchemaError
from ottla.clients.schemas.framing import VALUE_HEADER, header_value, prefix
from ottla.clients.schemas.registry_calls import RegistryError
from ottla.clients.schemas.registry_client import AsyncRegistryClient, RegistryClient
from ottla.clients.schemas.serializers import SchemaDeserializer, SchemaSerializer
from ottla.schemas.classes.declaration import schema
from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.schema import Schema, SchemaReference, SchemaType
from tests.unit.clients.schemas.small_registry import SmallRegistry, guid

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Order(msgspec.Struct):
    id: int
    customer: str
    at: datetime
    note: str | None = None


@dataclasses.dataclass
class Slim:
    id: int
    customer: str
    paid: bool = False


@schema(format="json")
class JsonOrder(msgspec.Struct):
    id: int
    at: datetime
    note: str | None = None


@schema(format="protobuf", namespace="shop")
class ProtoOrder(msgspec.Struct):
    id: int
    at: datetime
    tags: list[str] = []
    note: str | None = None


ORDER = Order(7, "Milena", NOW, "soon")
VALUES = [ORDER, JsonOrder(7, NOW, "soon"), ProtoOrder(7, NOW, ["a", "b"])]
each_value = pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)


@pytest.fixture
def small() -> Iterator[SmallRegistry]:
    registry = SmallRegistry()
    with registry.server:
        yield registry


@pytest.fixture
def client(small: SmallRegistry) -> Iterator[RegistryClient]:
    with RegistryClient(url=small.server.url) as client:
        yield client


@each_value
def test_objects_come_back_and_the_schema_is_registered_once(
    small: SmallRegistry, client: RegistryClient, value: Any
) -> None:
    write = SchemaSerializer(type(value), client)
    made = [write.serialize("orders", value) for _ in range(3)]
    assert small.server.paths == ["POST /subjects/orders-value/versions"]
    assert made[0] is not None
    assert made[0][:5] == prefix(1)
    read = SchemaDeserializer(type(value), client)
    assert [read.deserialize("orders", one) for one in made if one] == [value] * 3
    assert small.server.paths[1:] == ["GET /schemas/ids/1"]


@each_value
def test_the_header_has_the_guid_and_the_value_is_bare(
    small: SmallRegistry, client: RegistryClient, value: Any
) -> None:
    write = SchemaSerializer(type(value), client, schema_id_serializer="header")
    made = write.serialize("orders", value)
    header = write.header("orders")
    indexes = (0,) if isinstance(value, ProtoOrder) else ()
    assert header == (VALUE_HEADER, header_value(guid(1), indexes))
    read = SchemaDeserializer(type(value), client)
    assert made is not None
    assert read.deserialize("orders", made, [header]) == value


def test_a_tombstone_needs_no_schema(small: SmallRegistry, client: RegistryClient) -> None:
    assert SchemaSerializer(Order, client).serialize("orders", None) is None
    assert small.server.seen == []


def test_the_part_and_the_strategy_name_the_subject(
    small: SmallRegistry, client: RegistryClient
) -> None:
    SchemaSerializer(Order, client, part="key").serialize("orders", ORDER)
    settings = {"subject.name.strategy": "TopicRecordNameStrategy", "normalize.schemas": "true"}
    SchemaSerializer(Order, client, settings).serialize("orders", ORDER)
    assert small.server.paths == [
        "POST /subjects/orders-key/versions",
        "POST /subjects/orders-Order/versions?normalize=true",
    ]


def test_without_registration_the_schema_is_looked_up(
    small: SmallRegistry, client: RegistryClient
) -> None:
    write = SchemaSerializer(Order, client, auto_register_schemas=False)
    with pytest.raises(RegistryError, match="Schema not found"):
        write.serialize("orders", ORDER)
    assert small.ids == []


def test_values_are_written_by_the_latest_version(
    small: SmallRegistry, client: RegistryClient
) -> None:
    SchemaSerializer(Slim, client, subject_name_strategy="TopicNameStrategy").serialize(
        "orders", Slim(1, "Max")
    )
    text = json.loads(small.ids[0]["schema"])
    text["fields"] = text["fields"][:2]
    client.register("orders-value", Schema(json.dumps(text)))
    made = SchemaSerializer(Slim, client, use_latest_version=True).serialize(
        "orders", Slim(2, "Max", True)
    )
    assert made == prefix(2) + b"\x04\x06Max"


def test_a_latest_version_that_cannot_read_the_values_is_refused_with_the_field(
    small: SmallRegistry, client: RegistryClient
) -> None:
    client.register(
        "orders-value",
        Schema(
            json.dumps(
                {"type": "record", "name": "Slim", "fields": [{"name": "extra", "type": "string"}]}
            )
        ),
    )
    write = SchemaSerializer(Slim, client, use_latest_version=True)
    with pytest.raises(InvalidSchemaError, match=r"latest version of orders-value.*extra"):
        write.serialize("orders", Slim(1, "Max"))


def test_values_are_written_by_a_given_id(small: SmallRegistry, client: RegistryClient) -> None:
    SchemaSerializer(Slim, client).serialize("elsewhere", Slim(1, "Max"))
    made = SchemaSerializer("schema", client, use_schema_id=1).serialize(
        "orders", {"id": 1, "customer": "Max", "paid": True}
    )
    assert made == prefix(1) + b"\x02\x06Max\x01"
    assert list(small.versions) == ["elsewhere-value"]


def test_settings_that_contradict_each_other_are_refused(client: RegistryClient) -> None:
    with pytest.raises(InvalidClientSettingError, match="exclude each other"):
        SchemaSerializer(Order, client, use_latest_version=True, auto_register_schemas=True)
    with pytest.raises(InvalidClientSettingError, match="without a schema to write by"):
        SchemaSerializer("schema", client)
    with pytest.raises(InvalidClientSettingError, match="is not a class with fields"):
        SchemaSerializer(int, client)


def test_a_reader_class_gets_what_it_has_of_another_version(client: RegistryClient) -> None:
    made = SchemaSerializer(Order, client).serialize("orders", ORDER)
    assert made is not None
    assert SchemaDeserializer(Slim, client).deserialize("orders", made) == Slim(7, "Milena")


def test_promotions_take_the_general_way(client: RegistryClient) -> None:
    text = (
        '{"type":"record","name":"Slim","fields":[{"name":"id","type":"int"},'
        '{"name":"customer","type":"string"}]}'
    )
    made = SchemaSerializer(Schema(text), client).serialize("t", {"id": 5, "customer": "Max"})
    assert made is not None
    assert SchemaDeserializer(Slim, client).deserialize("t", made) == Slim(5, "Max")


def test_plain_values_are_read_by_the_writers_schema(client: RegistryClient) -> None:
    read = SchemaDeserializer("schema", client)
    for value in VALUES[:2]:
        made = SchemaSerializer(type(value), client).serialize("orders", value)
        assert made is not None
        found = read.deserialize("orders", made)
        assert (found["id"], found["note"]) == (7, "soon")


def test_references_are_resolved(client: RegistryClient) -> None:
    inner = '{"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}'
    client.register("address", Schema(inner))
    outer = Schema(
        '{"type":"record","name":"Person","fields":[{"name":"home","type":"Address"}]}',
        SchemaType.AVRO,
        (SchemaReference("Address", "address", 1),),
    )
    made = SchemaSerializer(outer, client).serialize("people", {"home": {"city": "Prag"}})
    assert made is not None
    with RegistryClient(client.calls.settings) as other:
        read = SchemaDeserializer("schema", other)
        assert read.deserialize("people", made) == {"home": {"city": "Prag"}}


def test_bytes_without_a_schema_are_refused(client: RegistryClient) -> None:
    read = SchemaDeserializer(Order, client)
    with pytest.raises(ValueError, match="begin with 0x7b"):
        read.deserialize("orders", b'{"id":1}')
    with pytest.raises(ValueError, match="the schema 9 cannot be used: Schema not found"):
        read.deserialize("orders", prefix(9) + b"x")


def test_a_damaged_value_names_its_field(client: RegistryClient) -> None:
    made = SchemaSerializer(Order, client).serialize("orders", ORDER)
    assert made is not None
    with pytest.raises(ValueError, match=r"customer: .* bytes are missing"):
        SchemaDeserializer(Order, client).deserialize("orders", made[:8])


def test_in_asyncio_schemas_are_awaited_and_never_waited_for(small: SmallRegistry) -> None:
    async def run() -> None:
        async with AsyncRegistryClient(url=small.server.url) as client:
            write = SchemaSerializer(Order, client)
            with pytest.raises(RuntimeError, match="await resolve"):
                write.serialize("orders", ORDER)
            assert not write.is_resolved("orders")
            await asyncio.gather(*(write.resolve("orders") for _ in range(5)))
            made = write.serialize("orders", ORDER)
            assert made is not None
            read = SchemaDeserializer(Order, client)
            with pytest.raises(MissingSchemaError) as caught:
                read.deserialize("orders", made)
            await caught.value.fetch()
            assert read.deserialize("orders", made) == ORDER

    asyncio.run(run())
    assert small.server.paths == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]


def test_the_decorator_is_public() -> None:
    assert ottla.schema is schema
