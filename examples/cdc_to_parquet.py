"""The changes of a PostgreSQL table as Parquet files: `python -m examples.cdc_to_parquet [URL]`.

Two connectors, declared in one file: one captures a table into a topic, the other writes the topic
into files, in a directory for each city. A broker runs in this process, and so does PostgreSQL if
no URL is given. The calls of `run` do the same as `ottla connect run --once`.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import psycopg

from examples.local_postgres import local_postgres
from ottla.pipelines.connect.declaring.declaration import read_declarations
from ottla.pipelines.connect.running import run
from ottla.pipelines.sessions import end_session, spark_session
from ottla.testing import Broker

CONNECTORS = """
bootstrap.servers = "{servers}"

[[connectors]]
name = "orders-capture"
connector.class = "postgres-source"
connection.url = "{url}"
topic.prefix = "shop"
table.include.list = ["public.orders"]
topic.creation.default.partitions = 3

[[connectors]]
name = "orders-files"
connector.class = "files-sink"
topics = ["shop.public.orders"]
value.schema = '''
  op STRING, ts_ms BIGINT,
  before STRUCT<id: INT, city: STRING, price: DECIMAL(10, 2)>,
  after STRUCT<id: INT, city: STRING, price: DECIMAL(10, 2)>
'''
path = "{folder}/orders"
format = "parquet"
partition.by = ["city"]

[[connectors.transforms]]
type = "unwrap"
delete.tombstone.handling.mode = "rewrite"

[[connectors.transforms]]
type = "insert"
offset.field = "position"
"""


def main(spark: Any, url: str, servers: str, folder: Path) -> None:
    """Capture, change, capture again, and compare."""
    file = folder / "orders.toml"
    file.write_text(CONNECTORS.format(servers=servers, url=url, folder=folder), encoding="utf-8")
    connectors = read_declarations(file)
    with psycopg.connect(url, autocommit=True) as shop:
        shop.execute("CREATE TABLE orders (id int PRIMARY KEY, city text, price numeric(10, 2))")
        shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        shop.execute("INSERT INTO orders SELECT n, 'Prague', n * 1.10 FROM generate_series(1, 5) n")
        run(spark, connectors, is_once=True, stop=Event(), say=lambda _: None)
        print(f"{spark.read.parquet(f'{folder}/orders').count()} rows of the table are in files")
        shop.execute("UPDATE orders SET city = 'Berlin', price = price + 1 WHERE id <= 2")
        shop.execute("DELETE FROM orders WHERE id = 5")
        shop.execute("INSERT INTO orders VALUES (6, 'Vienna', 66.60)")
        run(spark, connectors, is_once=True, stop=Event(), say=lambda _: None)
        changes = spark.read.parquet(f"{folder}/orders")
        print(f"{changes.count()} rows and changes are in files")
        print(f"folders: {', '.join(sorted(path.name for path in (folder / 'orders').glob('c*')))}")
        table = shop.execute("SELECT id, city, price FROM orders ORDER BY id").fetchall()
        print(f"the latest of each order are the table: {latest(changes) == table}")


def latest(changes: Any) -> list[tuple[Any, ...]]:
    """Return the current orders, by the last change of each."""
    last = changes.groupBy("id").agg({"position": "max"}).toDF("id", "position")
    rows = changes.join(last, ["id", "position"]).where("NOT __deleted").orderBy("id")
    return [tuple(row) for row in rows.select("id", "city", "price").collect()]


if __name__ == "__main__":
    with ExitStack() as stack:
        broker = stack.enter_context(Broker({"transaction.two.phase.commit.enable": "true"}))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = sys.argv[1] if len(sys.argv) > 1 else stack.enter_context(local_postgres()).url
        spark = spark_session("cdc-to-parquet", is_quick=True)
        stack.callback(end_session, spark)
        main(spark, url, broker.bootstrap_servers, Path(folder))
