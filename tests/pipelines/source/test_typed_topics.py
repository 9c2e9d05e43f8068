"""Typed topics in real Spark: columns, evolution, bad records, keys, formats and restarts."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import ottla
from ottla import Producer, RegistryClient
from ottla.schemas.schema import Schema, SchemaType
from ottla.testing import Broker
from tests.pipelines.conftest import SETTINGS
from tests.pipelines.source.reading import make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_MAX = 120
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Line(msgspec.Struct):
    sku: str
    count: int


class Order(msgspec.Struct):
    id: int
    customer: str
    at: datetime
    lines: list[Line]
    labels: dict[str, str]


@ottla.schema(name="Order")
class NewOrder(msgspec.Struct):
    id: int
    customer: str
    at: datetime
    lines: list[Line]
    labels: dict[str, str]
    note: str | None = None


@ottla.schema(format="json")
class JsonOrder(msgspec.Struct):
    id: int
    customer: str


@ottla.schema(format="protobuf")
class ProtobufOrder(msgspec.Struct):
    id: int
    customer: str


class Key(msgspec.Struct):
    shop: str
    number: int


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def order(kind: type, number: int, **fields: Any) -> Any:
    return kind(number, f"c{number}", AT, [Line("a", number)], {"lang": "cs"}, **fields)


def send(broker: Broker, topic: str, values: list[Any], **settings: Any) -> None:
    settings = {"value": type(values[0]), "schema_registry_url": broker.registry_url, **settings}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def send_bytes(broker: Broker, topic: str, *values: bytes | None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, key="raw", partition=0)


def options(broker: Broker, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "schema.registry.url": broker.registry_url,
        "subscribe": topic,
        "decode": "value",
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def frame(spark: "SparkSession", broker: Broker, topic: str, **more: str) -> Any:
    return spark.read.format("ottla").options(**options(broker, topic, **more)).load()


def test_columns_are_the_fields_and_then_the_record(spark: "SparkSession", broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    send(broker, topic, [order(Order, number) for number in range(3)])
    rows = frame(spark, broker, topic)
    assert rows.schema.simpleString() == (
        "struct<id:bigint,customer:string,at:timestamp,lines:array<struct<sku:string,count:bigint>>"
        ",labels:map<string,string>,_key:binary,_partition:int,_offset:bigint,_timestamp:timestamp>"
    )
    found = rows.where("_offset >= 1 AND customer <> 'c1'").collect()
    assert [(row.id, row._offset, row.lines[0].sku, row.labels) for row in found] == [
        (2, 2, "a", {"lang": "cs"})
    ]


def test_versions_of_several_writers_become_columns_of_the_latest(
    spark: "SparkSession", broker: Broker
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    send(broker, topic, [order(Order, 0)])
    send(broker, topic, [order(NewOrder, 1, note="new")])
    send(broker, topic, [order(Order, 2)])
    chosen = frame(spark, broker, topic).select("id", "note").collect()
    assert [tuple(row) for row in chosen] == [(0, None), (1, "new"), (2, None)]
    first = frame(spark, broker, topic, decode_version="1")
    assert "note" not in first.columns
    assert [row.id for row in first.collect()] == [0, 1, 2]


def test_a_schema_of_the_reader_prunes_the_columns(spark: "SparkSession", broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    send(broker, topic, [order(Order, 0)])
    send_bytes(broker, topic, None)
    reader = spark.read.format("ottla").options(**options(broker, topic))
    found = reader.schema("_tombstone boolean, customer string, _topic string").load().collect()
    assert [tuple(row) for row in found] == [(False, "c0", topic), (True, None, topic)]
    with pytest.raises(Exception, match="id is string: it is bigint"):
        reader.schema("id string").load().collect()
    with pytest.raises(Exception, match="names a column 'customr'; did you mean customer"):
        reader.schema("customr string").load().collect()


def test_a_bad_record_ends_the_query_with_its_place(spark: "SparkSession", broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    send(broker, topic, [order(Order, 0)])
    send_bytes(broker, topic, b"\0\0\0\0\x01\x02")
    with pytest.raises(Exception, match=f"{topic}-0 offset 1: the value cannot be decoded"):
        frame(spark, broker, topic).collect()
    reader = spark.read.format("ottla").options(**options(broker, topic))
    assert reader.schema("_offset bigint").load().count() == 2  # decodes nothing


def test_permissive_rows_keep_the_bytes(spark: "SparkSession", broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    send(broker, topic, [order(Order, 0)])
    send_bytes(broker, topic, b"bad", None)
    rows = frame(spark, broker, topic, decode_mode="permissive")
    chosen = rows.select("id", "_offset", "_corrupt").collect()
    assert [tuple(row) for row in chosen] == [(0, 0, None), (None, 1, b"bad"), (None, 2, None)]


def test_bad_records_go_to_the_topic_of_dead_letters(spark: "SparkSession", broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    dead = make_topic(broker.bootstrap_servers, "dead")
    send(broker, topic, [order(Order, 0)])
    send_bytes(broker, topic, b"bad")
    send(broker, topic, [order(Order, 2)])
    rows = frame(spark, broker, topic, decode_mode="dlq", decode_dlq_topic=dead)
    assert [row.id for row in rows.collect()] == [0, 2]
    (letter,) = ottla.scan(
        dead, bootstrap_servers=broker.bootstrap_servers, columns=["key", "value", "headers"]
    ).to_arrow().to_pylist()  # fmt: skip
    assert (letter["key"], letter["value"]) == (b"raw", b"bad")
    said = {header["key"]: header["value"].decode() for header in letter["headers"]}
    assert said["__connect.errors.topic"] == topic
    assert said["__connect.errors.offset"] == "1"
    assert "too short for the id" in said["__connect.errors.exception.message"]


@pytest.mark.parametrize("kind", [JsonOrder, ProtobufOrder])
def test_other_formats_have_the_same_columns(
    spark: "SparkSession", broker: Broker, kind: type
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    send(broker, topic, [kind(7, "Milena")])
    rows = frame(spark, broker, topic).select("id", "customer", "_offset")
    assert rows.schema.simpleString() == "struct<id:bigint,customer:string,_offset:bigint>"
    assert [tuple(row) for row in rows.collect()] == [(7, "Milena", 0)]


def test_a_decoded_key_is_a_struct_and_the_value_is_beside_it(
    spark: "SparkSession", broker: Broker
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    settings = {"schema_registry_url": broker.registry_url, "key": Key, "value": JsonOrder}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        producer.send(topic, JsonOrder(1, "Milena"), key=Key("Praha", 5))
    (row,) = frame(spark, broker, topic, decode="key,value").collect()
    assert (row.id, row._key.shop, row._key.number) == (1, "Praha", 5)
    (row,) = frame(spark, broker, topic, decode="key").collect()
    assert row._key.shop == "Praha"
    assert bytes(row._value).endswith(b'"Milena"}')


def test_values_without_an_id_are_read_by_a_file(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = make_topic(broker.bootstrap_servers, "bare")
    text = '{"type":"record","name":"Bare","fields":[{"name":"id","type":"long"}]}'
    (tmp_path / "bare.avsc").write_text(text, encoding="utf-8")
    send_bytes(broker, topic, b"\x02", b"\x0e")
    given = options(broker, topic, decode_framing="none")
    given["decode.schema"] = str(tmp_path / "bare.avsc")
    rows = spark.read.format("ottla").options(**given).load()
    assert [row.id for row in rows.collect()] == [1, 7]


def test_a_stream_continues_and_ends_when_the_subject_grows(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    send(broker, topic, [order(Order, 0)])
    given = options(broker, topic, decode_follow="true", startingOffsets="earliest")
    given["latest.cache.ttl.ms"] = "0"

    def start(**trigger: Any) -> Any:
        rows = spark.readStream.format("ottla").options(**given).load()
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(**trigger).start()

    query = start(processingTime="0 seconds")
    query.processAllAvailable()
    send(broker, topic, [order(NewOrder, 1, note="new")])
    with pytest.raises(Exception, match="has version 2, with new columns note: load the stream"):
        query.awaitTermination(SECONDS_MAX)
    again = start(availableNow=True)
    assert again.awaitTermination(SECONDS_MAX)
    read = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "rows"))
    assert sorted((row.id, row.note) for row in read.collect()) in (
        [(0, None), (1, "new")],
        [(0, None), (1, None)],  # the micro-batch began before the check saw the version
    )


def test_a_field_named_as_a_column_of_the_record_is_refused(
    spark: "SparkSession", broker: Broker
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    text = '{"type":"record","name":"R","fields":[{"name":"_offset","type":"long"}]}'
    with RegistryClient(url=broker.registry_url) as registry:
        registry.register(f"{topic}-value", Schema(text, SchemaType.AVRO))
    with pytest.raises(Exception, match="the schema has a field _offset"):
        frame(spark, broker, topic)


def test_a_missing_subject_is_named(spark: "SparkSession", broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    with pytest.raises(Exception, match=f"the registry has no columns for {topic}-value"):
        frame(spark, broker, topic)
