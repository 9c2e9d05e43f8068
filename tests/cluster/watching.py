"""The true state of a cluster, from its committed metadata."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from ottla.broker.coordinators.consumer_offsets_topic import partition_of_group
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.testing.cluster import Cluster
from tests.cluster.load import WAIT_SECONDS_MAX
from tests.cluster.metadata_views import NO_BROKER, view_of

BROKERS = 3
OFFSETS_PARTITIONS = 3
TRANSACTIONS_PARTITIONS = 3
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": str(TRANSACTIONS_PARTITIONS),
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
}
"""A dead broker's session ends soon, so that tests are short."""
OF_QUORUM = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "controller.quorum.auto.join.enable": "true",
}
"""In place of ZooKeeper's session; a wiped controller takes its vote again by itself."""


def settings_of(*, zookeeper: bool) -> dict[str, str]:
    """Return the settings of the brokers, by the place of their metadata."""
    if zookeeper:
        return SETTINGS
    shared = {name: text for name, text in SETTINGS.items() if not name.startswith("zookeeper.")}
    return shared | OF_QUORUM


class Watcher:
    """Looks at a cluster, and waits for conditions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._view = view_of(cluster)

    def close(self) -> None:
        self._view.close()

    def create_topic(self, name: str, assignment: Sequence[Sequence[int]], **config: str) -> None:
        """Create a topic with these replicas, the first of which leads, and wait for them.

        Its settings are given with underscores.
        """
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        replicas = [list(row) for row in assignment]
        settings = {setting.replace("_", "."): text for setting, text in config.items()}
        wanted = NewTopic(name, len(replicas), replica_assignment=replicas, config=settings)
        try:
            admin.create_topics([wanted])[name].result(WAIT_SECONDS_MAX)
        except KafkaException as error:
            # librdkafka repeats a request whose response was lost.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        for partition, brokers in enumerate(replicas):
            self.wait_until(lambda: self.in_sync(name, partition) == set(brokers))

    def delete_topics(self) -> None:
        """Delete the topics of all stories, and wait until their nodes and logs are gone."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        names = [name for name in self._view.topics() if not name.startswith("_")]
        for deleted in (admin.delete_topics(names) if names else {}).values():
            deleted.result(WAIT_SECONDS_MAX)
        self.wait_until(lambda: set(names).isdisjoint(self._view.topics()))

    def elect_preferred(self, topic: str) -> None:
        """Let the first replicas of a topic lead; they must be in sync."""
        with ottla.Admin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            admin.partitions.elect(ottla.ElectionType.PREFERRED, [ottla.TopicPartition(topic, 0)])

    def controller(self) -> int:
        """Return the id of the controller; -1 if there is none."""
        return self._view.controller()

    def leader(self, topic: str, partition: int = 0) -> int:
        return self._view.state(topic, partition).leader

    def leader_epochs(self, topic: str, partitions: int) -> list[int]:
        """Return the leader epoch of each partition."""
        return [self._view.state(topic, row).leader_epoch for row in range(partitions)]

    def in_sync(self, topic: str, partition: int = 0) -> frozenset[int]:
        return self._view.state(topic, partition).in_sync

    def coordinator(self, group: str) -> int:
        """Return the coordinator of a group."""
        partition = partition_of_group(group, OFFSETS_PARTITIONS)
        return self.leader(CONSUMER_OFFSETS_TOPIC, partition)

    def leads_nothing(self, broker: int) -> bool:
        """Return whether a broker leads no partitions, and is not the controller."""
        return self.controller() not in {broker, NO_BROKER} and not any(
            self.leader(topic, partition) == broker
            for topic in self._view.topics()
            for partition in self._view.replicas(topic)
        )

    def wait_until_whole(self) -> None:
        """Wait until all brokers run, all controllers vote, and every replica is in sync."""
        self._cluster.wait_until_ready()
        self.wait_until(self._view.is_whole)
        self.wait_until(self._all_are_in_sync)

    def wait_until(self, condition: Callable[[], bool]) -> float:
        """Wait for a condition, and return the seconds it took."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < WAIT_SECONDS_MAX, "it does not come to be so"
            time.sleep(0.05)
        return time.monotonic() - began

    def wait_until_replicas_are_equal(self, topic: str, partitions: int) -> None:
        """Wait until the logs of all brokers have the same bytes."""
        folders = [Path(broker.data_dir) for broker in self._cluster.brokers.values()]
        for partition in range(partitions):
            name = f"{topic}-{partition}"
            self.wait_until(lambda: len({_bytes(folder / name) for folder in folders}) == 1)

    def _all_are_in_sync(self) -> bool:
        return all(
            self.in_sync(topic, partition) == set(replicas)
            for topic in self._view.topics()
            for partition, replicas in self._view.replicas(topic).items()
        )


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
