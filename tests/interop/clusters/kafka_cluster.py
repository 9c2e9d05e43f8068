"""A Kafka cluster on loopback: controllers and brokers in processes of their own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.interop.kafka_node import KafkaServer, free_ports

FIRST_CONTROLLER_ID: Final = 101
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
PROPERTIES: Final = """\
node.id={node_id}
process.roles={role}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={bootstrap}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
listeners={listener}://127.0.0.1:{port}
log.dirs={directory}/logs
metadata.log.dir={directory}/metadata
auto.create.topics.enable=false
controlled.shutdown.retry.backoff.ms=200
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=2097152
offsets.topic.num.partitions=2
transaction.state.log.num.partitions=2
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


class KafkaCluster:
    """Nodes that are formatted, and started one by one or all together."""

    def __init__(
        self,
        directory: Path,
        *,
        controllers: int,
        brokers: int,
        settings: Mapping[str, str],
        controller_settings: Mapping[str, str],
        classes: Path | None,
    ) -> None:
        ports = free_ports(controllers + brokers)
        self.port_by_controller = {
            FIRST_CONTROLLER_ID + number: ports[number] for number in range(controllers)
        }
        self.port_by_broker = {1 + number: ports[controllers + number] for number in range(brokers)}
        replicas = str(min(brokers, 3))
        common = {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            **settings,
        }
        self.nodes: dict[int, KafkaServer] = {}
        for role, port_by_node, more in (
            ("controller", self.port_by_controller, controller_settings),
            ("broker", self.port_by_broker, NO_SETTINGS),
        ):
            for node_id, port in port_by_node.items():
                folder = directory / f"{role}-{node_id}"
                text = PROPERTIES.format(
                    node_id=node_id,
                    role=role,
                    bootstrap=self.controllers,
                    listener="CONTROLLER" if role == "controller" else "PLAINTEXT",
                    port=port,
                    directory=folder,
                )
                lines = {**common, **more}.items()
                text += "".join(f"{name}={value}\n" for name, value in lines)
                node = KafkaServer(folder, text, classes=classes)
                node.format(*(("--standalone",) if role == "controller" else ()))
                self.nodes[node_id] = node

    @property
    def controllers(self) -> str:
        """The addresses of the controllers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.port_by_controller.values())

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.port_by_broker.values())

    @property
    def metadata_dir(self) -> Path:
        """The metadata directory of the first controller."""
        return self.nodes[FIRST_CONTROLLER_ID].directory / "metadata"

    def start(self) -> None:
        """Start all nodes and wait until every broker answers."""
        for node in self.nodes.values():
            node.launch()
        for node_id, port in self.port_by_broker.items():
            self.nodes[node_id].await_broker(port)

    def stop(self) -> None:
        """Shut all nodes down cleanly, brokers first."""
        for node_id in (*self.port_by_broker, *self.port_by_controller):
            self.nodes[node_id].stop()

    def kill(self) -> None:
        """End all nodes that run."""
        for node in self.nodes.values():
            node.kill()


@contextmanager
def kafka_cluster(
    directory: Path,
    *,
    brokers: int,
    settings: Mapping[str, str] = NO_SETTINGS,
    controller_settings: Mapping[str, str] = NO_SETTINGS,
    classes: Path | None = None,
) -> Iterator[KafkaCluster]:
    """Yield a cluster with one controller that is not started yet; kill it at the end."""
    cluster = KafkaCluster(
        directory,
        controllers=1,
        brokers=brokers,
        settings=settings,
        controller_settings=controller_settings,
        classes=classes,
    )
    try:
        yield cluster
    finally:
        cluster.kill()
