"""Typed scans of a real topic: columns by the registry, versions, bad values, and pruning."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import ottla
from ottla import Producer, RegistryClient
from ottla.clients.tables.errors import ValueDecodingError
from ottla.schemas.schema import Schema, SchemaType
from ottla.testing import Broker

BARE = Schema(
    '{"type":"record","name":"Bare","fields":[{"name":"id","type":"long"}]}', SchemaType.AVRO
)


class Order(msgspec.Struct):
    id: int
    customer: str


@ottla.schema(name="Order")
class NewOrder(msgspec.Struct):
    id: int
    customer: str
    city: str = "Prag"


class Key(msgspec.Struct):
    shop: str


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a topic that no other test has."""
    return str(request.node.name).replace("[", "-").replace("]", "")


def servers(broker: Broker) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "schema.registry.url": broker.registry_url,
    }


def send(broker: Broker, topic: str, *values: Any, **settings: Any) -> None:
    forms = {"value": type(values[0]), **settings}
    with Producer(servers(broker), **forms) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def send_bytes(broker: Broker, topic: str, *values: bytes | None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, key="raw", partition=0)


def test_records_of_all_versions_have_the_columns_of_the_latest(broker: Broker, topic: str) -> None:
    send(broker, topic, Order(1, "Milena"))
    send(broker, topic, NewOrder(2, "Felix", "Wien"))
    scan = ottla.scan(topic, servers(broker), decode="value")
    assert scan.schema.names == [
        "id",
        "customer",
        "city",
        "_key",
        "_partition",
        "_offset",
        "_timestamp",
    ]
    rows = scan.to_arrow().select(["id", "city", "_offset"]).to_pylist()
    assert rows == [
        {"id": 1, "city": "Prag", "_offset": 0},
        {"id": 2, "city": "Wien", "_offset": 1},
    ]
    first = ottla.scan(topic, servers(broker), decode="value", version=1)
    assert "city" not in first.schema.names
    assert first.to_arrow()["id"].to_pylist() == [1, 2]


def test_columns_are_chosen_by_name_and_in_order(broker: Broker, topic: str) -> None:
    send(broker, topic, Order(1, "Milena"))
    send_bytes(broker, topic, None)
    columns = ["_tombstone", "customer", "_topic"]
    scan = ottla.scan(topic, servers(broker), decode="value", columns=columns)
    assert [tuple(row.values()) for row in scan.to_arrow().to_pylist()] == [
        (False, "Milena", topic),
        (True, None, topic),
    ]
    with pytest.raises(ValueError, match="no column 'custmer'; did you mean customer"):
        ottla.scan(topic, servers(broker), decode="value", columns=["custmer"])


def test_a_bad_value_raises_with_its_place_or_is_null(broker: Broker, topic: str) -> None:
    send(broker, topic, Order(1, "Milena"))
    send_bytes(broker, topic, b"bad")
    send(broker, topic, Order(3, "Max"))
    scan = ottla.scan(topic, servers(broker), decode="value")
    with pytest.raises(ValueDecodingError, match=f"{topic}-0 offset 1: the value cannot"):
        scan.to_arrow()
    scan = ottla.scan(topic, servers(broker), decode="value", on_error="null")
    assert scan.to_arrow()["id"].to_pylist() == [1, None, 3]
    offsets = ottla.scan(topic, servers(broker), decode="value", columns=["_offset"])
    assert offsets.to_arrow()["_offset"].to_pylist() == [0, 1, 2]


def test_many_pieces_are_decoded_in_threads_and_stay_in_order(broker: Broker, topic: str) -> None:
    send(broker, topic, *(Order(number, "x") for number in range(500)))
    scan = ottla.scan(topic, servers(broker), decode="value", threads=3)
    pieces = [
        ottla.scan(topic, servers(broker), decode="value", start=start, end=start + 100)
        for start in range(0, 500, 100)
    ]
    whole = pa.concat_tables(piece.to_arrow() for piece in pieces)
    assert scan.to_arrow()["id"].to_pylist() == whole["id"].to_pylist() == list(range(500))


def test_keys_are_decoded_beside_values_or_alone(broker: Broker, topic: str) -> None:
    with Producer(servers(broker), key=Key, value=Order) as producer:
        producer.send(topic, Order(1, "Milena"), key=Key("Prag"))
        producer.send(topic, Order(2, "Max"))
    both = ottla.scan(topic, servers(broker), decode="key,value").to_arrow()
    assert both["_key"].to_pylist() == [{"shop": "Prag"}, None]
    keys = ottla.scan(topic, servers(broker), decode="key", on_error="null").to_arrow()
    assert keys.column_names[:2] == ["_key", "_value"]
    assert keys["_value"][0].as_py().startswith(b"\0")


def test_values_without_an_id_need_a_schema(broker: Broker, topic: str) -> None:
    send_bytes(broker, topic, b"\x02", b"\x0e")
    plain = {"bootstrap.servers": broker.bootstrap_servers}
    scan = ottla.scan(topic, plain, decode="value", schema=BARE)
    assert scan.to_arrow()["id"].to_pylist() == [1, 7]
    with pytest.raises(ValueError, match="decode needs schema_registry_url, or schema"):
        ottla.scan(topic, plain, decode="value")


def test_a_field_named_as_a_column_of_the_record_is_refused(broker: Broker, topic: str) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"_offset","type":"long"}]}'
    with RegistryClient(url=broker.registry_url) as registry:
        registry.register(f"{topic}-value", Schema(text, SchemaType.AVRO))
    send_bytes(broker, topic, b"x")
    with pytest.raises(Exception, match="the schema has a field _offset"):
        ottla.scan(topic, servers(broker), decode="value")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decode": "body"}, "decode is 'body': expected value, key, or key,value"),
        ({"decode": "value", "on_error": "skip"}, "expected raise or null"),
        ({"version": 2}, 'add decode="value"'),
        ({"decode": "key,value", "subject": "a"}, "subject is for one part"),
        ({"decode": "value", "schema": BARE, "subject": "a"}, "without subject and version"),
    ],
)
def test_a_wrong_argument_is_named(broker: Broker, given: dict[str, Any], message: str) -> None:
    send(broker, "orders", Order(1, "Milena"))
    with pytest.raises(ValueError, match=message):
        ottla.scan("orders", servers(broker), **given)
