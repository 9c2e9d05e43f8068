"""Connectors with converters that use the schema registry, as a file declares them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import ottla
from examples.local_postgres import LocalPostgres
from ottla import Producer
from ottla.pipelines.connect import ConnectorError, SinkConnector
from ottla.pipelines.connect.declaring.declaration import read_declarations
from ottla.pipelines.connect.running import run
from ottla.testing import Broker
from tests.pipelines.conftest import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

seen: list[Any] = []


class Order(msgspec.Struct):
    id: int
    customer: str


class Memory(SinkConnector):
    """A sink that remembers its rows."""

    def write(self, batch: "DataFrame", batch_id: int) -> None:
        seen.extend(tuple(row) for row in batch.select("key", "value", "offset").collect())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def run_once(spark: "SparkSession", folder: Path, declaration: str) -> None:
    file = folder / "connectors.toml"
    file.write_text(declaration, encoding="utf-8")
    run(spark, read_declarations(file), is_once=True, stop=Event(), say=lambda _: None)


def top(broker: Broker, converter: str = "avro") -> str:
    return (
        f'bootstrap.servers = "{broker.bootstrap_servers}"\n'
        f'registry.url = "{broker.registry_url}"\nvalue.converter = "{converter}"\n'
    )


def rows_of(broker: Broker, topic: str) -> list[dict[str, Any]]:
    scan = ottla.scan(
        topic,
        decode="value",
        bootstrap_servers=broker.bootstrap_servers,
        schema_registry_url=broker.registry_url,
        isolation_level="read_committed",
    )
    left_out = {"_partition", "_offset", "_timestamp", "_key"}
    return [
        {name: row[name] for name in row if name not in left_out}
        for row in scan.to_arrow().to_pylist()
    ]


@pytest.mark.parametrize("converter", ["avro", "json-schema", "protobuf"])
def test_a_source_writes_values_of_a_registered_schema(
    spark: "SparkSession", broker: Broker, tmp_path: Path, converter: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first.json").write_text('{"id":1,"words":"a"}\n', encoding="utf-8")
    topic = f"letters-{converter}"
    run_once(
        spark,
        tmp_path,
        f'{top(broker, converter)}name = "in"\nconnector.class = "files-source"\n'
        f'path = "{tmp_path}/in"\nformat = "json"\nschema = "id INT, words STRING"\n'
        f'topic = "{topic}"\nkey.fields = ["id"]\n',
    )
    assert rows_of(broker, topic) == [{"id": 1, "words": "a"}]


def test_a_sink_gets_fields_tombstones_and_no_bad_records(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    settings = {"value": Order, "schema_registry_url": broker.registry_url}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        producer.send("orders", Order(1, "Milena"), key="1")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", None, key="1")
        producer.send("orders", "bad", key="2")
    sink = f'{top(broker)}connector.class = "{__name__}:Memory"\ntopics = ["orders"]\n'
    with pytest.raises(ConnectorError, match="orders-0 offset 2: the value cannot be decoded"):
        run_once(spark, tmp_path, f'{sink}name = "strict"\n')
    seen.clear()
    run_once(spark, tmp_path, f'{sink}name = "tolerant"\nerrors.tolerance = "all"\n')
    assert [(key, value and tuple(value), offset) for key, value, offset in seen] == [
        ("1", (1, "Milena"), 0),
        ("1", None, 1),
    ]


def test_changes_of_a_database_are_written_as_avro(
    spark: "SparkSession", broker: Broker, postgres: LocalPostgres, tmp_path: Path
) -> None:
    with postgres.database("typed_capture") as connection:
        connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT)")
        connection.execute("INSERT INTO orders VALUES (1, 'new')")
        url = postgres.url_of("typed_capture")
        run_once(
            spark,
            tmp_path,
            f'{top(broker)}name = "capture"\nconnector.class = "postgres-source"\n'
            f'connection.url = "{url}"\ntopic.prefix = "shop"\n'
            'table.include.list = ["public.orders"]\n'
            'value.schema = "op STRING, after STRUCT<id: BIGINT, state: STRING>"\n',
        )
    (row,) = rows_of(broker, "shop.public.orders")
    assert row == {"op": "r", "after": {"id": 1, "state": "new"}}


def test_the_schemas_of_a_database_are_those_of_its_tables(
    spark: "SparkSession", broker: Broker, postgres: LocalPostgres, tmp_path: Path
) -> None:
    with postgres.database("derived_capture") as connection:
        connection.execute("CREATE TABLE bills (id BIGINT PRIMARY KEY, at TIMESTAMPTZ)")
        connection.execute("CREATE TABLE people (name TEXT PRIMARY KEY, likes TEXT[])")
        connection.execute("INSERT INTO bills VALUES (1, '2026-11-15 21:30:00+00')")
        connection.execute("INSERT INTO people VALUES ('Milena', '{tea}')")
        run_once(
            spark,
            tmp_path,
            f'{top(broker)}name = "derived"\nconnector.class = "postgres-source"\n'
            f'connection.url = "{postgres.url_of("derived_capture")}"\ntopic.prefix = "firm"\n'
            'key.converter = "avro"\n'
            '[[transforms]]\ntype = "route"\nregex = "firm.public.(.*)"\nreplacement = "$1"\n',
        )
    (bill,) = rows_of(broker, "bills")
    (person,) = rows_of(broker, "people")
    assert bill["after"] == {"id": 1, "at": datetime(2026, 11, 15, 21, 30, tzinfo=UTC)}
    assert person["after"] == {"name": "Milena", "likes": ["tea"]}


def test_a_missing_setting_is_named(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match=r"registry\.url: is missing"):
        run_once(
            spark,
            tmp_path,
            f'bootstrap.servers = "{broker.bootstrap_servers}"\nvalue.converter = "avro"\n'
            f'name = "none"\nconnector.class = "{__name__}:Memory"\ntopics = ["orders"]\n',
        )
