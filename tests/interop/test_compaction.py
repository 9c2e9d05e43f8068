"""Kafka and Ottla compact the same log, and Kafka serves the log that Ottla has compacted."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.model.settings.topic_config import CleanupPolicy, TopicConfig
from ottla.runtime.disk import KernelDisk
from tests.interop.dump_rows import batch_rows
from tests.interop.exchange import mended, now_ms
from tests.interop.kafka_clients import (
    NewRecord,
    consume,
    create_topic,
    producer,
    send,
    set_topic_config,
)
from tests.interop.kafka_node import KafkaNode, kafka_node
from tests.interop.kafka_story import CODECS
from tests.interop.ottla_folder import OttlaFolder, committed, uncommitted
from tests.interop.seen import SeenRecord
from tests.unit.storage.compacted_logs import compact

TOPIC = "keys"
LEVELS = ("read_uncommitted", "read_committed")
CLEANED_SECONDS_MAX = 60
CONFIG = {
    TOPIC: TopicConfig(
        cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
        segment_bytes=1500,
        index_interval_bytes=100,
        min_cleanable_dirty_ratio=0.0,
    )
}
# Recompressed by another library, and at another time: these fields may differ.
_OF_ITS_WRITER = ("size", "position", "crc", "deleteHorizonMs")


@dataclass
class Left:
    """The result of a compaction: the records as consumers see them, and the batches."""

    seen_by_level: dict[str, list[SeenRecord]]
    batches: list[dict[str, str]]


@dataclass
class Compacted:
    """Both results for the same log; Ottla worked on a copy of the log dir."""

    node: KafkaNode
    theirs: Left
    ours: Left
    folder: Path


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compacted]:
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_node(directory) as node:
        node.start()
        _write(node.bootstrap_server)
        node.stop()
        folder = Path(shutil.copytree(node.logs, directory / "ottla"))
        ours, dirty_from = _compacted_by_ottla(folder)
        theirs = _compacted_by_kafka(node, dirty_from)
        yield Compacted(node, theirs, ours, folder)


def _write(server: str) -> None:
    """Fill a log that Kafka does not compact yet."""
    create_topic(
        server,
        TOPIC,
        1,
        cleanup_policy="compact",
        internal_segment_bytes="1500",
        index_interval_bytes="100",
        file_delete_delay_ms="0",
        min_compaction_lag_ms=str(10**12),
    )
    start_ms = now_ms() - 100_000
    for number in range(10):
        client = producer(server, compression_type=CODECS[number % len(CODECS)])
        send(client, TOPIC, 0, _round(number, start_ms))
    idempotent = producer(server, enable_idempotence=True)
    for number in range(10, 13):
        send(idempotent, TOPIC, 0, _round(number, start_ms))
    _write_transactions(server, start_ms)
    for number in range(20, 23):
        send(idempotent, TOPIC, 0, [NewRecord(start_ms + number, "last", str(number) * 400)])


def _write_transactions(server: str, start_ms: int) -> None:
    client = producer(server, transactional_id="compacted")
    client.init_transactions(60)
    for number in range(13, 20):
        client.begin_transaction()
        own = NewRecord(start_ms, f"of a transaction {number % 3}", f"{number}" * 5)
        send(client, TOPIC, 0, [own, *_round(number, start_ms)[:2]])
        if number % 2:
            client.abort_transaction(30)
        else:
            client.commit_transaction(30)


def _round(number: int, start_ms: int) -> list[NewRecord]:
    """Give some keys another value, and take the values of others away."""
    return [
        NewRecord(
            start_ms + number * 1000 + key,
            f"key {key}",
            f"round {number} " * 3 if (number + key) % 4 else None,
        )
        for key in range(number % 3, 7)
    ]


def _compacted_by_ottla(directory: Path) -> tuple[Left, int]:
    with OttlaFolder(directory, CONFIG, now_ms()) as folder:
        log = folder.log(TOPIC)
        dirty_from = compact(KernelDisk(), log, now_ms=folder.now_ms)
        seen = dict(zip(LEVELS, (uncommitted(log), committed(log)), strict=True))
        return Left(seen, batch_rows(log)), dirty_from


def _compacted_by_kafka(node: KafkaNode, dirty_from: int) -> Left:
    """Compact with Kafka, and wait until its checkpoint has reached Ottla's."""
    node.start()
    settings = {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.0001"}
    set_topic_config(node.bootstrap_server, TOPIC, settings)
    checkpoint = node.logs / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + CLEANED_SECONDS_MAX
    while f"{TOPIC} 0 {dirty_from}\n" not in checkpoint.read_text():
        assert time.monotonic() < deadline, checkpoint.read_text()
        time.sleep(0.1)
    seen = _consumed(node)
    node.stop()
    return Left(seen, batch_rows(OttlaFolder(node.logs, CONFIG, now_ms()).log(TOPIC)))


def _consumed(node: KafkaNode) -> dict[str, list[SeenRecord]]:
    server = node.bootstrap_server
    return {level: consume(server, TOPIC, 0, isolation_level=level) for level in LEVELS}


def test_the_same_records_are_left(compacted: Compacted) -> None:
    assert compacted.ours.seen_by_level == compacted.theirs.seen_by_level
    assert 5 < len(compacted.ours.seen_by_level["read_uncommitted"]) < 25


def test_the_same_batches_are_left(compacted: Compacted) -> None:
    assert _comparable(compacted.ours.batches) == _comparable(compacted.theirs.batches)


def test_kafka_serves_what_ottla_left(compacted: Compacted) -> None:
    node = compacted.node
    shutil.rmtree(node.logs)
    shutil.copytree(compacted.folder, node.logs)
    node.start()

    assert mended(node) == []
    assert _consumed(node) == compacted.ours.seen_by_level


def _comparable(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Leave out fields that may differ, and the empty batches with which Ottla ends a segment."""
    return [
        {name: value for name, value in row.items() if name not in _OF_ITS_WRITER}
        for row in rows
        if row["count"] != "0" or row["producerId"] != "-1"
    ]
