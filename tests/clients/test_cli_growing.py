"""`ottla partition` and `ottla broker`: a cluster of real processes grows, shrinks and moves."""

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.clients.admin.admin_configs import ConfigResource, ResourceType
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import parse_settings
from ottla.testing import Broker, Cluster
from tests.clients.cli_calls import OTTLA, call, refused, rows

RACKS = ("prague", "berlin", "vienna")
SECONDS_MAX = 240
T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, racks=RACKS, zookeeper=True) as running:
        yield running


@pytest.fixture
def servers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


def eventually(is_so: Callable[[], object]) -> None:
    """Wait for a change that other processes make."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, is_so
        time.sleep(0.05)


def ask(servers: str, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """Look at the cluster from here, which is faster than by a command."""

    async def run() -> T:
        async with ClusterView(parse_settings({}, servers)) as view:
            return await work(AsyncAdmin.over(view))

    return asyncio.run(run())


def partitions(servers: str, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows("partition", "list", *words, brokers=servers)
    return found


def replicas(servers: str, topic: str) -> list[list[int]]:
    described = ask(servers, lambda admin: admin.partitions.describe([topic]))
    return [list(row.replicas) for row in described]


def is_led(servers: str, topic: str) -> bool:
    described = ask(servers, lambda admin: admin.partitions.describe([topic]))
    return all(row.has_leader for row in described)


def dynamic(servers: str, kind: ResourceType, name: str) -> dict[str, str | None]:
    """Return the dynamic settings of a topic or a broker."""
    resource = ConfigResource(kind, name)
    described = ask(servers, lambda admin: admin.configs.describe(resource))[resource]
    return {
        row.name: row.value for row in described.values() if row.source.name.startswith("DYNAMIC")
    }


def broker_row(servers: str, broker_id: int) -> dict[str, Any]:
    listed = rows("broker", "list", brokers=servers)
    return {row["id"]: row for row in listed}.get(broker_id, {})


def create(servers: str, topic: str, assignment: list[list[int]]) -> None:
    """Create a topic with the given replica assignment."""
    admin = AdminClient({"bootstrap.servers": servers})
    shape = NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([shape])[topic].result(SECONDS_MAX)


def plan(topic: str, assignment: list[list[int]], folder: Path) -> Path:
    file = folder / "plan.json"
    names = [
        {"topic": topic, "partition": number, "replicas": row}
        for number, row in enumerate(assignment)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": names}))
    return file


class Load:
    """Numbers that librdkafka writes with acks=all, as long as the block lasts."""

    def __init__(self, servers: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failures: list[KafkaError] = []
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True}
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(SECONDS_MAX) == 0

    def _write(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._told)
            number += 1
            self._producer.poll(0.001)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged.append(int(message.value() or b""))


def everything(servers: str, topic: str, count: int) -> list[int]:
    """Read a topic from its start to its end."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_uncommitted"}
    )
    names = [TopicPartition(topic, number, 0) for number in range(count)]
    consumer.assign(names)
    left = sum(consumer.get_watermark_offsets(name, SECONDS_MAX)[1] for name in names)
    found = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < left:
        assert time.monotonic() < deadline, (len(found), left)
        for message in consumer.consume(500, 1):
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
    consumer.close()
    return found


@contextmanager
def fourth_broker(cluster: Cluster) -> Iterator[str]:
    """Run a fourth broker for the block; a replica left on it at the end is an error."""
    broker = cluster.add_broker()
    others = cluster.bootstrap_servers.rpartition(",")[0]
    try:
        yield others
        broker.stop()
        eventually(lambda: broker_row(others, broker.id)["fenced"])
        removed = ("broker", "remove", str(broker.id))
        asked = f"give --yes to remove broker {broker.id} from the cluster"
        assert asked in refused(*removed, brokers=others, expect=2)
        assert b"would" in call(*removed, "--dry-run", brokers=others).stderr
        assert broker_row(others, broker.id)["fenced"]
        call(*removed, "--yes", brokers=others)
    finally:
        broker.kill()
        broker.release()
        del cluster.brokers[broker.id]
    assert broker_row(others, broker.id) == {}


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_broker_comes_takes_its_share_is_emptied_and_goes_while_records_flow(
    cluster: Cluster, servers: str
) -> None:
    call("topic", "create", "flow", "-p", "8", "-r", "3", brokers=servers)
    with Load(servers, "flow") as load, fourth_broker(cluster) as others:
        eventually(lambda: len(load.acknowledged) > 100)
        moved = rows("partition", "reassign", "flow", "--to", "1,2,3,4", "-w", brokers=others)
        assert {row["status"] for row in moved} == {"done"}
        assert broker_row(others, 4)["replicas"] == 4  # half of its rack's
        call("partition", "elect", "flow", brokers=others)
        assert broker_row(others, 4)["leaders"] == 2
        before = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > before + 100)
        assert "keeps 4 replicas" in refused("broker", "remove", "4", brokers=others)
        asked = refused("broker", "drain", "4", brokers=others, expect=2)
        assert "give --yes to move 4 replicas off broker 4" in asked
        planned = rows("broker", "drain", "4", "--dry-run", brokers=others)
        assert len(planned["partitions"]) == 4
        assert broker_row(others, 4)["replicas"] == 4
        drained = rows("broker", "drain", "4", "--wait", "--yes", brokers=others)
        assert len(drained) == 4
        assert broker_row(others, 4)["replicas"] == 0
        assert "is in service: stop it first" in refused("broker", "remove", "4", brokers=others)
    assert load.failures == []
    assert all(sorted(row) == [1, 2, 3] for row in replicas(servers, "flow"))
    found = everything(servers, "flow", 8)
    assert len(load.acknowledged) > 200
    assert sorted(found) == sorted(load.acknowledged)


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_dry_run_writes_the_plan_that_a_file_gives_back(servers: str, tmp_path: Path) -> None:
    create(servers, "planned", [[1, 2], [2, 1], [1, 2]])
    asked = ("partition", "reassign", "planned", "--to", "1,2,3", "--dry-run")
    written = call(*asked, "--format", "json", brokers=servers).stdout
    assert replicas(servers, "planned") == [[1, 2], [2, 1], [1, 2]]
    file = tmp_path / "again.json"
    file.write_bytes(written)
    call("partition", "reassign", "--file", file, "--wait", brokers=servers)
    spread = replicas(servers, "planned")
    assert sorted(one for row in spread for one in row) == [1, 1, 2, 2, 3, 3]
    assert sorted(row[0] for row in spread) == [1, 2, 3]
    assert rows(*asked[:-1], brokers=servers) == []


