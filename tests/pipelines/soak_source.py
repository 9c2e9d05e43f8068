"""Kills the leader of Spark's source topic repeatedly: `python -m tests.pipelines.soak_source`.

Three brokers, a running producer, and a query that copies the topic into Parquet files. In each
round the leader of a partition is killed, and restarted after the query has read more. At the end
every record is in the files, once.
"""

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow.parquet as pq

from ottla import Admin, Producer
from ottla.pipelines.sessions import end_session, spark_session
from ottla.testing import Cluster

SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "2000",
}
TOPIC: Final = "orders"
PARTITIONS: Final = 3
SECONDS_MAX: Final = 180
PAUSE_SECONDS: Final = 0.01


class Sender:
    """Sends numbers, one after another, until it is stopped."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.sent: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "the producer does not end"

    def _send(self) -> None:
        with Producer(bootstrap_servers=self._servers, acks="all") as producer:
            while not self._is_over.wait(PAUSE_SECONDS):
                number = len(self.sent)
                producer.send(TOPIC, str(number), partition=number % PARTITIONS)
                self.sent.append(str(number))


def say(what: str) -> None:
    """Return the progress."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def copied(folder: Path) -> list[str]:
    """Return all rows that the query has written; its own log lists the valid files."""
    log = folder / "copied" / "_spark_metadata"
    names = {
        line.partition('"path":"')[2].partition('"')[0].rpartition("/")[2]
        for entry in (log.iterdir() if log.is_dir() else ())
        if not entry.name.startswith(".")
        for line in entry.read_text().splitlines()
        if '"path":"' in line
    }
    return [
        value.decode()
        for name in names
        for value in pq.read_table(folder / "copied" / name)["value"].to_pylist()
    ]


def wait_until(is_so: Callable[[], bool], query: Any, what: str) -> None:
    """Wait for a condition while the query runs."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def kill_leader(cluster: Cluster, number: int) -> int:
    """Kill the leader of a partition; return its broker id."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        leader = admin.topics.describe(TOPIC)[TOPIC].partitions[number].leader
    cluster.brokers[leader].kill()
    return leader


def soak(rounds: int, folder: Path) -> None:
    """Run it; AssertionError if a record is missing or doubled."""
    spark = spark_session("soak", master="local[2,4]", is_quick=True)
    with Cluster(3, SETTINGS, data_dir=folder / "cluster", zookeeper=True) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.topics.create(TOPIC, partitions=PARTITIONS)
        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers)
        reader = reader.options(subscribe=TOPIC, startingOffsets="earliest")
        writer = reader.schema("value binary").load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.option("path", str(folder / "copied")).start()
        sender = Sender(servers)
        sender.start()
        for number in range(rounds):
            leader = kill_leader(cluster, number % PARTITIONS)
            wanted = len(sender.sent) + 100
            wait_until(lambda: len(copied(folder)) >= wanted, query, "the query does not go on")
            cluster.brokers[leader].start()
            cluster.wait_until_ready()
            say(f"round {number}: broker {leader} was killed, {wanted} records are copied")
        sender.stop()
        wait_until(lambda: len(copied(folder)) >= len(sender.sent), query, "records are missing")
        query.stop()
        assert Counter(copied(folder)) == Counter(sender.sent)
    end_session(spark)
    say(f"{len(sender.sent)} records, each once")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    with TemporaryDirectory() as directory:
        soak(parser.parse_args().rounds, Path(directory))
