"""A cluster of real processes moves from ZooKeeper to a quorum while clients work."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from ottla.raft.voters import VoterSet
from ottla.testing.child_process import ProcessGroup
from ottla.testing.zookeeper_server import running as running_zookeeper
from tests.cluster.group_member import Member, wait_until_all_is_read
from tests.cluster.load import WAIT_SECONDS_MAX, Load, say
from tests.cluster.quorum_nodes import CONTROLLER, NodeProcess

PARTITIONS = 6
RETENTION = {"retention.ms": "123456789"}
SETTINGS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "zookeeper.session.timeout.ms": "4000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}


class MovingBroker(NodeProcess):
    """A broker that is started with its metadata in ZooKeeper, or in the quorum."""

    in_quorum = False

    def __init__(
        self,
        node_id: int,
        folder: Path,
        group: ProcessGroup,
        hosts: str,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__(node_id, "broker", folder, group, settings)
        self._hosts = hosts

    def options(self, bootstrap_servers: str) -> list[str]:
        found = super().options(bootstrap_servers)
        if self.in_quorum:
            return found
        kept = [
            row
            for row in found[1::2]
            if not row.startswith(("process.roles=", "controller.", "broker."))
        ]
        rows = [*kept, f"zookeeper.connect={self._hosts}"]
        return [word for row in rows for word in ("-X", row)]


class MovingCluster:
    """Three brokers, three controllers that are not started yet, and a ZooKeeper."""

    def __init__(self, folder: Path, hosts: str) -> None:
        self.hosts = hosts
        self.group = ProcessGroup()
        self.brokers = [
            MovingBroker(number, folder, self.group, hosts, SETTINGS) for number in (1, 2, 3)
        ]
        migrating = {
            "zookeeper.connect": hosts,
            "zookeeper.metadata.migration.enable": "true",
            "zookeeper.session.timeout.ms": SETTINGS["zookeeper.session.timeout.ms"],
            "broker.session.timeout.ms": SETTINGS["broker.session.timeout.ms"],
            "broker.heartbeat.interval.ms": SETTINGS["broker.heartbeat.interval.ms"],
            "min.insync.replicas": SETTINGS["min.insync.replicas"],
        }
        self.controllers = [
            NodeProcess(number, "controller", folder, self.group, migrating) for number in (7, 8, 9)
        ]
        self.start(*self.brokers)

    @property
    def servers(self) -> str:
        return ",".join(one.address("PLAINTEXT") for one in self.brokers)

    def start(self, *nodes: NodeProcess) -> None:
        for node in nodes:
            node.launch(",".join(one.address(CONTROLLER) for one in self.controllers))
        for node in nodes:
            node.wait_until_up()

    def start_controllers(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        cluster_id = admin.list_topics(timeout=30).cluster_id
        voters = VoterSet(tuple(one.voter for one in self.controllers))
        for one in self.controllers:
            one.format(str(cluster_id), voters)
        self.start(*self.controllers)
        self.wait_for_phase("dual writes")

    def active(self) -> NodeProcess:
        number = self.status()["controller"]
        return next(one for one in self.controllers if one.id == number)

    def roll(self, broker: MovingBroker, *, in_quorum: bool, is_killed: bool = False) -> None:
        """Restart a broker with the other settings, and wait until all replicas are in sync."""
        if is_killed:
            broker.kill()
        else:
            broker.stop()
        broker.in_quorum = in_quorum
        self.start(broker)
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            topic = admin.list_topics("load", timeout=30).topics["load"]
            if all(len(one.isrs) == len(self.brokers) for one in topic.partitions.values()):
                return
            found = {number: one.isrs for number, one in topic.partitions.items()}
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def call(self, verb: str, *options: str) -> "subprocess.CompletedProcess[str]":
        command = ["cluster", "migration", verb, "--zookeeper", self.hosts, *options]
        return subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", *command],
            capture_output=True,
            text=True,
            check=False,
        )

    def convert(self, folder: Path) -> "subprocess.CompletedProcess[str]":
        other = NodeProcess(10, "controller", folder, self.group, {})
        options = ["--zookeeper", self.hosts, "--yes", *other.options(other.address(CONTROLLER))]
        other.release_ports()
        command = [sys.executable, "-m", "ottla.cli.main", "cluster", "convert", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def status(self) -> dict[str, Any]:
        done = self.call("status", "--format", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def wait_for_phase(self, phase: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while (found := self.status())["phase"] != phase:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def close(self) -> None:
        self.group.close()
        for node in (*self.brokers, *self.controllers):
            node.release_ports()


class Transactions:
    """Writes transactions until the block ends; every second transaction is aborted."""

    def __init__(self, servers: str, topic: str) -> None:
        self.committed: list[str] = []
        self.in_doubt: set[str] = set()
        self.failures: list[str] = []
        self._servers = servers
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, name="transactions", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": "mover",
                "transaction.timeout.ms": 30_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        producer.init_transactions(WAIT_SECONDS_MAX)
        number = 0
        while not self._stopping.is_set():
            number += 1
            self._write_one(producer, number)
            time.sleep(0.05)

    def _write_one(self, producer: Producer, number: int) -> None:
        values = [f"{number}-{part}" for part in range(3)]
        try:
            producer.begin_transaction()
            for part, value in enumerate(values):
                producer.produce(self._topic, value, partition=part)
            if number % 2:
                producer.abort_transaction(WAIT_SECONDS_MAX)
                return
            self.in_doubt.update(values)
            producer.commit_transaction(WAIT_SECONDS_MAX)
            self.in_doubt.difference_update(values)
            self.committed += values
        except KafkaException as error:
            self.failures.append(str(error))
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WAIT_SECONDS_MAX)
            self.in_doubt.difference_update(values)

    def read(self) -> Counter[str]:
        """Return the committed records in the log."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "checker",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([self._topic])
        found: Counter[str] = Counter()
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(WAIT_SECONDS_MAX)
            assert message is not None
            if message.error() is None:
                found[str(message.value(), "utf-8")] += 1
            else:
                ended.add(message.partition())
        consumer.close()
        return found


