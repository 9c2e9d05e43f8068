"""Clusters of three as their users start them: Ottla with a ZooKeeper or a quorum, Apache Kafka."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.broker_process import MeasuredBroker
from ottla.testing.child_process import ChildProcess, ProcessGroup, ReservedPort
from ottla.testing.cluster import Cluster
from tests.interop.kafka_node import CLUSTER_ID, java_command, run_tool

BROKERS: Final = 3
SESSION_MS: Final = 3000
"""The time after which a silent broker is considered dead, in both clusters."""
HEARTBEAT_MS: Final = 500
LOOK_SECONDS: Final = 0.2
START_SECONDS_MAX: Final = 120
ANSWER_SECONDS_MAX: Final = 5
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
}
"""Settings that differ from the brokers' defaults, in both clusters."""
KAFKA_JVM: Final = (
    *("-server", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
"""As Kafka's own start script has it, but for half of the heap: there are three of them."""
_LOGGING: Final = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1}: %m%n%throwable
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
"""


class Node(Protocol):
    """A broker of a cluster, Ottla's or Kafka's."""

    @property
    def pid(self) -> int:
        """Its process."""

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""

    def launch(self) -> None:
        """Start it without waiting."""

    def kill(self) -> None:
        """Kill it."""


@dataclass(frozen=True, slots=True)
class MeasuredCluster:
    """Three brokers, with the measurements that benchmarks take of them."""

    name: str
    nodes: Mapping[int, Node]

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    @property
    def port(self) -> int:
        """The port of a broker that knows all others."""
        return int(self.nodes[1].bootstrap_servers.rpartition(":")[2])

    def cpu_seconds(self) -> dict[int, float]:
        """Return the CPU time of each broker so far."""
        return {
            broker_id: MeasuredBroker(node.pid, 0).cpu_seconds()
            for broker_id, node in self.nodes.items()
        }

    def kill(self, broker_id: int) -> None:
        """Kill a broker."""
        self.nodes[broker_id].kill()

    def terminate(self, broker_id: int) -> None:
        """Ask a broker to stop, and do not wait for it."""
        os.kill(self.nodes[broker_id].pid, signal.SIGTERM)

    def start_again(self, broker_id: int) -> None:
        """Restart a broker, and return when clients' metadata lists all of them."""
        self.nodes[broker_id].launch()
        self.await_all()

    def await_all(self) -> None:
        """Return when clients' metadata lists all brokers."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            assert all(node.is_running for node in self.nodes.values()), f"{self.name}: one ended"
            try:
                if len(admin.list_topics(timeout=ANSWER_SECONDS_MAX).brokers) == BROKERS:
                    return
            except KafkaException:
                pass
            time.sleep(LOOK_SECONDS)
        raise TimeoutError(f"{self.name} does not start")


@contextmanager
def ottla_cluster() -> Iterator[MeasuredCluster]:
    """Run three `ottla start` and a ZooKeeper for the block."""
    settings = {**SETTINGS, "zookeeper.session.timeout.ms": str(SESSION_MS)}
    with Cluster(BROKERS, settings, zookeeper=True) as cluster:
        yield MeasuredCluster("Ottla", cluster.brokers)
        cluster.kill()


@contextmanager
def quorum_cluster() -> Iterator[MeasuredCluster]:
    """Run three `ottla start`, each broker and controller, for the block."""
    sessions = {
        "broker.session.timeout.ms": str(SESSION_MS),
        "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
    }
    with Cluster(BROKERS, {**SETTINGS, **sessions}) as cluster:
        yield MeasuredCluster("Ottla", cluster.brokers)
        cluster.kill()


@contextmanager
def kafka_cluster(folder: Path) -> Iterator[MeasuredCluster]:
    """Run three nodes of Apache Kafka, each broker and controller, for the block."""
    folder.mkdir()
    (folder / "log4j2.properties").write_text(_LOGGING)
    group = ProcessGroup()
    nodes = {number: _KafkaNode(number, folder, group) for number in range(1, BROKERS + 1)}
    voters = ",".join(f"{number}@{node.controller}" for number, node in nodes.items())
    cluster = MeasuredCluster("Kafka", nodes)
    try:
        for node in nodes.values():
            node.format(voters)
        for node in nodes.values():
            node.launch()
        cluster.await_all()
        yield cluster
    finally:
        group.close()
        for node in nodes.values():
            node.release()


class _KafkaNode:
    """A node of Apache Kafka, broker and controller in one process."""

    def __init__(self, number: int, folder: Path, group: ProcessGroup) -> None:
        self._number = number
        self._folder = folder
        self._properties = folder / f"{number}.properties"
        self._ports = ReservedPort(), ReservedPort()
        self._process = ChildProcess(f"Kafka {number}", group, folder / f"{number}.log")
        self.bootstrap_servers, self.controller = (
            f"127.0.0.1:{port.number}" for port in self._ports
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def format(self, voters: str) -> None:
        """Write its settings, and prepare its directory."""
        listeners = f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{self.controller}"
        settings = {
            **SETTINGS,
            "process.roles": "broker,controller",
            "node.id": str(self._number),
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._folder / str(self._number)),
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
        }
        self._properties.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        words = ("format", "-t", CLUSTER_ID, "-c", str(self._properties))
        done = run_tool("kafka.tools.StorageTool", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def launch(self) -> None:
        options = (f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties",)
        properties = str(self._properties)
        self._process.spawn(java_command("kafka.Kafka", properties, options=options, jvm=KAFKA_JVM))

    def kill(self) -> None:
        self._process.kill()

    def release(self) -> None:
        """Release the ports."""
        for port in self._ports:
            port.release()
