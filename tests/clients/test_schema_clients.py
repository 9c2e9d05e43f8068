"""Producers and consumers with `key=` and `value=`, on a broker with its registry."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pytest

import ottla

# Imported before a broker's thread does it: in CPython 3.11 two threads cannot parse at once, and
# pytest parses every module of ottla to rewrite its assertions.
from ottla import Consumer, DeserializationError, Producer, RegistryClient, SerializationError
from ottla.aio import Consumer as AsyncConsumer
from ottla.aio import Producer as AsyncProducer
from ottla.clients.consumer.state.errors import ConsumerError
from ottla.testing import Broker

NOW = datetime(2026, 5, 1, 12, 30, 1, 123456, tzinfo=UTC)


class Order(msgspec.Struct):
    id: int
    customer: str
    at: datetime = NOW
    note: str | None = None


class Key(TypedDict):
    id: int


ORDERS = [Order(number, f"c{number}") for number in range(5)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def settings(broker: Broker) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "schema.registry.url": broker.registry_url,
        "value": Order,
    }


@pytest.fixture
def reading(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {"auto.offset.reset": "earliest"}


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("[", "-").replace("]", "")[-100:]


def read(settings: dict[str, Any], topic: str, count: int) -> list[Any]:
    with Consumer(settings) as consumer:
        consumer.assign([(topic, 0)])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.poll(timeout=20)
        return found


@pytest.mark.parametrize("id_form", ["prefix", "header"])
def test_objects_and_tombstones_are_sent_and_read(
    settings: dict[str, Any], reading: dict[str, Any], topic: str, id_form: str
) -> None:
    with Producer(settings, key=Key, schema_id_serializer=id_form) as producer:
        producer.send(topic, ORDERS[0], {"id": 7})
        producer.send(topic, None, {"id": 8})
        producer.send(topic, ORDERS[1], headers=[("trace", b"1")])
    found = read(reading | {"key": Key}, topic, 3)
    assert [record.value for record in found] == [ORDERS[0], None, ORDERS[1]]
    assert [record.key for record in found] == [{"id": 7}, {"id": 8}, None]
    names = [[name for name, _ in record.headers] for record in found]
    if id_form == "header":
        assert names == [
            ["__key_schema_id", "__value_schema_id"],
            ["__key_schema_id"],
            ["trace", "__value_schema_id"],
        ]
    else:
        assert names == [[], [], ["trace"]]


def test_send_many_takes_objects(
    settings: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    with Producer(settings) as producer:
        producer.send_many(topic, ORDERS)
    assert [record.value for record in read(reading, topic, 5)] == ORDERS
    with (
        Producer(settings, schema_id_serializer="header") as producer,
        pytest.raises(SerializationError, match="send_many writes no headers"),
    ):
        producer.send_many(topic, ORDERS)


def test_a_change_that_breaks_readers_is_refused_with_the_field(
    settings: dict[str, Any], topic: str
) -> None:
    class Changed(msgspec.Struct):
        id: int
        customer: str
        city: str

    with Producer(settings) as producer:
        producer.send(topic, ORDERS[0])
    with (
        Producer(settings | {"value": Changed}) as producer,
        pytest.raises(SerializationError, match=r"cannot be serialized by Changed: .*city"),
    ):
        producer.send(topic, Changed(1, "c", "Wien"))


def test_an_object_that_does_not_fit_names_its_field(settings: dict[str, Any], topic: str) -> None:
    with (
        Producer(settings) as producer,
        pytest.raises(SerializationError, match="customer: expected a str, not int"),
    ):
        producer.send(topic, Order(1, 2))  # type: ignore[arg-type]


def test_bytes_without_a_schema_stop_the_consumer_at_their_offset(
    settings: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    with Producer(settings) as producer:
        producer.send(topic, ORDERS[0]).result()
    with Producer({"bootstrap.servers": settings["bootstrap.servers"]}) as producer:
        producer.send(topic, b"{}").result()
        producer.send(topic, b"\0\0\0\xff\xff{}").result()
    with Consumer(reading) as consumer:
        consumer.assign([(topic, 0)])
        assert [record.value for record in consumer.poll(timeout=20)] == ORDERS[:1]
        with pytest.raises(DeserializationError, match="offset 1: FramingError: 2 bytes"):
            consumer.poll(timeout=20)
        consumer.seek((topic, 0), 2)
        with pytest.raises(DeserializationError, match="the schema 65535 cannot be used"):
            consumer.poll(timeout=20)


def test_workers_get_objects(settings: dict[str, Any], reading: dict[str, Any], topic: str) -> None:
    with Producer(settings) as producer:
        producer.send_many(topic, ORDERS)
    seen: list[Any] = []
    with Consumer(reading, group_id=topic) as consumer:
        consumer.subscribe([topic])

        def handle(record: Any) -> None:
            seen.append(record.value)
            if len(seen) == len(ORDERS):
                consumer.stop()

        consumer.run(handle, workers=2)
    assert sorted(seen, key=lambda order: order.id) == ORDERS


def test_asyncio_clients_send_and_read_objects(
    settings: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    async def run() -> None:
        async with AsyncProducer(settings) as producer:
            await producer.send(topic, ORDERS[0])
            await producer.send_many(topic, ORDERS[1:3])
            with pytest.raises(SerializationError, match="no such field"):
                await producer.send(topic, "text")
        async with AsyncConsumer(reading, group_id=topic) as consumer:
            consumer.assign([(topic, 0)])
            found: list[Any] = []
            while len(found) < 3:
                found += await consumer.poll(timeout=20)
            assert [record.value for record in found] == ORDERS[:3]
        async with AsyncConsumer(reading, group_id=f"{topic}-run") as consumer:
            await consumer.subscribe([topic])
            seen: list[Any] = []

            async def handle(record: Any) -> None:
                await asyncio.sleep(0)
                seen.append(record.value)
                if len(seen) == 3:
                    consumer.stop()

            await consumer.run(handle)
            assert sorted(seen, key=lambda order: order.id) == ORDERS[:3]
        async with AsyncConsumer(reading) as consumer:
            consumer.assign([(topic, 0)])
            table = await consumer.poll_arrow(decode="value", timeout=20)
            assert table.column("customer").to_pylist() == ["c0", "c1", "c2"]

    asyncio.run(run())


def test_poll_arrow_gives_typed_columns(
    settings: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    with Producer(settings) as producer:
        producer.send_many(topic, ORDERS)
    with Producer({"bootstrap.servers": settings["bootstrap.servers"]}) as producer:
        producer.send(topic, b"{}").result()
    del reading["value"]
    with Consumer(reading) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(ValueError, match="decode='both': it must be key or value"):
            consumer.poll_arrow(decode="both")
        with pytest.raises(ValueError, match="no column 'size'"):
            consumer.poll_arrow(["size"], decode="value")
        table = consumer.poll_arrow(["offset"], decode="value", timeout=20)
    assert table.column_names == ["id", "customer", "at", "note", "_error", "_offset"]
    assert table.column("customer").to_pylist() == [*(order.customer for order in ORDERS), None]
    assert table.column("at").to_pylist()[:5] == [NOW] * 5
    assert table.column("_error").null_count == 5
    with Consumer(bootstrap_servers=reading["bootstrap.servers"]) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(ConsumerError, match=r"needs the setting schema\.registry\.url"):
            consumer.poll_arrow(decode="value")


def test_the_registry_has_the_class(settings: dict[str, Any], topic: str) -> None:
    with (
        Producer(settings) as producer,
        RegistryClient(url=settings["schema.registry.url"]) as found,
    ):
        producer.send(topic, ORDERS[0])
        text = found.latest_version(f"{topic}-value").schema.text
    assert [row["name"] for row in json.loads(text)["fields"]] == ["id", "customer", "at", "note"]


def test_settings_of_schemas_are_checked() -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "value": Order}
    with pytest.raises(ottla.InvalidClientSettingError, match=r"schema\.registry\.url is missing"):
        Producer(given)
    with pytest.raises(ottla.InvalidClientSettingError, match="give only one"):
        Consumer(given, value_deserializer="json", schema_registry_url="http://127.0.0.1:1")
    with pytest.raises(ottla.InvalidClientSettingError, match="value cannot be"):
        Producer(given | {"value": int}, schema_registry_url="http://127.0.0.1:1")


def test_an_unreachable_registry_stops_neither_client_for_ever(
    settings: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    with Producer(settings) as producer:
        producer.send(topic, ORDERS[0]).result()
    away = {"schema.registry.url": "http://127.0.0.1:1", "schema.registry.retries": "0"}
    with (
        Producer(settings | away) as producer,
        pytest.raises(SerializationError, match="is unreachable"),
    ):
        producer.send(topic, ORDERS[0])
    with Consumer(reading | away) as consumer:
        consumer.assign([(topic, 0)])
        for _ in range(2):
            with pytest.raises(ottla.RegistryUnreachableError):
                consumer.poll(timeout=20)
