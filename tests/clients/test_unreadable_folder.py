"""The marker file of a log dir cannot be read: that dir is offline, and the others serve."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import full_disk
from tests.clients.started_broker import SECONDS_MAX, StartedBroker

TOPIC = "orders"
PARTITIONS = 4
MARK = "meta.properties"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    if missing := full_disk.why_not():
        pytest.skip(missing)
    return full_disk.environ(tmp_path, [])


def settings(*folders: Path) -> tuple[str, ...]:
    return (f"log.dirs={','.join(map(str, folders))}", "ottla.admin.listener=")


def produced(servers: str) -> int:
    """Return to how many of the partitions a record could be written."""
    kept: list[int] = []
    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 2_000, "log_level": 0})
    for number in range(PARTITIONS):
        producer.produce(
            TOPIC,
            b"x",
            partition=number,
            on_delivery=lambda e, m: kept.append(m) if not e else None,
        )
    producer.flush(SECONDS_MAX)
    return len(kept)


@pytest.mark.parametrize(
    ("how", "reads", "told"),
    [("denied", 0, "Errno 13"), ("broken", 0, "Errno 5"), ("broken", 1, "Errno 5")],
)
def test_a_folder_whose_mark_is_unreadable_is_offline_and_the_others_serve(
    tmp_path: Path, environ: dict[str, str], how: str, reads: int, told: str
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    with StartedBroker(tmp_path, *settings(*folders), environ=environ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS_MAX)
        assert produced(broker.bootstrap_servers) == PARTITIONS
    unreadable = folders[1] / f"{MARK}.{how}"
    unreadable.write_bytes(bytes(reads))
    with StartedBroker(tmp_path, *settings(*folders), environ=environ) as broker:
        assert produced(broker.bootstrap_servers) == PARTITIONS // 2
        (line,) = broker.lines(f"{folders[1]} is offline")
        assert told in line
    unreadable.unlink()
    with StartedBroker(tmp_path, *settings(*folders), environ=environ) as broker:
        assert produced(broker.bootstrap_servers) == PARTITIONS


def test_without_any_readable_folder_it_ends_with_one_sentence(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / MARK).write_text("version=1\ncluster.id=c\nnode.id=1\n")
        (folder / f"{MARK}.broken").touch()
    broker = StartedBroker(tmp_path, *settings(*folders), environ=environ)
    assert broker.launch().wait(SECONDS_MAX) == 1
    last = broker.log.read_text().splitlines()[-1]
    assert last == (
        f"ottla: no log directory can be used: {folders[0]}: [Errno 5] Input/output error;"
        f" {folders[1]}: [Errno 5] Input/output error"
    )
    assert "Traceback" not in broker.log.read_text()