@pytest.mark.usefixtures("needs_zookeeper")
def test_the_order_of_replicas_decides_the_election(servers: str, tmp_path: Path) -> None:
    create(servers, "elected", [[2, 3, 1]])
    file = plan("elected", [[3, 2, 1]], tmp_path)
    call("partition", "reassign", "--file", file, "--wait", brokers=servers)
    assert [row["leader"] for row in partitions(servers, "elected", "--not-preferred")] == [2]
    elected = rows("partition", "elect", "--all", brokers=servers)
    assert {"topic": "elected", "partition": 0, "result": "elected"} in elected
    eventually(lambda: not partitions(servers, "elected", "--not-preferred"))
    (row,) = rows("partition", "elect", "elected:0", brokers=servers)
    assert row["result"] == "ELECTION_NOT_NEEDED"


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_throttled_move_is_left_alone_shown_and_taken_back(servers: str) -> None:
    create(servers, "heavy", [[1]])
    call("bench", "produce", "heavy", "--num", "6000", "--size", "1000", brokers=servers)
    words = ["partition", "reassign", "heavy", "--to", "2", "--throttle", "50000"]
    mover = subprocess.Popen([*OTTLA, *words, "-b", servers], stderr=subprocess.PIPE, text=True)
    assert mover.stderr is not None
    assert "1 of 1 partitions move" in mover.stderr.readline()
    mover.send_signal(signal.SIGINT)
    assert "the moves go on" in mover.stderr.read()
    assert mover.wait(SECONDS_MAX) == 130
    mover.stderr.close()
    (row,) = rows("partition", "reassign", "--status", brokers=servers)
    assert (row["adding"], row["removing"]) == ([2], [1])
    assert row["bytes_behind"] > 3_000_000
    throttle = {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    eventually(lambda: dynamic(servers, ResourceType.TOPIC, "heavy") == throttle)
    for broker_id in "12":
        assert set(dynamic(servers, ResourceType.BROKER, broker_id).values()) == {"50000"}
    (row,) = rows("partition", "reassign", "--cancel", brokers=servers)
    assert row["status"] == "cancelled"
    assert replicas(servers, "heavy") == [[1]]
    eventually(lambda: not dynamic(servers, ResourceType.TOPIC, "heavy"))
    for broker_id in "12":
        eventually(lambda: not dynamic(servers, ResourceType.BROKER, broker_id))
    assert rows("partition", "reassign", "--status", brokers=servers) == []


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_throttle_is_gone_when_its_move_is(servers: str) -> None:
    create(servers, "light", [[1]])
    call("produce", "light", brokers=servers, stdin=b"Dearest Ottla\n")
    word = ("--to", "3", "--throttle", "10000000")
    (row,) = rows("partition", "reassign", "light:0", *word, brokers=servers)
    assert row == {
        "topic": "light", "partition": 0, "replicas": [1], "target": [3], "status": "done"
    }  # fmt: skip
    eventually(lambda: not dynamic(servers, ResourceType.TOPIC, "light"))
    for broker_id in "13":
        eventually(lambda: not dynamic(servers, ResourceType.BROKER, broker_id))
    assert call("consume", "light", brokers=servers).stdout == b"Dearest Ottla\n"


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_throttle_that_was_left_behind_is_taken_off(servers: str) -> None:
    create(servers, "left", [[1]])
    entry = "follower.replication.throttled.replicas=0:1"
    call("config", "set", "topic", "left", entry, brokers=servers)
    entry = "follower.replication.throttled.rate=1000000"
    call("config", "set", "broker", "1", entry, brokers=servers)
    assert rows("partition", "reassign", "--status", "--wait", brokers=servers) == []
    eventually(lambda: not dynamic(servers, ResourceType.TOPIC, "left"))
    eventually(lambda: not dynamic(servers, ResourceType.BROKER, "1"))


@pytest.mark.usefixtures("needs_zookeeper")
def test_what_a_broker_that_is_away_leaves_behind_is_listed(cluster: Cluster, servers: str) -> None:
    create(servers, "copied", [[2, 3]])
    create(servers, "single", [[3]])
    kinds = ("--under-replicated", "--under-min-isr", "--offline")
    assert partitions(servers, "copied", "single", *kinds) == []
    cluster.brokers[3].stop()
    eventually(lambda: not is_led(servers, "single"))
    listed = {
        kind: [row["topic"] for row in partitions(servers, "copied", "single", kind)]
        for kind in kinds
    }
    assert listed == {
        "--under-replicated": ["copied", "single"],
        "--under-min-isr": ["copied", "single"],
        "--offline": ["single"],
    }
    unclean = ("partition", "elect", "single", "copied", "--unclean")
    lossy = "give --yes to let a replica that is not in sync lead single-0"
    assert lossy in refused(*unclean, brokers=servers, expect=2)
    (row,) = rows(*unclean, "--dry-run", brokers=servers)
    assert (row["topic"], row["result"]) == ("single", "would be elected")
    assert broker_row(servers, 3)["fenced"]
    assert broker_row(servers, 3)["bytes"] is None
    assert "broker 3 is not in service" in refused(
        "partition", "reassign", "copied", "--to", "1,3", brokers=servers
    )
    cluster.brokers[3].start()
    cluster.wait_until_ready()
    eventually(lambda: not partitions(servers, "copied", "--under-replicated"))


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_replication_factor_that_cannot_be_kept_is_one_sentence(servers: str) -> None:
    call("topic", "create", "tight", "-p", "1", "-r", "3", brokers=servers)
    sentence = refused("broker", "drain", "1", brokers=servers)
    assert sentence.endswith("has 3 replicas, and no other broker can take the replica of broker 1")
    sentence = refused("partition", "reassign", "tight", "--to", "1,2", brokers=servers)
    assert sentence == "tight-0 has 3 replicas: they need as many brokers, not 2"
    assert "there is no broker 9" in refused("broker", "drain", "9", brokers=servers)
    assert "broker 9 is not in" in refused(
        "partition", "reassign", "tight", "--to", "9", brokers=servers
    )
    assert "there is no 7" in refused("partition", "elect", "tight:7", brokers=servers)


def test_a_copy_moves_to_another_folder_of_its_broker(tmp_path: Path) -> None:
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    with Broker({"log.dirs": ",".join(folders)}) as broker:
        servers = broker.bootstrap_servers
        call("topic", "create", "letters", "-p", "1", brokers=servers)
        call("produce", "letters", brokers=servers, stdin=b"Dearest Ottla\n")

        def home() -> list[str]:
            listed = rows("cluster", "logdirs", "--replicas", brokers=servers)
            return [row["log_dir"] for row in listed if row["topic"] == "letters"]

        (target,) = set(folders) - set(home())
        word = ("partition", "move", "letters:0", "--broker", "1", "--log-dir")
        (row,) = rows(*word, target, "--wait", brokers=servers)
        assert (row["log_dir"], row["status"]) == (target, "done")
        assert home() == [target]
        assert call("consume", "letters", brokers=servers).stdout == b"Dearest Ottla\n"
        assert "no directory /nowhere" in refused(*word, "/nowhere", brokers=servers)
        (row,) = rows("broker", "list", brokers=servers)
        assert (row["id"], row["leaders"], row["replicas"]) == (1, 1, 1)
        assert row["bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["partition", "reassign"], "--to 1,2,3"),
        (["partition", "reassign", "letters"], "--file"),
        (["partition", "reassign", "letters", "--to", "one"], "numbers of brokers"),
        (["partition", "reassign", "--status", "--cancel"], "give only one"),
        (["partition", "elect"], "--all"),
        (["partition", "elect", "letters:x"], "TOPIC:0,1"),
        (["partition", "move", "letters", "--broker", "1", "--log-dir", "/d"], "letters:0"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_a_two(arguments: list[str], word: str) -> None:
    assert word in refused(*arguments, "-b", "127.0.0.1:1", expect=2)


def test_a_file_that_is_no_plan_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("letters")
    sentence = refused("partition", "reassign", "--file", file, "-b", "127.0.0.1:1")
    assert sentence.startswith(f"{file} is not a plan: it is not JSON")
