"""The only broker's disk is full: it refuses writes, serves readers, and recovers by itself.

The same story with a small tmpfs, and with a simulated full directory (`full_disk`).
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record
from tests import full_disk
from tests.clients.raw_requests import ask
from tests.clients.started_broker import SECONDS_MAX, StartedBroker

TOPIC = "orders"
PARTITIONS = 4
DISK_BYTES = 32 << 20
FILLER_BYTES = 16 << 20
VALUE_BYTES = 8 << 10
SESSION_MS = 1_000
SETTINGS = (
    f"group.min.session.timeout.ms={SESSION_MS}",
    f"num.partitions={PARTITIONS}",
    "ottla.admin.listener=",
    "offsets.topic.num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
)
FULL_SECONDS = 4
"""Within this time all background work and all retries run, some of them several times."""
LINES_MAX = 2
"""Only the two errors about the log dir."""


@dataclass
class Disk:
    """Where a broker keeps its data, and how that disk gets full and has room again."""

    folder: Path
    environ: dict[str, str]
    fill: Callable[[], None]
    free: Callable[[], None]


@pytest.fixture(params=["tmpfs", "preloaded"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "data"
    if request.param == "preloaded":
        if missing := full_disk.why_not():
            pytest.skip(missing)
        environ = full_disk.environ(tmp_path, [folder])
        yield Disk(folder, environ, lambda: full_disk.fill(folder), lambda: full_disk.free(folder))
        return
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a tmpfs, where containers allow it")
    try:
        filler = tmp_path / "data" / "filler"
        filler.write_bytes(bytes(FILLER_BYTES))
        yield Disk(folder, {}, lambda: None, filler.unlink)  # the produced records fill the disk
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def read(servers: str, count: int) -> list[bytes]:
    """Read this many records of the topic from the beginning."""
    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "r", "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message.key() or b"")
    finally:
        consumer.close()
    return found


class Writing:
    """An idempotent producer, and its acknowledged records."""

    def __init__(self, servers: str) -> None:
        self.sent = 0
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "retry.backoff.ms": 50,
                "log_level": 0,
            }
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            key = b"%d" % self.sent
            self._producer.produce(
                TOPIC,
                os.urandom(VALUE_BYTES),
                key,
                partition=self.sent % PARTITIONS,
                on_delivery=lambda error, _, key=key: self._take(key, error),
            )
            self.sent += 1
        self._producer.poll(0)

    def _take(self, key: bytes, error: object) -> None:
        if error is None:
            self.acknowledged.append(key)
        else:
            self.failed.append(str(error))

    def finish(self) -> None:
        assert self._producer.flush(SECONDS_MAX) == 0
        assert not self.failed


def produce_raw(servers: str) -> ErrorCode:
    records = memoryview(build_batch([Record(0, 0, b"k", bytes(VALUE_BYTES))]))
    data = [PartitionProduceData(index=0, records=records)]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    answer = ask(servers, ApiKey.PRODUCE, 9, request)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def commit(servers: str, offset: int) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "g", "log_level": 0}
    consumer = Consumer(settings)
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def joined(servers: str) -> Consumer:
    """Return a member of a group that has a short session."""
    member = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "members",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": SESSION_MS // 4,
            "log_level": 0,
        }
    )
    member.subscribe([TOPIC])
    while not member.assignment():
        member.poll(0.1)
    return member


def test_a_full_disk_refuses_serves_readers_and_recovers_by_itself(
    disk: Disk, tmp_path: Path
) -> None:
    with StartedBroker(
        tmp_path, f"log.dirs={disk.folder}", *SETTINGS, environ=disk.environ
    ) as broker:
        servers = broker.bootstrap_servers
        writing = Writing(servers)
        writing.send(100)
        writing.finish()
        commit(servers, 1)
        member = joined(servers)
        disk.fill()
        while not broker.lines("is full"):
            writing.send(100)
            time.sleep(0.05)
            assert writing.sent < 20_000
        raw = 1
        while (code := produce_raw(servers)) is ErrorCode.NONE:  # a small batch may still fit
            raw += 1
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        with suppress(KafkaException):  # in the pages that a file has, there may be room
            commit(servers, 2)
        acknowledged = len(writing.acknowledged)
        assert len(read(servers, acknowledged)) >= acknowledged
        member.close()  # its coordinator cannot note that, nor that its session ends
        began, cpu_seconds = time.monotonic(), broker.cpu_seconds
        time.sleep(FULL_SECONDS)
        share = (broker.cpu_seconds - cpu_seconds) / (time.monotonic() - began)
        assert share < 0.5, "something tries again without a pause"
        disk.free()
        writing.finish()
        assert produce_raw(servers) is ErrorCode.NONE
        commit(servers, 3)
        broker.wait_for_line("has room again")
        kept = read(servers, writing.sent + raw)
        assert sorted(kept) == sorted([*(b"%d" % n for n in range(writing.sent)), *[b"k"] * raw])
        told = [line for line in broker.lines("") if " INFO " not in line]
    assert len([line for line in told if "is full" in line]) == 1
    assert len([line for line in told if "has room again" in line]) == 1
    assert len(told) <= LINES_MAX, told
