"""The true state of a cluster, from the nodes in ZooKeeper that its brokers use."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.broker.coordinators.consumer_offsets_topic import partition_of_group
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.testing.cluster import Cluster
from tests.cluster.load import WAIT_SECONDS_MAX

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


class Watcher:
    """Looks at a cluster, and waits for conditions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._zookeeper = KazooClient(cluster.zookeeper_connect)
        self._zookeeper.start(WAIT_SECONDS_MAX)

    def close(self) -> None:
        self._zookeeper.stop()
        self._zookeeper.close()

    def create_topic(self, name: str, assignment: Sequence[Sequence[int]], **config: str) -> None:
        """Create a topic with these replicas, the first of which leads, and wait for them.

        Its settings are given with underscores.
        """
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        replicas = [list(row) for row in assignment]
        settings = {setting.replace("_", "."): text for setting, text in config.items()}
        wanted = NewTopic(name, len(replicas), replica_assignment=replicas, config=settings)
        admin.create_topics([wanted])[name].result(WAIT_SECONDS_MAX)
        for partition, brokers in enumerate(replicas):
            self.wait_until(lambda: self.in_sync(name, partition) == set(brokers))

    def delete_topics(self) -> None:
        """Delete the topics of all stories, and wait until their nodes and logs are gone."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        names = [name for name in self._topics() if not name.startswith("__")]
        for deleted in (admin.delete_topics(names) if names else {}).values():
            deleted.result(WAIT_SECONDS_MAX)
        self.wait_until(lambda: set(names).isdisjoint(self._topics()))

    def controller(self) -> int:
        """Return the id of the controller; -1 if there is none."""
        try:
            return int(self._read("/controller")["brokerid"])
        except NoNodeError:
            return -1

    def leader(self, topic: str, partition: int = 0) -> int:
        return int(self._state(topic, partition)["leader"])

    def leader_epochs(self, topic: str, partitions: int) -> list[int]:
        """Return the leader epoch of each partition."""
        return [int(self._state(topic, row)["leader_epoch"]) for row in range(partitions)]

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return set(self._state(topic, partition)["isr"])

    def coordinator(self, group: str) -> int:
        """Return the coordinator of a group."""
        partition = partition_of_group(group, OFFSETS_PARTITIONS)
        return self.leader(CONSUMER_OFFSETS_TOPIC, partition)

    def leads_nothing(self, broker: int) -> bool:
        """Return whether a broker leads no partitions, and is not the controller."""
        return self.controller() not in {broker, -1} and not any(
            self.leader(topic, int(partition)) == broker
            for topic in self._topics()
            for partition in self._read(f"/brokers/topics/{topic}")["partitions"]
        )

    def wait_until_whole(self) -> None:
        """Wait until all brokers run, and every replica is in sync."""
        self._cluster.wait_until_ready()
        self.wait_until(self._all_are_in_sync)

    def wait_until(self, condition: Callable[[], bool]) -> float:
        """Wait for a condition, and return the seconds it took."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < WAIT_SECONDS_MAX, "it does not come to be so"
            time.sleep(0.02)
        return time.monotonic() - began

    def wait_until_replicas_are_equal(self, topic: str, partitions: int) -> None:
        """Wait until the logs of all brokers have the same bytes."""
        folders = [Path(broker.data_dir) for broker in self._cluster.brokers.values()]
        for partition in range(partitions):
            name = f"{topic}-{partition}"
            self.wait_until(lambda: len({_bytes(folder / name) for folder in folders}) == 1)

    def _all_are_in_sync(self) -> bool:
        return all(
            self.in_sync(topic, int(partition)) == set(replicas)
            for topic in self._topics()
            for partition, replicas in self._read(f"/brokers/topics/{topic}")["partitions"].items()
        )

    def _topics(self) -> list[str]:
        topics: list[str] = self._zookeeper.get_children("/brokers/topics")
        return topics

    def _state(self, topic: str, partition: int) -> dict[str, Any]:
        try:
            return self._read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        except NoNodeError:  # it is being made
            return {"leader": -1, "isr": [], "leader_epoch": -1}

    def _read(self, path: str) -> dict[str, Any]:
        content, _ = self._zookeeper.get(path)
        read: dict[str, Any] = json.loads(content)
        return read


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
