"""Typed sinks in real Spark: schemas from DataFrames, the three formats, exactly once, refusals."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import functions as sql

import ottla
from ottla import Consumer, Producer, RegistryClient
from ottla.testing import Broker
from tests.pipelines.conftest import SETTINGS
from tests.pipelines.source.reading import make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECONDS_MAX = 120


class Order(msgspec.Struct):
    id: int
    customer: str | None


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def options(broker: Broker, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "schema.registry.url": broker.registry_url,
        "topic": topic,
        "encode": "avro",
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def write(rows: "DataFrame", given: dict[str, str]) -> None:
    rows.write.format("ottla").options(**given).mode("append").save()


def read(broker: Broker, topic: str, decode: str = "value") -> list[dict[str, Any]]:
    """Read the fields and the keys, in the order of ids."""
    scan = ottla.scan(
        topic,
        decode=decode,
        bootstrap_servers=broker.bootstrap_servers,
        schema_registry_url=broker.registry_url,
        isolation_level="read_committed",
    )
    left_out = {"_partition", "_offset", "_timestamp"}
    rows = scan.to_arrow().to_pylist()
    found = [{name: row[name] for name in row if name not in left_out} for row in rows]
    return sorted(found, key=lambda row: (row["id"] is None, row["id"]))


def orders(spark: "SparkSession", count: int = 3) -> "DataFrame":
    return spark.range(count).select(
        "id",
        sql.concat(sql.lit("c"), "id").alias("customer"),
        sql.lit(None).cast("double").alias("x"),
    )


def latest(broker: Broker, subject: str) -> Any:
    with RegistryClient(url=broker.registry_url) as registry:
        return json.loads(registry.latest_version(subject).schema.text)


@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_a_data_frame_is_registered_and_read_again(
    spark: "SparkSession", broker: Broker, form: str
) -> None:
    topic = make_topic(broker.bootstrap_servers, form)
    keyed = orders(spark).withColumn("key", sql.col("id").cast("string"))
    write(keyed, options(broker, topic, encode=form))
    assert read(broker, topic) == [
        {"id": number, "customer": f"c{number}", "x": None, "_key": str(number).encode()}
        for number in range(3)
    ]


def test_nullability_is_registered_and_a_class_reads_the_rows(
    spark: "SparkSession", broker: Broker
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    write(orders(spark).select("id", "customer"), options(broker, topic, encode_name="shop.Order"))
    text = latest(broker, f"{topic}-value")
    assert (text["name"], text["namespace"]) == ("Order", "shop") or text["name"] == "shop.Order"
    assert [field["type"] for field in text["fields"]] == ["long", "string"]
    settings = {"value": Order, "schema_registry_url": broker.registry_url}
    with Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        found: list[Order] = []
        while len(found) < 3:
            found += [record.value for record in consumer.poll(timeout=1)]
    assert sorted(found, key=lambda row: row.id)[1] == Order(1, "c1")


def test_a_struct_value_keeps_tombstones_and_its_key_is_encoded(
    spark: "SparkSession", broker: Broker
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    rows = orders(spark).select(
        sql.struct(sql.col("id").alias("number")).alias("key"),
        sql.expr("if(id = 1, null, struct(id, customer, id AS topic))").alias("value"),
    )
    write(rows, options(broker, topic, encode_key="avro"))
    assert read(broker, topic, "key,value") == [
        {"id": 0, "customer": "c0", "topic": 0, "_key": {"number": 0}},
        {"id": 2, "customer": "c2", "topic": 2, "_key": {"number": 2}},
        {"id": None, "customer": None, "topic": None, "_key": {"number": 1}},
    ]


def test_a_key_of_one_value_has_a_schema_in_avro(spark: "SparkSession", broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    write(orders(spark).withColumn("key", sql.col("id")), options(broker, topic, encode_key="avro"))
    assert latest(broker, f"{topic}-key") == "long"
    assert [row["_key"] for row in read(broker, topic, "key,value")] == [0, 1, 2]


def test_rows_go_to_the_topic_of_their_column_with_its_own_subject(
    spark: "SparkSession", broker: Broker
) -> None:
    topics = [make_topic(broker.bootstrap_servers, "orders") for _ in range(2)]
    given = options(broker, "")
    del given["topic"]
    names = sql.when(sql.col("id") == 1, topics[1]).otherwise(topics[0])
    write(orders(spark).withColumn("topic", names), given)
    assert [[row["id"] for row in read(broker, topic)] for topic in topics] == [[0, 2], [1]]


def test_an_incompatible_data_frame_is_refused_before_it_is_written(
    spark: "SparkSession", broker: Broker
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    write(orders(spark).select("id"), options(broker, topic))
    with pytest.raises(Exception, match=f"subject {topic}-value: .*id"):
        write(orders(spark).select(sql.lit("text").alias("id")), options(broker, topic))
    assert len(read(broker, topic)) == 3


def test_without_registration_the_schema_must_be_in_the_registry(
    spark: "SparkSession", broker: Broker
) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    given = options(broker, topic, auto_register_schemas="false")
    with pytest.raises(Exception, match=f"subject {topic}-value: "):
        write(orders(spark, 1), given)
    write(orders(spark, 1), options(broker, topic))
    write(orders(spark, 1), given)
    assert len(read(broker, topic)) == 2


def test_the_latest_version_can_be_used_as_it_is(spark: "SparkSession", broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, "orders")
    settings = {"value": Order, "schema_registry_url": broker.registry_url}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        producer.send(topic, Order(7, None))
    write(orders(spark, 1).select("id"), options(broker, topic, use_latest_version="true"))
    with RegistryClient(url=broker.registry_url) as registry:
        assert registry.versions(f"{topic}-value") == [1]
    assert [row["id"] for row in read(broker, topic)] == [0, 7]


def test_a_typed_topic_is_copied_exactly_once(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic, copy = (make_topic(broker.bootstrap_servers, "orders") for _ in range(2))
    settings = {"value": Order, "schema_registry_url": broker.registry_url}
    given = options(broker, copy, exactlyOnce="true")
    for run in range(2):
        with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
            for number in range(3):
                producer.send(topic, Order(3 * run + number, "c"), key=b"k")
        reader = spark.readStream.format("ottla").option("decode", "value")
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        same = {name: given[name] for name in ("kafka.bootstrap.servers", "schema.registry.url")}
        writer = reader.options(**same).load().writeStream.format("ottla").options(**given)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(SECONDS_MAX)
    assert read(broker, copy) == [
        {"id": number, "customer": "c", "_key": b"k"} for number in range(6)
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encode": "xml"}, "expected one of avro, json, protobuf"),
        ({"schema.registry.url": None}, "encode needs schema.registry.url"),
        ({"encode": None}, "needs the option encode"),
        ({"encode.key": "avro"}, "encode.key needs a column key"),
        ({"topic": None}, "no topic"),
        ({"encod.subject": "a"}, "did you mean encode.subject"),
    ],
)
def test_a_wrong_option_is_named(
    spark: "SparkSession", broker: Broker, changed: dict[str, str | None], message: str
) -> None:
    from ottla.pipelines.sink.errors import SinkOptionError  # noqa: PLC0415
    from ottla.pipelines.sink.options import read_options  # noqa: PLC0415

    given = {**options(broker, "orders"), **changed}
    found = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(SinkOptionError, match=message):
        read_options(found, orders(spark).schema)
