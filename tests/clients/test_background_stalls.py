"""Background work under traffic: a wait for the disk blocks a thread, never the event loop."""

import asyncio
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.system_environment import this_machine
from ottla.model.settings.broker_config import BrokerConfig
from tests.blocking import LoopLag, WatchedDisk

PARTITIONS = 20
ROUNDS_MAX = 500
WRITTEN = {"recovery-point-offset-checkpoint.tmp", "cleaner-offset-checkpoint.tmp"}
SECONDS_MAX = 240
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.retention.check.interval.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "20",
    "log.cleaner.backoff.ms": "5",
    "log.segment.delete.delay.ms": "0",
}
TOPICS = {
    "kept": {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"},
    "passing": {"segment.ms": "50", "retention.ms": "100"},
    "flushed": {"flush.messages": "10"},
}


def create_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    topics = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
    for created in admin.create_topics(topics).values():
        created.result(SECONDS_MAX)
    write(address, 1)  # the first batch of a partition makes files


def write(address: str, rounds: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
    for number in range(rounds):
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                producer.produce(topic, b"%d" % number, b"key", partition)
        assert producer.flush(SECONDS_MAX) == 0


async def story(folder: Path) -> None:
    disk = WatchedDisk()
    config = BrokerConfig.parse({**SETTINGS, "log.dirs": str(folder)})
    broker = await Broker.start(config, this_machine(disk=disk))
    host, port = broker.endpoints.advertised("PLAINTEXT")
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, create_topics, f"{host}:{port}")
    disk.calls.clear()
    lag = LoopLag(loop)
    lag.start()
    await loop.run_in_executor(None, write, f"{host}:{port}", 30)
    for _ in range(ROUNDS_MAX):
        if {Path(call.path).name for call in disk.calls.by_others()} >= WRITTEN:
            break
        await loop.run_in_executor(None, write, f"{host}:{port}", 1)
    lag.stop()
    on_loop, elsewhere = disk.calls.by_this_thread(), disk.calls.by_others()
    await broker.stop()
    print(f"the loop came {lag.max_ms:.1f} ms late at most, of {lag.calls} times")  # noqa: T201
    assert on_loop == [], f"{len(on_loop)} calls, {len(elsewhere)} elsewhere"
    names = {Path(call.path).name for call in elsewhere}
    assert names >= WRITTEN
    assert any(call.path.endswith(".cleaned") for call in elsewhere), "nothing was compacted"
    assert any("flushed" in call.path for call in elsewhere), "nothing was flushed"


def test_no_sync_is_waited_for_on_the_event_loop(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path))
