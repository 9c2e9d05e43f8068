"""Our serializers against Confluent's, in both directions, on our registry."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from google.api import http_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from google.rpc.context import attribute_context_pb2
from google.type import interval_pb2

import ottla

# Imported before a broker's thread does it: in CPython 3.11 two threads cannot parse at once, and
# pytest parses every module of ottla to rewrite its assertions.
from ottla import RegistryClient, SchemaDeserializer, SchemaSerializer
from ottla.schemas.classes.declaration import schema_of_class
from ottla.testing import Broker
from tests.protobuf_judge import protoc

NOW = datetime(2026, 5, 1, 12, 30, 1, 123456, tzinfo=UTC)
ID_FORMS = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}
each_id_form = pytest.mark.parametrize("id_form", ID_FORMS)


class Address(msgspec.Struct):
    city: str


class Order(msgspec.Struct):
    id: int
    customer: str
    at: datetime
    tags: list[str]
    home: Address
    note: str | None = None


@ottla.schema(format="json")
class Letter(msgspec.Struct):
    id: int
    customer: str
    tags: list[str]
    note: str | None = None


ORDER = Order(7, "Milena", NOW, ["a", "b"], Address("Wien"), "soon")
LETTER = Letter(7, "Milena", ["a", "b"], "soon")
MESSAGES = {
    "first": interval_pb2.Interval(start_time=NOW, end_time=NOW),
    "second": http_pb2.HttpRule(selector="a", get="/b"),
    "nested": attribute_context_pb2.AttributeContext.Peer(ip="::1", port=7),
    "with_any": status_pb2.Status(code=5, message="gone"),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Broker() as broker:
        yield broker.registry_url


@pytest.fixture
def ours(url: str) -> Iterator[RegistryClient]:
    with RegistryClient(url=url) as client:
        yield client


@pytest.fixture
def theirs(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, [])


def their_bytes(serializer: Any, value: Any, topic: str) -> tuple[bytes, list[tuple[str, bytes]]]:
    said = context(topic)
    return serializer(value, said), said.headers or []


def our_bytes(serializer: SchemaSerializer, value: Any, topic: str) -> tuple[bytes, Any]:
    made = serializer.serialize(topic, value)
    assert made is not None
    header = serializer.header(topic)
    said = context(topic)
    said.headers = [] if header is None else [header]
    return made, said


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(datetime,))


@each_id_form
def test_avro_is_exchanged(
    ours: RegistryClient, theirs: SchemaRegistryClient, id_form: str
) -> None:
    topic = f"avro-{id_form}"
    write = SchemaSerializer(Order, ours, {"schema.id.serializer": id_form})
    made, said = our_bytes(write, ORDER, topic)
    assert AvroDeserializer(theirs)(made, said) == plain(ORDER)
    settings = {"schema.id.serializer": ID_FORMS[id_form]}
    serializer = AvroSerializer(theirs, schema_of_class(Order).text, conf=settings)
    payload, headers = their_bytes(serializer, plain(ORDER), topic)
    assert (payload, headers) == (made, said.headers)
    assert SchemaDeserializer(Order, ours).deserialize(topic, payload, headers) == ORDER
    assert SchemaDeserializer("schema", ours).deserialize(topic, payload, headers) == plain(ORDER)


@each_id_form
def test_json_is_exchanged(
    ours: RegistryClient, theirs: SchemaRegistryClient, id_form: str
) -> None:
    topic = f"json-{id_form}"
    write = SchemaSerializer(Letter, ours, {"schema.id.serializer": id_form})
    made, said = our_bytes(write, LETTER, topic)
    text = schema_of_class(Letter).text
    assert JSONDeserializer(text, schema_registry_client=theirs)(made, said) == plain(LETTER)
    settings = {"schema.id.serializer": ID_FORMS[id_form]}
    payload, headers = their_bytes(
        JSONSerializer(text, theirs, conf=settings), plain(LETTER), topic
    )
    assert headers == said.headers
    assert json.loads(payload[5 if id_form == "prefix" else 0 :]) == plain(LETTER)
    assert SchemaDeserializer(Letter, ours).deserialize(topic, payload, headers) == LETTER


@each_id_form
@pytest.mark.parametrize("name", MESSAGES)
def test_protobuf_messages_are_exchanged(
    ours: RegistryClient, theirs: SchemaRegistryClient, id_form: str, name: str
) -> None:
    message = MESSAGES[name]
    kind = type(message)
    topic = f"protobuf-{id_form}-{name}"
    write = SchemaSerializer(kind, ours, {"schema.id.serializer": id_form})
    made, said = our_bytes(write, message, topic)
    assert ProtobufDeserializer(kind, schema_registry_client=theirs)(made, said) == message
    settings = {"schema.id.serializer": ID_FORMS[id_form]}
    payload, headers = their_bytes(ProtobufSerializer(kind, theirs, settings), message, topic)
    assert (payload, headers) == (made, said.headers), "the registry knows both as one schema"
    assert SchemaDeserializer(kind, ours).deserialize(topic, payload, headers) == message


NESTED = """
syntax = "proto3"; package nested; import "google/protobuf/timestamp.proto";
message First { google.protobuf.Timestamp at = 1; }
message A {
  message B { string b = 1; map<string, C> early = 2; message D { string d = 1; } }
  map<string, B> middle = 1;
  message C { string c = 1; }
  map<int32, string> late = 2;
}
message Last { string l = 1; }
"""
VALUES = {"A.B": {"b": "1"}, "A.B.D": {"d": "2"}, "A.C": {"c": "3"}, "Last": {"l": "4"}, "A": {}}


def nested_classes(folder: Path) -> dict[str, Any]:
    """Return the classes of NESTED with the descriptors that protoc gives them."""
    (folder / "nested.proto").write_text(NESTED)
    pool = DescriptorPool()
    for descriptor in protoc(folder, "nested.proto").values():
        pool.Add(descriptor)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"nested.{name}")) for name in VALUES}


@each_id_form
def test_nested_messages_between_maps_are_found_by_their_indexes(
    ours: RegistryClient, theirs: SchemaRegistryClient, id_form: str, tmp_path: Path
) -> None:
    topic = f"nested-{id_form}"
    generic = SchemaDeserializer("schema", ours)
    for name, kind in nested_classes(tmp_path).items():
        message = kind(**VALUES[name])
        settings = {"schema.id.serializer": ID_FORMS[id_form]}
        payload, headers = their_bytes(ProtobufSerializer(kind, theirs, settings), message, topic)
        write = SchemaSerializer(kind, ours, {"schema.id.serializer": id_form})
        made, said = our_bytes(write, message, topic)
        assert (made, said.headers) == (payload, headers)
        found: Any = generic.deserialize(topic, payload, headers)
        assert {part: value for part, value in found.items() if value} == VALUES[name]
        assert ProtobufDeserializer(kind, schema_registry_client=theirs)(made, said) == message
    assert ours.versions(f"{topic}-value") == [1]


@ottla.schema(format="protobuf", namespace="shop")
class Parcel(msgspec.Struct):
    id: int
    at: datetime
    home: Address
    tags: list[str]
    note: str | None = None


@each_id_form
def test_a_class_is_a_protobuf_message(
    ours: RegistryClient, theirs: SchemaRegistryClient, id_form: str
) -> None:
    topic = f"parcel-{id_form}"
    parcel = Parcel(7, NOW, Address("Wien"), ["a"], "soon")
    write = SchemaSerializer(Parcel, ours, {"schema.id.serializer": id_form})
    made, said = our_bytes(write, parcel, topic)
    assert SchemaDeserializer(Parcel, ours).deserialize(topic, made, said.headers) == parcel
    found = SchemaDeserializer("schema", ours).deserialize(topic, made, said.headers)
    assert (found["id"], found["home"], found["note"]) == ("7", {"city": "Wien"}, "soon")
    if id_form == "prefix":
        assert theirs.get_schema(int.from_bytes(made[1:5], "big")).schema_type == "PROTOBUF"
        assert SchemaId("PROTOBUF").from_bytes(io.BytesIO(made)).read() == made[6:]
