"""A local cluster with a quorum of controllers: its nodes die, restart and keep their data."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.clients.admin.admin_cluster import QuorumDescription
from ottla.testing import Cluster
from ottla.testing.child_process import ClusterError, wait_until
from ottla.testing.local_quorum import QUORUM_FILE
from tests.clients.cli_calls import refused, rows, text

SECONDS_MAX = 240


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, data_dir=tmp_path_factory.mktemp("cluster")) as running:
        yield running


def quorum(cluster: Cluster) -> QuorumDescription:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return admin.cluster.quorum()


def text_of_controllers(folder: Path) -> str:
    return (folder / QUORUM_FILE).read_text()


def test_three_brokers_are_the_voters(cluster: Cluster) -> None:
    found = quorum(cluster)
    assert [row.replica_id for row in found.voters] == [1, 2, 3]
    assert found.observers == ()
    status = rows("quorum", "status", brokers=cluster.bootstrap_servers)
    assert [row["role"] for row in status["replicas"]] == ["leader", "voter", "voter"]
    assert status["replicas"][0]["node"] == status["leader"]


def test_another_node_leads_after_the_leader_was_killed(cluster: Cluster) -> None:
    leader = quorum(cluster).leader_id
    cluster.brokers[leader].kill()
    others = ",".join(row.bootstrap_servers for row in cluster.brokers.values() if row.is_running)
    with Admin(bootstrap_servers=others) as admin:
        admin.topics.create(f"after-{leader}")
        assert admin.cluster.quorum().leader_id != leader
    cluster.brokers[leader].start()
    cluster.wait_until_ready()
    assert len(quorum(cluster).voters) == 3


def test_a_fourth_broker_observes(cluster: Cluster) -> None:
    number = cluster.add_broker().id
    wait_until(
        lambda: [row.replica_id for row in quorum(cluster).observers] == [number],
        SECONDS_MAX,
        lambda: f"the broker does not observe: {quorum(cluster)}",
    )


def test_a_voter_is_removed_and_votes_again(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    leader = quorum(cluster).leader_id
    number = next(one for one in (1, 2, 3) if one != leader)
    text("quorum", "remove", str(number), brokers=servers)
    assert sorted(row.replica_id for row in quorum(cluster).voters) == sorted({1, 2, 3} - {number})
    assert "does not vote" in refused("quorum", "remove", str(number), brokers=servers)


def test_a_cluster_goes_on_with_its_data_on_the_same_ports(tmp_path: Path) -> None:
    with (
        Cluster(1, data_dir=tmp_path) as first,
        Producer(bootstrap_servers=first.bootstrap_servers) as producer,
    ):
        producer.send("letters", b"Dearest Ottla").result()
    address = text_of_controllers(tmp_path)
    with (
        Cluster(1, data_dir=tmp_path) as second,
        Admin(bootstrap_servers=second.bootstrap_servers) as admin,
    ):
        name = TopicPartition("letters", 0)
        assert admin.offsets.ends([name])[name] == (0, 1)
    assert text_of_controllers(tmp_path) == address


def format_controllers(folder: Path) -> None:
    """Prepare the folder of a cluster, as its first start does."""
    cluster = Cluster(3, data_dir=folder)
    assert cluster.quorum is not None
    cluster.quorum.format(1)


def test_a_folder_belongs_to_one_kind_of_cluster(tmp_path: Path) -> None:
    (tmp_path / "old" / "broker-1").mkdir(parents=True)
    (tmp_path / "old" / "broker-1" / "meta.properties").touch()
    with pytest.raises(ClusterError, match="has a cluster with its metadata in ZooKeeper"):
        Cluster(1, data_dir=tmp_path / "old")
    format_controllers(tmp_path / "new")
    with pytest.raises(ClusterError, match="has a cluster with a quorum of controllers"):
        Cluster(1, data_dir=tmp_path / "new", zookeeper_connect="127.0.0.1:1")
    with pytest.raises(ClusterError, match="has 3 controllers, and cannot run with 2 brokers"):
        Cluster(2, data_dir=tmp_path / "new")


def test_servers_of_a_zookeeper_need_one() -> None:
    with pytest.raises(ClusterError, match="zookeeper_servers belongs to a cluster with zookeeper"):
        Cluster(1, zookeeper_servers=3)
