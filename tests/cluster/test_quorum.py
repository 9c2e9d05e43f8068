"""Nodes of a quorum die under load: no acknowledged record is lost or doubled."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.group_member import Member, wait_until_all_is_read
from tests.cluster.load import Load
from tests.cluster.quorum_nodes import QuorumCluster

BOTH = dict.fromkeys((1, 2, 3), "broker,controller")
APART = {**dict.fromkeys((1, 2, 3), "controller"), **dict.fromkeys((4, 5, 6), "broker")}
PARTITIONS = 6
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "5",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}


@contextmanager
def running(folder: Path, roles: dict[int, str]) -> Iterator[QuorumCluster]:
    with QuorumCluster(folder, roles, SETTINGS) as cluster:
        create_topic(cluster, "load", PARTITIONS)
        yield cluster


def create_topic(cluster: QuorumCluster, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    topic = NewTopic(name, partitions, len(cluster.brokers))
    admin.create_topics([topic], operation_timeout=30, request_timeout=30)[name].result()


def kill_and_return(cluster: QuorumCluster, load: Load) -> None:
    """Kill the active controller, and then a broker; each comes back."""
    for victim in (cluster.active(), cluster.brokers[-1]):
        victim.kill()
        load.goes_on()
        cluster.start(victim)
        load.goes_on()
        wait_until_whole(cluster)


def wait_until_whole(cluster: QuorumCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    deadline = time.monotonic() + 60
    while True:
        topic = admin.list_topics("load", timeout=10).topics["load"]
        if all(len(one.isrs) == len(cluster.brokers) for one in topic.partitions.values()):
            return
        assert time.monotonic() < deadline, {n: one.isrs for n, one in topic.partitions.items()}
        time.sleep(0.05)


@pytest.mark.parametrize("roles", [BOTH, APART], ids=["both-roles", "roles-apart"])
def test_nothing_is_lost_while_controllers_and_brokers_are_killed(
    roles: dict[int, str], tmp_path: Path
) -> None:
    with running(tmp_path, roles) as cluster:
        servers = cluster.servers
        with Member(servers, "load", group="readers") as member:
            with Load(servers, "load", PARTITIONS) as load:
                kill_and_return(cluster, load)
            wait_until_all_is_read([member], load.acknowledged)
        counts = load.counts()
        assert counts.is_perfect, counts
        create_topic(cluster, "afterwards", 3)
        for node in cluster.nodes.values():
            node.stop()
