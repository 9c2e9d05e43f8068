"""A query to be run on a cluster: it adds up amounts by customer and window, exactly once.

As a program it is a driver: `python -m tests.pipelines.clusters.windows MASTER SERVERS FOLDER
RECORDS_PER_BATCH` ends when everything that is in the topic has been added up.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ottla import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "orders"
TARGET = "totals"
PARTITIONS = 3
CUSTOMERS = 7
WINDOW_SECONDS = 10
LATE_SECONDS = 60
END_SECONDS = 10_000_000
"""The time of the last record of each partition, which ends all windows before it."""
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A quick start: of the compilers only C1, and one thread that collects garbage."""
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def create(servers: str, records: int) -> list[str]:
    """Create both topics and fill the first; return the expected rows of the second, sorted."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.create(SOURCE, partitions=PARTITIONS)
        admin.topics.create(TARGET, partitions=PARTITIONS)
    counts: Counter[tuple[str, int]] = Counter()
    totals: Counter[tuple[str, int]] = Counter()
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        for second in range(records):
            customer, amount = f"c{second % CUSTOMERS}", second * 31 % 1_000
            group = customer, second - second % WINDOW_SECONDS
            counts[group] += 1
            totals[group] += amount
            partition = second % PARTITIONS
            producer.send(SOURCE, f"{second},{amount}", key=customer, partition=partition)
        for partition in range(PARTITIONS):
            producer.send(SOURCE, f"{END_SECONDS},0", key="end", partition=partition)
    return sorted(
        f"{customer},{start},{counts[customer, start]},{total}"
        for (customer, start), total in totals.items()
    )


def run_once(spark: "SparkSession", servers: str, folder: Path, batch_records: int) -> None:
    """Process the new records of the first topic into the second; raise if the query fails."""
    from pyspark.sql.functions import expr, window  # noqa: PLC0415 - only the driver needs Spark

    orders = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .options(subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger=batch_records)
        .load()
        .selectExpr("CAST(key AS string) AS customer", "split(CAST(value AS string), ',') AS v")
        .selectExpr("customer", "timestamp_seconds(CAST(v[0] AS bigint)) AS at", "v[1] AS amount")
    )
    totals = (
        orders.withWatermark("at", f"{LATE_SECONDS} seconds")
        .groupBy(window("at", f"{WINDOW_SECONDS} seconds").alias("w"), "customer")
        .agg(expr("count(*) AS records"), expr("sum(CAST(amount AS bigint)) AS total"))
        .selectExpr(
            "customer AS key",
            "concat_ws(',', customer, unix_seconds(w.start), records, total) AS value",
        )
    )
    query = (
        totals.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .options(topic=TARGET, exactlyOnce="true")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    """Run as a driver."""
    from ottla.pipelines.sessions import end_session, spark_session  # noqa: PLC0415

    master, servers, name, batch_records = sys.argv[1:]
    settings = SETTINGS | {"spark.local.dir": f"{name}/local"}
    spark = spark_session("totals", master=master, settings=settings, is_quick=True)
    run_once(spark, servers, Path(name), int(batch_records))
    end_session(spark)


if __name__ == "__main__":
    main()
