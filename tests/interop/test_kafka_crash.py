"""Kafka is killed: Ottla recovers the log dir as Kafka itself would, to the byte."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.exchange import contents, mended, now_ms
from tests.interop.kafka_clients import consume
from tests.interop.kafka_node import KafkaNode, kafka_node
from tests.interop.kafka_story import CONFIG, PARTITIONS, tell_story
from tests.interop.ottla_folder import OttlaFolder, committed, uncommitted
from tests.interop.seen import SeenRecord

Partition = tuple[str, int]


@dataclass
class Killed:
    """Kafka, killed with SIGKILL; the records consumers had read; and a copy of its log dir."""

    node: KafkaNode
    uncommitted: dict[Partition, list[SeenRecord]]
    committed: dict[Partition, list[SeenRecord]]
    left: Path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_node(directory) as node:
        tell_story(node, now_ms() - 3_600_000)
        everything = _consumed(node, "read_uncommitted")
        decided = _consumed(node, "read_committed")
        node.kill()
        left = Path(shutil.copytree(node.logs, directory / "left"))
        yield Killed(node, everything, decided, left)


def _consumed(node: KafkaNode, level: str) -> dict[Partition, list[SeenRecord]]:
    server = node.bootstrap_server
    return {
        (topic, index): consume(server, topic, index, isolation_level=level)
        for topic, index in PARTITIONS
    }


def test_nothing_that_was_acknowledged_is_lost(killed: Killed, tmp_path: Path) -> None:
    logs = Path(shutil.copytree(killed.left, tmp_path / "logs"))
    folder = OttlaFolder(logs, CONFIG, now_ms())

    assert not folder.was_clean
    assert folder.notes == []
    assert {p: uncommitted(folder.log(*p)) for p in PARTITIONS} == killed.uncommitted
    assert {p: committed(folder.log(*p)) for p in PARTITIONS} == killed.committed


def cut_short(path: Path) -> None:
    """Lose the end of the last batch."""
    active = max(path.glob("*.log"))
    active.write_bytes(active.read_bytes()[:-7])


def zeros_behind(path: Path) -> None:
    """Append zeros, as after a crash between extending a file and writing it."""
    active = max(path.glob("*.log"))
    active.write_bytes(active.read_bytes() + bytes(100))


def flipped_bit(path: Path) -> None:
    """Flip a bit of a batch in the last segment but one."""
    segment = sorted(path.glob("*.log"))[-2]
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)


def lost_files(path: Path) -> None:
    """Keep only the batches."""
    for name in ("*index", "*.snapshot", "leader-epoch-checkpoint"):
        for lost in path.glob(name):
            lost.unlink()


def damaged_files(path: Path) -> None:
    """Leave half an entry in indexes, and a wrong checksum in a snapshot.

    Only of the last segments: Kafka trusts indexes that should be durable, and Ottla checks them.
    """
    for suffix in (".index", ".timeindex", ".txnindex"):
        for index in sorted(path.glob("*" + suffix))[-2:]:
            index.write_bytes(index.read_bytes() + b"?")
    snapshot = max(path.glob("*.snapshot"))
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize("tear", [cut_short, zeros_behind, flipped_bit, lost_files, damaged_files])
def test_both_recover_a_torn_folder_to_the_same_files(
    killed: Killed, tmp_path: Path, tear: Callable[[Path], None]
) -> None:
    node = killed.node
    shutil.rmtree(node.logs)
    shutil.copytree(killed.left, node.logs)
    for name in ("plain-0", "transactions-0"):
        tear(node.logs / name)
    torn = Path(shutil.copytree(node.logs, tmp_path / "logs"))
    OttlaFolder(torn, CONFIG, now_ms()).close()
    node.start()
    assert mended(node)
    node.stop()

    assert contents(torn) == contents(node.logs)
