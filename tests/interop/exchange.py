"""Folders that go from Ottla to Kafka and back, and whether both make the same of them."""

import re
import shutil
import time
from pathlib import Path

from ottla.runtime.disk import KernelDisk
from ottla.storage.files.checkpoints import PARTITION_METADATA_FILE, read_topic_id
from ottla.storage.producers.producer_snapshot import decode_snapshot
from tests.interop.kafka_clients import create_topic
from tests.interop.kafka_node import KafkaNode
from tests.interop.ottla_folder import OttlaFolder
from tests.interop.ottla_story import CONFIG, TOPICS, Written, write_story

_INDEX_SUFFIXES = {".index", ".timeindex", ".txnindex"}
_MENDING = re.compile(
    r"[Rr]ecover(?:ing|ed) |[Rr]ebuil|[Cc]orrupt|[Cc]ould not find|[Oo]rphan|ERROR|Exception"
)
# The controller's own log never has a clean shutdown; the other line is logged at every start.
_HARMLESS = re.compile(r"__cluster_metadata-0|rebuilding producer state from offset")


def write_in_place_of_kafka(node: KafkaNode) -> dict[str, Written]:
    """Create the topics with Kafka, stop it, and write their logs from scratch with Ottla."""
    node.start()
    for topic in TOPICS:
        create_topic(node.bootstrap_server, topic, 1, **_settings(topic))
    node.stop()
    topic_ids = {topic: _take_away(node.logs / f"{topic}-0") for topic in TOPICS}
    with OttlaFolder(node.logs, CONFIG, now_ms()) as folder:
        for topic, topic_id in topic_ids.items():
            folder.create(topic, topic_id)
        return write_story(folder)


def _take_away(directory: Path) -> bytes:
    """Remove the directory of a partition, and return its topic's id."""
    topic_id = read_topic_id(KernelDisk(), str(directory / PARTITION_METADATA_FILE))
    assert topic_id is not None
    shutil.rmtree(directory)
    return topic_id


def _settings(topic: str) -> dict[str, str]:
    config = CONFIG[topic]
    return {
        "internal_segment_bytes": str(config.segment_bytes),
        "segment_ms": str(config.segment_ms),
        "segment_index_bytes": str(config.segment_index_bytes),
        "index_interval_bytes": str(config.index_interval_bytes),
        "message_timestamp_type": str(config.message_timestamp_type),
        "compression_type": config.compression_type,
    }


def now_ms() -> int:
    """Tell the time: Kafka forgets producers that wrote nothing for a day."""
    return int(time.time() * 1000)


def contents(directory: Path) -> dict[str, object]:
    """Read the contents of all files of all logs.

    Snapshots are decoded, as Kafka writes their entries in the order of a hash table.
    """
    found: dict[str, object] = {}
    for path in directory.glob("*/*"):
        name = str(path.relative_to(directory))
        if path.suffix == ".snapshot":
            found[name] = sorted(decode_snapshot(path.read_bytes(), int(path.stem)))
        elif path.suffix == ".log" or path.suffix in _INDEX_SUFFIXES:
            found[name] = path.read_bytes()
    return found


def remove_all_but_logs(directory: Path) -> None:
    """Remove all files that can be rebuilt, and the clean shutdown marker."""
    for path in directory.glob("*/*"):
        if path.suffix == ".snapshot" or path.suffix in _INDEX_SUFFIXES:
            path.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink()


def mended(node: KafkaNode) -> list[str]:
    """Return the log lines in which Kafka reports a repair at its start."""
    lines = node.output.splitlines()
    return [line for line in lines if _MENDING.search(line) and not _HARMLESS.search(line)]
