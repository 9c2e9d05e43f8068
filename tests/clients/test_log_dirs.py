"""Two log dirs: how clients see them, and partitions that move between them."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.clients.raw_requests import ask

SECONDS_MAX = 240
MOVED_SECONDS_MAX = 90
"""A flush of each batch takes long on a busy disk."""
PAUSE_SECONDS = 0.02
"""Limits a writer to 2.5 MB a second: a copy never ends while a writer is faster than the disk."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with two_folders(tmp_path) as running:
        yield running


def two_folders(path: Path) -> Broker:
    return Broker({"log.dirs": f"{path / 'a'},{path / 'b'}"})


def describe(broker: Broker, *topics: str, version: int = 4) -> Any:
    """Return the log dirs by their names."""
    wanted = [DescribableLogDirTopic(topic=name, partitions=[0]) for name in topics] or None
    request = DescribeLogDirsRequest(topics=wanted)
    answer = ask(broker.bootstrap_servers, ApiKey.DESCRIBE_LOG_DIRS, version, request)
    return {Path(folder.log_dir).name: folder for folder in answer.results}


def place(broker: Broker, topic: str) -> dict[str, Any]:
    """Return the description of a topic's first partition, by log dir."""
    return {
        name: partition
        for name, folder in describe(broker, topic).items()
        for found in folder.topics
        for partition in found.partitions
    }


def move(broker: Broker, topic: str, path: Path | str, *, index: int = 0) -> ErrorCode:
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[wanted])])
    answer = ask(broker.bootstrap_servers, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request)
    (result,) = answer.results
    assert result.topic_name == topic
    assert result.partitions[0].partition_index == index
    return ErrorCode(result.partitions[0].error_code)


def create(broker: Broker, *topics: str) -> None:
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in topics]
    request = CreateTopicsRequest(topics=wanted)
    answer = ask(broker.bootstrap_servers, ApiKey.CREATE_TOPICS, 7, request)
    assert [topic.error_code for topic in answer.topics] == [0] * len(topics)


def produce(broker: Broker, topic: str, count: int, *, size: int = 1000) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number + b"x" * size)
    assert producer.flush(SECONDS_MAX) == 0


def numbers(broker: Broker, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), SECONDS_MAX)
        assert messages, f"only {len(found)} of {count} came"
        assert not any(message.error() for message in messages)
        found += [int((message.value() or b"").split(b"x")[0]) for message in messages]
    consumer.close()
    return found


def until_moved(broker: Broker, topic: str, folder: str) -> None:
    deadline = time.monotonic() + MOVED_SECONDS_MAX
    while time.monotonic() < deadline:
        found = place(broker, topic)
        if list(found) == [folder] and not found[folder].is_future_key:
            return
    raise AssertionError(f"{topic} does not arrive in {folder}: {found}")


def other(folder: str) -> str:
    return "b" if folder == "a" else "a"


