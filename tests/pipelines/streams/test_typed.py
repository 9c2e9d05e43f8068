"""Typed streams: columns by the registry, aggregates as Avro, tables as Protobuf, bad records."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ottla
from ottla import Producer
from ottla.streams import Pipeline, run, run_batch, stream, table
from ottla.testing import Broker
from tests.pipelines.conftest import SETTINGS
from tests.pipelines.streams.topics import create, send, with_headers


class Order(msgspec.Struct):
    customer: str
    price: float


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def pipeline_of(broker: Broker, name: str) -> Pipeline:
    return Pipeline(name, broker.bootstrap_servers, registry=broker.registry_url)


def send_orders(broker: Broker, topic: str, *orders: Order) -> None:
    settings = {"value": Order, "schema_registry_url": broker.registry_url}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        for order in orders:
            producer.send(topic, order, key=order.customer)


def rows_of(broker: Broker, topic: str) -> list[dict[str, Any]]:
    scan = ottla.scan(
        topic,
        decode="value",
        bootstrap_servers=broker.bootstrap_servers,
        schema_registry_url=broker.registry_url,
        isolation_level="read_committed",
    )
    return scan.to_arrow().drop_columns(["_partition", "_offset", "_timestamp"]).to_pylist()


def test_a_typed_stream_is_counted_and_written_as_avro(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    create(broker.bootstrap_servers, "orders", "copies", "counts", partitions=1)
    send_orders(broker, "orders", Order("Milena", 1.5), Order("Felix", 2.0))
    send(broker.bootstrap_servers, "orders", [("gone", None)])

    def define() -> None:
        orders = stream("orders").typed()
        assert orders.df.columns[:3] == ["customer", "price", "_key"]
        orders.filter("price > 1.75").avro().to("copies")
        orders.group("customer").count().avro(record_name="shop.Count").to("counts")

    run(define, pipeline_of(broker, "counting"), state_dir=tmp_path, until_caught_up=True)
    assert rows_of(broker, "copies") == [{"customer": "Felix", "price": 2.0, "_key": b"Felix"}]
    send_orders(broker, "orders", Order("Milena", 3.0))
    run(define, pipeline_of(broker, "counting"), state_dir=tmp_path, until_caught_up=True)
    counts = rows_of(broker, "counts")
    assert counts[-1] == {"customer": "Milena", "count": 2, "_key": b"Milena"}


def test_a_table_writes_protobuf_and_tombstones(spark: Any, broker: Broker, tmp_path: Path) -> None:
    create(broker.bootstrap_servers, "names", "people", partitions=1)
    send(broker.bootstrap_servers, "names", [("1", {"name": "Max"}), ("2", {"name": "Ottla"})])

    def define() -> None:
        table("names").json("name string").protobuf().to("people")

    run(define, pipeline_of(broker, "people"), state_dir=tmp_path, until_caught_up=True)
    send(broker.bootstrap_servers, "names", [("1", None)])
    run(define, pipeline_of(broker, "people"), state_dir=tmp_path, until_caught_up=True)
    found = rows_of(broker, "people")
    assert sorted((row["_key"], row["name"] or "") for row in found) == [
        (b"1", ""),
        (b"1", "Max"),
        (b"2", "Ottla"),
    ]


def test_bad_records_are_reported_skipped_or_sent_elsewhere(spark: Any, broker: Broker) -> None:
    create(broker.bootstrap_servers, "mixed", "good", "bad", "passed", partitions=1)
    send_orders(broker, "mixed", Order("Milena", 1.5))
    send(broker.bootstrap_servers, "mixed", [("b", b"bad")])
    pipeline = pipeline_of(broker, "mixed")
    with pytest.raises(Exception, match="mixed-0 offset 1: the value cannot"):
        run_batch(lambda: stream("mixed").typed().to("good"), pipeline)
    run_batch(lambda: stream("mixed").typed(on_error="skip").json_schema().to("passed"), pipeline)
    assert [row["customer"] for row in rows_of(broker, "passed")] == ["Milena"]
    run_batch(lambda: stream("mixed").typed(dead_letter_topic="bad").avro().to("good"), pipeline)
    assert [row["customer"] for row in rows_of(broker, "good")][-1] == "Milena"
    ((key, value, headers),) = with_headers(broker.bootstrap_servers, "bad")
    assert (key, value, headers["__connect.errors.offset"]) == ("b", b"bad", "1")


def test_typed_comes_first_and_bytes_have_no_schema(spark: Any, broker: Broker) -> None:
    create(broker.bootstrap_servers, "raw", partitions=1)
    raw = pipeline_of(broker, "raw").stream("raw")
    with pytest.raises(ValueError, match="call it before other operations"):
        raw.filter("key = 'a'").typed()
    with pytest.raises(ValueError, match="makes columns first"):
        raw.avro().to("elsewhere")