@contextmanager
def working(folder: Path) -> Iterator[MovingCluster]:
    """Run a cluster under load until the block ends, and look for every record and offset."""
    with ExitStack() as stack:
        cluster = MovingCluster(folder, stack.enter_context(running_zookeeper(folder)).hosts)
        stack.callback(cluster.close)
        admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
        topics = [NewTopic(name, PARTITIONS, 3, config=RETENTION) for name in ("load", "moved")]
        for future in admin.create_topics(topics, operation_timeout=30).values():
            future.result()
        before = described(cluster.servers)
        with (
            Load(cluster.servers, "load", PARTITIONS) as load,
            Member(cluster.servers, "load", "readers") as member,
            Transactions(cluster.servers, "moved") as transactions,
        ):
            yield cluster
            load.goes_on()
            longest = load.longest_silence()
            wait_until_all_is_read([member], load.acknowledged)
        counts = load.counts()
        say(f"{counts}; longest silence {longest:.2f} s; {len(transactions.committed)} committed")
        assert counts.is_perfect, counts
        assert described(cluster.servers) == before
        found = transactions.read()
        assert all(found[value] == 1 for value in transactions.committed)
        assert set(found) <= {*transactions.committed, *transactions.in_doubt}
        assert transactions.committed
        assert member.failed == []
        assert committed(cluster.servers) == ends(member)


def committed(servers: str) -> dict[int, int]:
    """Return the offsets of the group."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    wanted = [TopicPartition("load", number) for number in range(PARTITIONS)]
    found = {one.partition: one.offset for one in consumer.committed(wanted, timeout=30)}
    consumer.close()
    return found


def ends(member: Member) -> dict[int, int]:
    """Return the offsets after the records that were delivered."""
    found: dict[int, int] = {}
    for partition, offset in member.delivered:
        found[partition] = max(offset + 1, found.get(partition, 0))
    return found


def described(servers: str) -> object:
    """Return the cluster id and the settings of the topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    resource = ConfigResource(ResourceType.TOPIC, "load")
    config = admin.describe_configs([resource], request_timeout=30)[resource].result()
    cluster_id = admin.list_topics(timeout=30).cluster_id
    return cluster_id, {name: config[name].value for name in RETENTION}


def create(cluster: MovingCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 3, 3)], operation_timeout=30)[name].result()


def test_a_cluster_moves_under_load(needs_zookeeper: None, tmp_path: Path) -> None:
    with working(tmp_path) as cluster:
        assert cluster.status()["phase"] == "not begun"
        refused = cluster.call("finalize", "--yes")
        assert "the migration is not begun: start controllers" in refused.stderr
        cluster.start_controllers()
        refused = cluster.call("finalize", "--yes")
        assert "the brokers 1, 2, 3 have their metadata in ZooKeeper" in refused.stderr
        for broker in cluster.brokers:
            cluster.roll(broker, in_quorum=True)
            create(cluster, f"after-{broker.id}")
        refused = cluster.convert(tmp_path)
        assert "is dual writes: see ottla cluster migration status" in refused.stderr
        found = cluster.status()
        assert (found["in_zookeeper"], found["in_quorum"]) == ("", "1, 2, 3")
        assert "would" in cluster.call("finalize", "--dry-run").stderr
        done = cluster.call("finalize", "--yes")
        assert done.returncode == 0, done.stderr
        assert cluster.status()["phase"] == "finalized"
        refused = cluster.call("rollback", "--yes")
        assert "ZooKeeper lacks all decisions since then" in refused.stderr


def test_nodes_are_killed_in_every_phase(needs_zookeeper: None, tmp_path: Path) -> None:
    with working(tmp_path) as cluster:
        cluster.start_controllers()
        for broker in cluster.brokers:
            active = cluster.active()
            active.kill()
            cluster.roll(broker, in_quorum=True, is_killed=True)
            cluster.start(active)
        done = cluster.call("finalize", "--yes")
        assert done.returncode == 0, done.stderr
        active = cluster.active()
        active.kill()
        create(cluster, "after-all")
        cluster.start(active)


def test_the_way_back(needs_zookeeper: None, tmp_path: Path) -> None:
    with working(tmp_path) as cluster:
        cluster.start_controllers()
        for broker in cluster.brokers[:2]:
            cluster.roll(broker, in_quorum=True)
        create(cluster, "between")
        for broker in cluster.brokers[:2]:
            cluster.roll(broker, in_quorum=False)
        for controller in cluster.controllers:
            controller.stop()
        done = cluster.call("rollback", "--yes")
        assert done.returncode == 0, done.stderr
        create(cluster, "afterwards")
        assert cluster.status()["controller"] in {1, 2, 3}
