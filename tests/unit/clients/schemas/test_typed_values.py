"""Typed columns from values of several schemas: groups, headers, messages, and bad rows."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import ottla
from ottla import RegistryClient, SchemaSerializer
from ottla.clients.schemas.framing import VALUE_HEADER, header_value, prefix
from ottla.clients.schemas.registry_calls import RegistryError
from ottla.clients.schemas.typed_values import TypedValues
from ottla.schemas.schema import Schema, SchemaType
from tests.unit.clients.schemas.scripted_server import ScriptedServer
from tests.unit.clients.schemas.small_registry import NOT_FOUND, SmallRegistry, guid

OLD = Schema(
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},'
    '{"name":"gone","type":"string"}]}'
)


class Order(msgspec.Struct):
    id: int
    customer: str = "?"


@ottla.schema(format="json")
class JsonOrder(msgspec.Struct):
    id: int
    customer: str = "?"


@ottla.schema(format="protobuf")
class ProtoOrder(msgspec.Struct):
    id: int
    customer: str = "?"


@pytest.fixture
def small() -> Iterator[SmallRegistry]:
    registry = SmallRegistry()
    with registry.server:
        yield registry


@pytest.fixture
def client(small: SmallRegistry) -> Iterator[RegistryClient]:
    with RegistryClient(url=small.server.url) as client:
        yield client


def values_of(client: RegistryClient, kind: type, count: int) -> list[bytes | None]:
    write = SchemaSerializer(kind, client)
    return [write.serialize("orders", kind(row, f"c{row}")) for row in range(count)]


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": row, "customer": f"c{row}"} for row in range(count)]


@pytest.mark.parametrize("kind", [Order, JsonOrder, ProtoOrder], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary()], ids=str)
def test_values_of_one_schema_become_columns(
    small: SmallRegistry, client: RegistryClient, kind: type, binary: pa.DataType
) -> None:
    values = [*values_of(client, kind, 3), None]
    typed = TypedValues.of_subject(client, "orders-value")
    for _ in range(2):
        decoded = typed.decode(pa.array(values, binary))
        assert decoded.batch.schema.equals(typed.schema)
        assert decoded.batch.to_pylist() == [*rows(3), {"id": None, "customer": None}]
        assert decoded.errors == {}
    assert small.server.paths.count("GET /schemas/ids/1") == 1
    assert typed.decode(pa.array(values, binary)[1:2]).batch.to_pylist() == rows(3)[1:2]
    assert typed.decode(pa.array([], binary)).batch.num_rows == 0
    assert typed.decode(pa.array([None], binary)).batch.num_rows == 1


def test_rows_of_several_schemas_keep_their_order(
    small: SmallRegistry, client: RegistryClient
) -> None:
    new = values_of(client, Order, 3)
    old = SchemaSerializer(OLD, client)
    values = [
        new[0],
        b"{}",
        old.serialize("orders", {"id": 7, "gone": "x"}),
        None,
        new[1],
        prefix(9) + b"x",
        prefix(1) + b"\x80",
        new[2],
    ]
    typed = TypedValues(client, client.parsed(Schema(small.ids[0]["schema"])))
    decoded = typed.decode(pa.array(values, pa.binary()))
    nothing = {"id": None, "customer": None}
    assert decoded.batch.to_pylist() == [
        rows(1)[0],
        nothing,
        {"id": 7, "customer": "?"},
        nothing,
        rows(2)[1],
        nothing,
        nothing,
        rows(3)[2],
    ]
    assert list(decoded.errors) == [1, 5, 6]
    assert "too short for the id" in decoded.errors[1]
    assert "Schema not found" in decoded.errors[5]


def test_a_header_names_the_schema(small: SmallRegistry, client: RegistryClient) -> None:
    framed = values_of(client, Order, 3)
    bare = [value[5:] for value in framed if value is not None]
    named = {"key": VALUE_HEADER, "value": header_value(guid(1))}
    other = {"key": "trace", "value": b"1"}
    headers = pa.array(
        [[other, named], [], [{"key": VALUE_HEADER, "value": b"bad"}, named], [named], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    values = pa.array([bare[0], framed[1], bare[2], None, framed[0]], pa.binary())
    typed = TypedValues.of_subject(client, "orders-value")
    decoded = typed.decode(values, headers)
    assert decoded.errors == {}
    assert decoded.batch.to_pylist() == [*rows(3), {"id": None, "customer": None}, rows(1)[0]]
    cut = typed.decode(values[1:], headers[1:])
    assert cut.batch.to_pylist() == decoded.batch.to_pylist()[1:]


def test_messages_of_a_file_are_told_apart(client: RegistryClient) -> None:
    text = (
        'syntax = "proto3"; message A { int64 id = 1; message In { int64 id = 1; } } '
        "message B { int64 id = 1; }"
    )
    schema = Schema(text, SchemaType.PROTOBUF)
    found = client.register("orders-value", schema)
    parsed = client.parsed(schema)
    payload = b"\x08\x07"
    values = pa.array(
        [
            prefix(found.id, (0,)) + payload,
            prefix(found.id, (1,)) + payload,
            prefix(found.id, (0, 0)) + payload,
            prefix(found.id, (9,)) + payload,
            prefix(found.id),
            None,
            prefix(found.id, (1,)),
        ],
        pa.binary(),
    )
    first = TypedValues(client, parsed).decode(values)
    assert first.batch.column("id").to_pylist() == [7, *[None] * 6]
    assert [*first.errors] == [1, 2, 3, 4, 6]
    assert "a message B, the columns are of A" in first.errors[1]
    second = TypedValues(client, parsed, message_name="B").decode(values)
    assert second.batch.column("id").to_pylist() == [None, 7, None, None, None, None, 0]
    inner = TypedValues(client, parsed, message_name="A.In").decode(values[2:3])
    assert (inner.batch.to_pylist(), inner.errors) == ([{"id": 7}], {})
    only = TypedValues(client, parsed, message_name="B").decode(values[1:2])
    assert (only.batch.to_pylist(), only.errors) == ([{"id": 7}], {})


def test_values_of_another_type_are_errors(client: RegistryClient) -> None:
    values = values_of(client, JsonOrder, 1)
    reader = client.parsed(OLD)
    decoded = TypedValues(client, reader).decode(pa.array(values, pa.binary()))
    assert "of type JSON, the columns of AVRO" in decoded.errors[0]


def test_without_a_registry_values_have_no_framing(client: RegistryClient) -> None:
    reader = client.parsed(OLD)
    decoded = TypedValues(None, reader).decode(pa.array([b"\x02\x02x"], pa.binary()))
    assert decoded.batch.to_pylist() == [{"id": 1, "gone": "x"}]


FORBIDDEN = (403, {"error_code": 40301, "message": "not for you"})


def test_an_unknown_schema_is_an_error_of_the_value_and_a_refusal_is_raised(
    client: RegistryClient,
) -> None:
    values = pa.array(values_of(client, Order, 1), pa.binary())
    reader = client.parsed(client.latest_version("orders-value").schema)
    with ScriptedServer(lambda _: NOT_FOUND) as server, RegistryClient(url=server.url) as other:
        assert "Schema not found" in TypedValues(other, reader).decode(values).errors[0]
    with ScriptedServer(lambda _: FORBIDDEN) as server, RegistryClient(url=server.url) as other:
        typed = TypedValues(other, reader)
        with pytest.raises(RegistryError, match="not for you"):
            typed.decode(values)
