"""Brokers as their users start them, Ottla and Apache Kafka, with the time until they are ready."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.broker_process import MeasuredBroker
from benchmarks.wire_client import WireClient, api_versions_frame, free_port
from tests.interop.kafka_node import JARS, kafka_node
from tools.interop import TESTS, NotHereError, check_java, fetch, fetch_kafka

JVM: Final = (
    "-server",
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""As Kafka's own start script has it."""
GONE_AT_ONCE: Final = {"log.segment.delete.delay.ms": "0"}
"""As in Ottla, deleted topics free their memory for the next round, with either broker."""


class Started(NamedTuple):
    """A broker that responds, and the time since the start of its process."""

    broker: MeasuredBroker
    seconds: float


def has_kafka() -> bool:
    """Return whether Apache Kafka can be measured, fetching it once; if not, print why."""
    try:
        check_java()
        fetch("Apache Kafka", JARS, TESTS / "pom.xml", fetch_kafka)
    except NotHereError as reason:
        print(f"Apache Kafka is not measured: {reason}", flush=True)
        return False
    return True


def kafka_name() -> str:
    """Return its name and version, as its jars have it."""
    versions = (re.fullmatch(r"kafka-clients-(.+)\.jar", path.name) for path in JARS.glob("*"))
    return next((f"Kafka {version[1]}" for version in versions if version), "Kafka")


@contextmanager
def started_ottla(
    folder: str,
    environment: dict[str, str],
    program: str = "ottla.cli.main",
    registry: str = "",
    rest: str = "",
) -> Iterator[Started]:
    """Run `ottla start` for the block, in a directory that it makes.

    It has a schema registry if `registry` is a HOST:PORT, and a REST proxy if `rest` is one.
    """
    port = free_port()
    command = [sys.executable, "-m", program, "start"]
    listeners = ["--listen", f"127.0.0.1:{port}", "-X", "ottla.admin.listener=127.0.0.1:0"]
    listeners += ["-X", f"ottla.schema.registry.listener={registry}"]
    listeners += ["-X", f"ottla.rest.listener={rest}"]
    began = time.perf_counter()
    with subprocess.Popen(
        [*command, *listeners, "--data-dir", folder], stderr=subprocess.DEVNULL, env=environment
    ) as process:
        try:
            yield _answered(process.pid, port, began)
        finally:
            process.terminate()


@contextmanager
def started_kafka(folder: str) -> Iterator[Started]:
    """Run a node of Apache Kafka for the block. Formatting its directory is not timed."""
    with kafka_node(Path(folder), JVM, GONE_AT_ONCE) as node:
        began = time.perf_counter()
        yield _answered(node.launch(), node.port, began)


def _answered(pid: int, port: int, began: float) -> Started:
    client = WireClient.as_soon_as_possible(port)
    client.ask(api_versions_frame())
    seconds = time.perf_counter() - began
    client.close()
    return Started(MeasuredBroker(pid, port), seconds)
