"""A broker with a long recovery: until its logs are open, others decide and lead without it."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.system_environment import this_machine
from ottla.environment.disk import File
from ottla.metadata.image import PartitionImage
from ottla.model.settings.broker_config import BrokerConfig
from ottla.runtime.disk import KernelDisk
from ottla.storage.files.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.testing.zookeeper_server import ZooKeeperServer, running
from tests.clients.cli_calls import OTTLA
from tests.metadata_building import new_topic, uuid_of

BLOCKED_SECONDS_MAX = 10
PATIENCE_SECONDS = 240
TOPIC = "orders"


class BlockedDisk(KernelDisk):
    """A disk that blocks the opening of logs until it is released, with a time limit."""

    def __init__(self) -> None:
        self.is_used = Event()
        self.is_free = Event()
        self.was_too_late = False

    def open_file(self, path: str) -> File:
        if f"/{TOPIC}-" in path and not self.is_free.is_set():
            self.is_used.set()
            self.was_too_late |= not self.is_free.wait(BLOCKED_SECONDS_MAX)
            self.is_free.set()
        return super().open_file(path)


@pytest.fixture(scope="module")
def zookeeper(
    needs_zookeeper: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServer]:
    with running(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started


class Pair:
    """Two brokers in this process; the first may have a special disk."""

    def __init__(self, hosts: str, folder: Path) -> None:
        self._hosts = hosts
        self._folder = folder

    async def start(self, number: int, disk: KernelDisk | None = None) -> Broker:
        config = BrokerConfig.parse(dict(self.settings(number)))
        return await Broker.start(config, this_machine(disk=disk))

    def settings(self, number: int) -> list[tuple[str, str]]:
        return [
            ("node.id", str(number)),
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("log.dirs", str(self.folder(number))),
            ("ottla.admin.listener", ""),
            ("ottla.schema.registry.listener", ""),
            ("zookeeper.connect", self._hosts),
        ]

    def folder(self, number: int) -> Path:
        return self._folder / f"broker-{number}"


def orders(broker: Broker) -> PartitionImage:
    return broker.metadata.store.image.topics[TOPIC].partitions[0]


def is_in_sync(broker: Broker) -> bool:
    return TOPIC in broker.metadata.store.image.topics and len(orders(broker).isr) == 2


async def until_in_sync(*brokers: Broker) -> None:
    for broker in brokers:
        is_changed = asyncio.Event()
        broker.metadata.store.subscribe(partial(_notify, is_changed))
        while not is_in_sync(broker):
            await is_changed.wait()
            is_changed.clear()


def _notify(key: asyncio.Event, *_: object) -> None:
    key.set()


async def both_have_the_topic(pair: Pair) -> None:
    first, second = await pair.start(1), await pair.start(2)
    topic, topic_id = new_topic(TOPIC, 1, 2), uuid_of(77)
    await first.metadata.store.execute(
        lambda one: one.create_topics([topic], topic_ids=[topic_id], start=0)
    )
    await until_in_sync(first, second)
    await first.stop()
    await second.stop()


def test_the_cluster_does_not_wait_for_a_broker_that_opens_logs(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    async def story() -> None:
        pair = Pair(f"{zookeeper.hosts}/others", tmp_path)
        await both_have_the_topic(pair)
        disk = BlockedDisk()
        slow = asyncio.ensure_future(pair.start(1, disk))
        assert await asyncio.to_thread(disk.is_used.wait, PATIENCE_SECONDS)
        second = await pair.start(2)
        assert second.metadata.controller.is_here()
        image = second.metadata.store.image
        assert 1 not in image.brokers or image.brokers[1].is_fenced
        assert orders(second).leader == 2
        disk.is_free.set()
        first = await slow
        assert not disk.was_too_late
        await until_in_sync(first, second)
        await first.stop()
        await second.stop()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))


def test_a_broker_stopped_while_it_opens_logs_leaves_no_clean_mark(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    async def story() -> None:
        pair = Pair(f"{zookeeper.hosts}/stopped", tmp_path)
        await both_have_the_topic(pair)
        mark = pair.folder(1) / CLEAN_SHUTDOWN_FILE
        assert mark.exists()
        disk = BlockedDisk()
        slow = asyncio.ensure_future(pair.start(1, disk))
        assert await asyncio.to_thread(disk.is_used.wait, PATIENCE_SECONDS)
        slow.cancel()
        await asyncio.sleep(0.05)
        assert not slow.done(), "a thread is in the folder"
        disk.is_free.set()
        with suppress(asyncio.CancelledError):
            await slow
        assert not mark.exists()
        first, second = await pair.start(1), await pair.start(2)
        await until_in_sync(first, second)
        await second.stop()
        await first.stop()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))


def launch(pair: Pair, number: int) -> "subprocess.Popen[str]":
    """Start a broker as users do; return when it waits for another broker with the same id."""
    settings = [word for name, text in pair.settings(number) for word in ("-X", f"{name}={text}")]
    process = subprocess.Popen([*OTTLA, "start", *settings], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any("is registered already" in line for line in process.stderr), "it did not wait"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_stopped_before_its_registration_closes_its_logs(
    zookeeper: ZooKeeperServer, tmp_path: Path, number: signal.Signals
) -> None:
    async def story() -> None:
        hosts = f"{zookeeper.hosts}/told-{number.name}"
        pair, namesake = Pair(hosts, tmp_path), Pair(hosts, tmp_path / "namesake")
        await both_have_the_topic(pair)
        other = await namesake.start(1)
        process = await asyncio.to_thread(launch, pair, 1)
        mark = pair.folder(1) / CLEAN_SHUTDOWN_FILE
        assert not mark.exists()
        process.send_signal(number)
        _, said = await asyncio.to_thread(process.communicate, timeout=PATIENCE_SECONDS)
        assert "stopped before it was ready" in said
        assert process.returncode == 0
        assert mark.exists()
        await other.stop()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))