class Writer(threading.Thread):
    """An idempotent producer that writes numbers until it is stopped."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__()
        self.count = 0
        self.errors: list[object] = []
        self._topic = topic
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self._is_over.is_set():
            for _ in range(100):
                self._producer.produce(
                    self._topic, b"%dx" % self.count + b"x" * 500, on_delivery=self._on_delivery
                )
                self.count += 1
            self._producer.flush(SECONDS_MAX)
            self._is_over.wait(PAUSE_SECONDS)

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self.errors.append(error)

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def test_folders_tell_what_is_in_them_and_how_much_room_they_have(broker: Broker) -> None:
    create(broker, "here", "there")
    produce(broker, "here", 10)
    folders = describe(broker)
    assert list(folders) == ["a", "b"]
    for folder in folders.values():
        assert folder.error_code == 0
        assert 0 < folder.usable_bytes < folder.total_bytes
        assert len(folder.topics) == 1
    (partition,) = place(broker, "here").values()
    assert partition.partition_size > 10_000
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    assert place(broker, "nowhere") == {}
    assert describe(broker, version=1)["a"].total_bytes == -1


@pytest.mark.parametrize("flush_messages", ["1", str(2**63 - 1)])
def test_a_partition_moves_while_it_is_written_without_an_error(
    tmp_path: Path, flush_messages: str
) -> None:
    settings = {
        "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}",
        "log.flush.interval.messages": flush_messages,
        "log.segment.bytes": str(1 << 20),
    }
    with Broker(settings) as broker:
        create(broker, "moving")
        (folder,) = place(broker, "moving")
        writer = Writer(broker, "moving")
        writer.start()
        for _ in range(4):
            folder = other(folder)
            assert move(broker, "moving", tmp_path / folder) is ErrorCode.NONE
            until_moved(broker, "moving", folder)
        writer.stop()
        assert writer.errors == []
        assert numbers(broker, "moving", writer.count) == list(range(writer.count))
        broker.restart()
        assert list(place(broker, "moving")) == [folder]
        assert numbers(broker, "moving", writer.count) == list(range(writer.count))
    names = [path.name for part in "ab" for path in (tmp_path / part).glob("moving*")]
    assert names == ["moving-0"], "the old ones are gone"


def test_a_broker_that_stops_goes_on_with_a_move_when_it_starts_again(
    broker: Broker, tmp_path: Path
) -> None:
    create(broker, "slow")
    produce(broker, "slow", 20_000)
    (folder,) = place(broker, "slow")
    assert move(broker, "slow", tmp_path / other(folder)) is ErrorCode.NONE
    broker.restart()
    until_moved(broker, "slow", other(folder))
    assert numbers(broker, "slow", 20_000) == list(range(20_000))


def test_a_throttled_move_takes_its_time(broker: Broker, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    rate = ConfigEntry(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        str(4 << 20),
        incremental_operation=AlterConfigOpType.SET,
    )
    every = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[rate])
    admin.incremental_alter_configs([every])[every].result(SECONDS_MAX)
    create(broker, "heavy")
    produce(broker, "heavy", 12_000)
    (folder,) = place(broker, "heavy")
    began = time.monotonic()
    assert move(broker, "heavy", tmp_path / other(folder)) is ErrorCode.NONE
    while list(place(broker, "heavy")) != [other(folder)]:
        assert time.monotonic() - began < 60
        time.sleep(0.05)
    assert time.monotonic() - began > 1.0, "12 MB at 4 MB a second"
    assert numbers(broker, "heavy", 12_000) == list(range(12_000))


def test_a_partition_can_be_moved_where_it_is(broker: Broker, tmp_path: Path) -> None:
    create(broker, "staying")
    (folder,) = place(broker, "staying")
    assert move(broker, "staying", tmp_path / folder) is ErrorCode.NONE
    assert list(place(broker, "staying")) == [folder]


def test_moving_back_gives_the_copy_up(broker: Broker, tmp_path: Path) -> None:
    create(broker, "undecided")
    produce(broker, "undecided", 20_000)
    (folder,) = place(broker, "undecided")
    for _ in range(3):
        assert move(broker, "undecided", tmp_path / other(folder)) is ErrorCode.NONE
        assert move(broker, "undecided", tmp_path / folder) is ErrorCode.NONE
    until_moved(broker, "undecided", folder)
    assert len(numbers(broker, "undecided", 20_000)) == 20_000


def test_a_topic_that_is_deleted_on_its_way_is_gone_from_both_folders(
    broker: Broker, tmp_path: Path
) -> None:
    create(broker, "doomed")
    produce(broker, "doomed", 20_000)
    (folder,) = place(broker, "doomed")
    assert move(broker, "doomed", tmp_path / other(folder)) is ErrorCode.NONE
    request = DeleteTopicsRequest(topic_names=["doomed"])
    ask(broker.bootstrap_servers, ApiKey.DELETE_TOPICS, 5, request)
    assert place(broker, "doomed") == {}
    create(broker, "doomed")
    produce(broker, "doomed", 1)
    assert numbers(broker, "doomed", 1) == [0]


def test_what_cannot_be_moved_is_told(broker: Broker, tmp_path: Path) -> None:
    long = "n" * 249
    create(broker, "known", long)
    assert move(broker, "known", "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert move(broker, "unknown", tmp_path / "a") is ErrorCode.REPLICA_NOT_AVAILABLE
    assert move(broker, "known", tmp_path / "a", index=9) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert move(broker, long, tmp_path / "a") is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_with_the_longest_name_can_be_deleted(broker: Broker) -> None:
    long = "n" * 249
    create(broker, long)
    request = DeleteTopicsRequest(topic_names=[long])
    answer = ask(broker.bootstrap_servers, ApiKey.DELETE_TOPICS, 5, request)
    assert [topic.error_code for topic in answer.responses] == [0]
    create(broker, long)


# -- one broker per log dir -----------------------------------------------------------------------


def test_a_second_broker_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with two_folders(tmp_path) as first:
        with pytest.raises(OSError, match=r"/b is in use") as refusal:
            Broker({"log.dirs": str(tmp_path / "b")}).start()
        assert "\n" not in str(refusal.value)
        create(first, "goes-on")
    with two_folders(tmp_path) as again:
        produce(again, "goes-on", 1)


def test_a_killed_broker_leaves_no_lock(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = (
        "import pathlib, signal; from ottla.testing import Broker;"
        f"b = Broker(data_dir={str(tmp_path / 'data')!r}); b.start();"
        f"pathlib.Path({str(ready)!r}).mkdir(); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    while not ready.exists():
        assert process.poll() is None
        os.sched_yield()
    with pytest.raises(OSError, match="is in use"):
        Broker(data_dir=tmp_path / "data").start()
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Broker(data_dir=tmp_path / "data") as broker:
        create(broker, "works")


def test_a_broker_starts_without_a_folder_that_cannot_be_used(
    broker: Broker, tmp_path: Path
) -> None:
    create(broker, "one", "two")
    names = {next(iter(place(broker, name))): name for name in ("one", "two")}
    for name in names.values():
        produce(broker, name, 10)
    broker.stop()
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").touch()
    broker.start()
    folders = describe(broker)
    assert [ErrorCode(folders[name].error_code) for name in "ab"] == [
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
    assert numbers(broker, names["a"], 10) == list(range(10))
    create(broker, "three")
    assert list(place(broker, "three")) == ["a"]
    assert place(broker, names["b"]) == {}, "it is not made anew"
    broker.stop()
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    broker.start()
    assert numbers(broker, names["b"], 10) == list(range(10))


def test_a_broker_does_not_start_without_its_metadata(broker: Broker, tmp_path: Path) -> None:
    broker.stop()
    (tmp_path / "a").rename(tmp_path / "away")
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError, match="/a, which cannot be used"):
        broker.start()


def test_a_broker_whose_last_folder_fails_ends(tmp_path: Path) -> None:
    ready, data = tmp_path / "ready", tmp_path / "data"
    words = ["start", "--port", "0", "--data-dir", str(data), "--ready-file", str(ready)]
    words += ["-X", "log.flush.offset.checkpoint.interval.ms=100"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", *words], stderr=subprocess.PIPE, text=True
    )
    while not ready.exists():
        assert process.poll() is None
        time.sleep(0.01)
    shutil.rmtree(data)
    _, told = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    assert "its partitions are offline until a restart" in told
    assert told.splitlines()[-1].endswith("every log directory has failed: the broker cannot go on")
