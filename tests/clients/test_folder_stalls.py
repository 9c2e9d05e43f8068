"""Hundreds of partitions are created, moved and deleted; the event loop never waits for a disk."""

import asyncio
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.system_environment import this_machine
from ottla.model.settings.broker_config import BrokerConfig
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.blocking import LoopLag, WatchedDisk
from tests.clients.raw_requests import ask

PARTITIONS = 200
MOVED = 20
SECONDS_MAX = 240
ROUNDS_MAX = 2000


def come_and_go(address: str, folder: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic("many", PARTITIONS, 1)])["many"].result(SECONDS_MAX)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": address, "log_level": 0, "retries": 0})
    for partition in range(PARTITIONS):
        producer.produce(
            "many",
            b"value",
            partition=partition,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert errors == [], "who hears of a topic can produce at once"
    move(address, folder)
    admin.delete_topics(["many"])["many"].result(SECONDS_MAX)


def move(address: str, folder: str) -> None:
    topic = AlterReplicaLogDirTopic(name="many", partitions=list(range(MOVED)))
    wanted = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=folder, topics=[topic])])
    (result,) = ask(address, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, wanted).results
    assert {partition.error_code for partition in result.partitions} == {0}
    for _ in range(ROUNDS_MAX):
        request = DescribeLogDirsRequest(topics=None)
        results = ask(address, ApiKey.DESCRIBE_LOG_DIRS, 4, request).results
        indexes = {
            partition.partition_index
            for found in results
            for topics in found.topics
            for partition in topics.partitions
            if found.log_dir == folder and not partition.is_future_key
        }
        if indexes >= set(range(MOVED)):
            return
    raise AssertionError(f"only {len(indexes)} of {MOVED} have arrived: {results}"[:500])


async def story(folders: list[Path]) -> None:
    disk = WatchedDisk()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(map(str, folders)),
        "ottla.admin.listener": "",
    }
    broker = await Broker.start(BrokerConfig.parse(settings), this_machine(disk=disk))
    host, port = broker.endpoints.advertised("PLAINTEXT")
    loop = asyncio.get_running_loop()
    disk.calls.clear()
    lag = LoopLag(loop)
    lag.start()
    await loop.run_in_executor(None, come_and_go, f"{host}:{port}", str(folders[0]))
    lag.stop()
    on_loop, elsewhere = disk.calls.by_this_thread(), disk.calls.by_others()
    await broker.stop()
    print(f"the loop came {lag.max_ms:.1f} ms late at most, of {lag.calls} times")  # noqa: T201
    assert on_loop == []
    assert len(elsewhere) > PARTITIONS


def test_no_partition_is_made_moved_or_deleted_on_the_event_loop(tmp_path: Path) -> None:
    asyncio.run(story([tmp_path / "a", tmp_path / "b"]))
