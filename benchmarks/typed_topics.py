"""A topic of Avro orders as columns, in Spark and in a scan, and what Spark itself does with it.

A broker with a registry, in a process of its own, has ten million orders of six fields, in four
partitions. Each session of Spark is in a process of its own, on two cores; rows go to Spark's sink
"noop", which discards them. The peer is Spark's Kafka connector with `from_avro` of spark-avro,
which is given one schema, and the bytes after the registry's prefix. Both are fetched at the first
run; where they cannot be fetched, they are not measured.

`python -m benchmarks.typed_topics CONTENDER SERVERS URL RECORDS` measures one session.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

import ottla
from benchmarks.comparison import MILLION_RECORDS, Case, Peer
from benchmarks.spark_connector import STOCK_NAME, has_stock
from benchmarks.spark_reader import CORES, ROOT, STOCK, our_session, stock_session
from benchmarks.typed_codecs import AVRO, ROWS, SIX_COLUMNS
from ottla import Admin, Producer, RegistryClient
from ottla.clients.schemas.framing import prefix
from ottla.schemas.arrow.avro_arrow import AvroArrowEncoder
from ottla.schemas.avro.avro_schema import parse_avro
from ottla.schemas.schema import Schema, SchemaType
from ottla.testing import Cluster

TITLE = "A topic of Avro orders as columns"
TOPIC: Final = "orders"
PARTITIONS: Final = 4
RECORDS: Final = int(os.environ.get("OTTLA_SPARK_RECORDS", "10000000"))
ROUNDS: Final = 5
PROCESS_SECONDS_MAX: Final = 1800
_PREFIX_BYTES: Final = 5


def cases() -> Iterator[Case]:
    """Yield the rows of the comparison."""
    with Cluster(
        1, {"offsets.topic.replication.factor": "1"}, registries=True, zookeeper=True
    ) as cluster:
        place = cluster.bootstrap_servers, cluster.registry_urls[0]
        fill(*place)
        stock = _measured("stock", *place) if has_stock() else {}
        ours = _measured("ours", *place)
        scans = _measured("scan", *place)
    peers = [_peer(f"{STOCK_NAME} + from_avro", stock, "typed", 1.0)]
    yield _case("Spark reads all columns", ours["typed"], 1.0, *peers)
    peers = [_peer(f"{STOCK_NAME} + from_avro", stock, "narrow", None)]
    yield _case("Spark reads two fields", ours["narrow"], None, *peers)
    yield _case("ottla.scan, all columns", scans["typed"], 2.0)
    yield _case("ottla.scan, two fields", scans["narrow"], None)


def _case(work: str, figures: list[float], asked: float | None, *peers: Peer) -> Case:
    return Case(
        work=work,
        unit=MILLION_RECORDS,
        ours=_nothing,
        peers=tuple(peer for peer in peers if peer.figures),
        figures=tuple(figures),
        asked=asked,
    )


def _peer(name: str, figures: dict[str, list[float]], work: str, asked: float | None) -> Peer:
    return Peer(name, _nothing, asked, tuple(figures.get(work, ())))


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""


def fill(servers: str, registry_url: str) -> None:
    """Write the orders, encoded by columns."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.create(TOPIC, partitions=PARTITIONS)
    text = json.dumps(AVRO)
    with RegistryClient(url=registry_url) as registry:
        number = registry.register(f"{TOPIC}-value", Schema(text, SchemaType.AVRO)).id
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SIX_COLUMNS)
    encoder = AvroArrowEncoder(parse_avro(text), SIX_COLUMNS)
    values = encoder.encode(batch, prefix(number))
    with Producer(bootstrap_servers=servers) as producer:
        sent = 0
        while sent < RECORDS:
            piece = values.slice(0, min(len(values), RECORDS - sent))
            partition = pa.array([sent // len(values) % PARTITIONS] * len(piece), pa.int32())
            rows = pa.RecordBatch.from_pydict({"value": piece, "partition": partition})
            producer.send_arrow(TOPIC, rows).result()
            sent += len(piece)


def _measured(contender: str, *place: str) -> dict[str, list[float]]:
    path = [str(STOCK / "python")] if contender == "stock" else []
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.typed_topics", contender, *place, str(RECORDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)])},
        stdout=subprocess.PIPE,
        timeout=PROCESS_SECONDS_MAX,
        check=True,
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- one session ----------------------------------------------------------------------------------


def main() -> None:
    """Measure one contender, and print its figures as JSON: million records a second."""
    contender, servers, registry_url, records = sys.argv[1:]
    measure = {"ours": _ours, "stock": _stock, "scan": _scans}[contender]
    json.dump(measure(servers, registry_url, int(records)), sys.stdout)


def _in_turns(works: dict[str, Callable[[], object]], records: int) -> dict[str, list[float]]:
    """Measure the works alternately; the first run of each warms up."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(1 + ROUNDS):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if turn:
                found[name].append(records / (time.perf_counter() - began) / 1e6)
    return found


def _ours(servers: str, registry_url: str, records: int) -> dict[str, list[float]]:
    spark, end = our_session()

    def read(schema: str = "") -> None:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", servers)
        reader = reader.option("schema.registry.url", registry_url).option("decode", "value")
        reader = reader.option("subscribe", TOPIC)
        frame = (reader.schema(schema) if schema else reader).load()
        frame.write.format("noop").mode("overwrite").save()

    narrow = "customer string, price double"
    found = _in_turns({"typed": read, "narrow": lambda: read(narrow)}, records)
    end()
    return found


def _stock(servers: str, registry_url: str, records: int) -> dict[str, list[float]]:
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    from pyspark.sql import functions as sql  # noqa: PLC0415
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415

    del registry_url
    with TemporaryDirectory() as folder:
        spark, end = stock_session(folder)

        def read(*names: str) -> None:
            reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
            rows = reader.option("subscribe", TOPIC).load()
            bare = sql.expr(f"substring(value, {_PREFIX_BYTES + 1})")
            rows = rows.select(
                from_avro(bare, json.dumps(AVRO)).alias("value"),
                "key",
                "partition",
                "offset",
                "timestamp",
            )
            wanted = names or ("value.*", "key", "partition", "offset", "timestamp")
            rows.select(*wanted).write.format("noop").mode("overwrite").save()

        narrow = ("value.customer", "value.price")
        found = _in_turns({"typed": read, "narrow": lambda: read(*narrow)}, records)
        end()
    return found


def _scans(servers: str, registry_url: str, records: int) -> dict[str, list[float]]:
    settings: dict[str, Any] = {
        "bootstrap_servers": servers,
        "schema_registry_url": registry_url,
        "decode": "value",
        "threads": CORES,
    }

    def read(columns: list[str] | None) -> None:
        rows = sum(batch.num_rows for batch in ottla.scan(TOPIC, columns=columns, **settings))
        assert rows == records, f"{rows} of {records} records were read"

    return _in_turns(
        {"typed": lambda: read(None), "narrow": lambda: read(["customer", "price"])}, records
    )


if __name__ == "__main__":
    main()
