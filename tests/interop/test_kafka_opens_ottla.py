"""A real Kafka broker opens log dirs that Ottla wrote, and serves them to a real consumer."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.exchange import (
    contents,
    mended,
    now_ms,
    remove_all_but_logs,
    write_in_place_of_kafka,
)
from tests.interop.kafka_clients import NewRecord, consume, producer, send
from tests.interop.kafka_node import KafkaNode, kafka_node
from tests.interop.ottla_folder import OttlaFolder, committed
from tests.interop.ottla_story import CONFIG, TOPICS, Written, continue_story

each_topic = pytest.mark.parametrize("topic", TOPICS)


@dataclass
class Served:
    """Kafka, serving the logs that Ottla wrote; and the log dir as Ottla left it."""

    node: KafkaNode
    written: dict[str, Written]
    left: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_node(directory) as node:
        written = write_in_place_of_kafka(node)
        left = Path(shutil.copytree(node.logs, directory / "left"))
        node.start()
        yield Served(node, written, left)


@each_topic
def test_a_consumer_gets_every_record(served: Served, topic: str) -> None:
    seen = consume(served.node.bootstrap_server, topic, 0, isolation_level="read_uncommitted")

    assert seen == served.written[topic].records


@each_topic
def test_a_consumer_of_what_is_committed_gets_that(served: Served, topic: str) -> None:
    seen = consume(served.node.bootstrap_server, topic, 0, isolation_level="read_committed")

    assert seen == served.written[topic].committed


def test_kafka_finds_nothing_to_mend(served: Served) -> None:
    assert "Loading logs from log dirs" in served.node.output
    assert mended(served.node) == []


def test_kafka_goes_on_from_the_epochs_that_ottla_noted(served: Served) -> None:
    path = Path("codecs-0", "leader-epoch-checkpoint")
    ours = (served.left / path).read_text().splitlines()[2:]
    theirs = (served.node.logs / path).read_text().splitlines()[2:]

    assert len(ours) == 2
    assert theirs[:2] == ours
    assert [line.split()[1] for line in theirs[2:]] == [str(len(served.written["codecs"].records))]


def test_kafka_leaves_every_file_as_ottla_wrote_it(served: Served) -> None:
    served.node.stop()
    after = contents(served.node.logs)
    served.node.start()

    assert after == contents(served.left) | _of_internal_topics(after)


def test_kafka_makes_the_indexes_and_snapshots_that_ottla_had_made(served: Served) -> None:
    node = served.node
    node.stop()
    remove_all_but_logs(node.logs)
    node.start()
    assert mended(node)
    node.stop()
    after = contents(node.logs)
    node.start()

    assert after == contents(served.left) | _of_internal_topics(after)


def test_both_append_in_turn_and_kafka_serves_it_all(served: Served) -> None:
    node = served.node
    server = node.bootstrap_server
    client = producer(server, enable_idempotence=True, compression_type="zstd")
    send(client, "codecs", 0, [NewRecord(now_ms(), "from Kafka", str(n)) for n in range(50)])
    from_both = consume(server, "codecs", 0)
    node.stop()
    with OttlaFolder(node.logs, CONFIG, now_ms()) as folder:
        written, decided = continue_story(folder)
        visible = committed(decided)
    node.start()

    assert mended(node) == []
    assert from_both[:-50] == served.written["codecs"].records
    assert consume(server, "codecs", 0) == from_both + written.records
    # The transaction that Ottla had left open is committed now.
    assert len(visible) > len(served.written["transactions"].committed)
    assert consume(server, "transactions", 0, isolation_level="read_committed") == visible


def test_kafka_recovers_what_a_crash_of_ottla_left(served: Served) -> None:
    node = served.node
    node.stop()
    shutil.rmtree(node.logs)
    shutil.copytree(served.left, node.logs)
    written, _ = continue_story(OttlaFolder(node.logs, CONFIG, now_ms()))
    node.start()

    assert mended(node)
    server = node.bootstrap_server
    assert consume(server, "codecs", 0) == served.written["codecs"].records + written.records
    for topic in ("stamped", "zipped", "fetched"):
        assert consume(server, topic, 0) == served.written[topic].records


def _of_internal_topics(after: dict[str, object]) -> dict[str, object]:
    """Pick the logs that Kafka made itself, for the clients' groups and transactions."""
    return {name: content for name, content in after.items() if name.startswith("__")}
