"""Groups as operators see them, of several libraries at once, and of brokers that are killed."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.clients.cli_calls import OTTLA
from tests.clients.conftest import DRIVERS, SETTINGS
from tests.clients.driver import (
    SECONDS_MAX,
    Driver,
    Member,
    Received,
    Sent,
    close_together,
    join_together,
    read_until,
)
from tests.clients.drivers.kcat import KCAT, KcatDriver
from tests.clients.drivers.librdkafka import LibrdkafkaDriver


def fill(driver: Driver, topic: str, count: int, *, start: int = 0) -> set[bytes]:
    values = [f"letter {number}".encode() for number in range(start, start + count)]
    driver.produce(topic, [Sent(value) for value in values])
    return set(values)


def seen(found: list[Received]) -> set[bytes | None]:
    return {one.value for one in found}


def test_members_of_all_libraries_share_one_group(story_servers: str, topic: str) -> None:
    clients = [one for one in DRIVERS if one is not KcatDriver or KCAT is not None]
    LibrdkafkaDriver(story_servers).create_topic(topic, len(clients))
    members: list[Member] = []
    try:
        join_together((partial(one(story_servers).join, topic, topic) for one in clients), members)
        # For a while some members have the new assignment, and others still have the old.
        each = [[index] for index in range(len(clients))]
        read_until(members, lambda _: sorted(list(one.partitions()) for one in members) == each)
    finally:
        close_together(members)


def test_groups_are_listed_described_and_deleted(story_servers: str, topic: str) -> None:
    driver = LibrdkafkaDriver(story_servers)
    written = fill(driver, topic, 10)
    member = driver.join(topic, topic, instance="observer")
    read_until([member], lambda found: seen(found) == written)
    admin = AdminClient({"bootstrap.servers": story_servers})
    group = admin.describe_consumer_groups([topic])[topic].result(SECONDS_MAX)
    assert group.state.name == "STABLE"
    assert [one.group_instance_id for one in group.members] == ["observer"]
    member.close()
    other = driver.join(f"{topic}-left", topic)
    read_until([other], lambda found: seen(found) == written)
    other.close()
    assert driver.groups() >= {topic, f"{topic}-left"}
    admin.delete_consumer_groups([f"{topic}-left"])[f"{topic}-left"].result(SECONDS_MAX)
    assert f"{topic}-left" not in driver.groups()


def test_what_was_committed_outlives_a_restart_with_its_note(tmp_path: Path) -> None:
    committed = TopicPartition("kept", 0, 42, metadata="a note")
    with Broker(SETTINGS, data_dir=str(tmp_path)) as broker:
        fill(LibrdkafkaDriver(broker.bootstrap_servers), "kept", 50)
        consumer = outsider(broker.bootstrap_servers)
        consumer.commit(offsets=[committed], asynchronous=False)
        consumer.close()
    with Broker(SETTINGS, data_dir=str(tmp_path)) as broker:
        consumer = outsider(broker.bootstrap_servers)
        (found,) = consumer.committed([TopicPartition("kept", 0)], SECONDS_MAX)
        assert (found.offset, found.metadata) == (42, "a note")
        consumer.close()


def outsider(servers: str) -> Consumer:
    return Consumer({"bootstrap.servers": servers, "group.id": "kept"})


@contextmanager
def killed_in_the_end(listen: str, data_dir: Path) -> Iterator[str]:
    """Run a broker as a process, and kill it where it stands."""
    settings = [word for name, value in SETTINGS.items() for word in ("-X", f"{name}={value}")]
    call = [*OTTLA, "start", "--listen", listen, "--data-dir", str(data_dir), *settings]
    process = subprocess.Popen(
        [*call, "-X", "ottla.admin.listener=", "-X", "ottla.schema.registry.listener="],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        yield next(m[1] for line in process.stderr if (m := re.search(r"listening on (\S+)", line)))
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=SECONDS_MAX)


def test_a_group_goes_on_as_it_was_when_the_broker_is_killed(tmp_path: Path) -> None:
    with killed_in_the_end("127.0.0.1:0", tmp_path) as address:
        driver = LibrdkafkaDriver(address)
        driver.create_topic("kept", 2)
        written = fill(driver, "kept", 100)
        members = [driver.join("readers", "kept") for _ in range(2)]
        found = read_until(
            members,
            lambda found: (
                seen(found) == written and all(len(one.partitions()) == 1 for one in members)
            ),
        )
        rebalances = [one.rebalances for one in members]
    with killed_in_the_end(address, tmp_path):
        written |= fill(driver, "kept", 100, start=100)
        found += read_until(members, lambda more: seen(found + more) == written)
        assert [one.rebalances for one in members] == rebalances
        for one in members:
            one.close()
    with killed_in_the_end(address, tmp_path), ExitStack() as closing:
        last = fill(driver, "kept", 10, start=200)
        late = driver.join("readers", "kept")
        closing.callback(late.close)
        assert seen(read_until([late], lambda found: len(found) >= len(last))) == last
