"""Consumer groups of three client libraries, against a real broker over a real socket."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

SECONDS_MAX = 30
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
}
COUNT = 300


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


def fill(servers: str, topic: str, partitions: int = 4) -> set[bytes]:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": servers})
    values = {f"{topic} {number}".encode() for number in range(COUNT)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(SECONDS_MAX) == 0
    return values


def member(servers: str, group: str, **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count and time.monotonic() < deadline:
        found += [m.value() for m in consumer.consume(count - len(found), 0.2) if not m.error()]
    return found


def poll_until(consumers: list[Consumer], is_so: Callable[[], bool]) -> list[bytes]:
    """Let all members poll, as they must while partitions change hands."""
    found: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        for consumer in consumers:
            found += [m.value() for m in consumer.consume(100, 0.05) if not m.error()]
    return found


def test_a_group_of_one_reads_all_and_goes_on_where_it_stopped(servers: str) -> None:
    values = fill(servers, "alone")
    first = member(servers, "alone-group", enable_auto_commit=False)
    first.subscribe(["alone"])
    part = read(first, 100)
    first.commit(asynchronous=False)
    first.close()
    second = member(servers, "alone-group")
    second.subscribe(["alone"])
    rest = read(second, COUNT - 100)
    second.close()
    assert set(part) | set(rest) == values
    assert len(part) + len(rest) == COUNT


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_are_shared_and_go_over_when_a_member_leaves(
    servers: str, strategy: str
) -> None:
    topic = f"shared-{strategy}"
    values = fill(servers, topic)
    members = [
        member(servers, f"group-{strategy}", partition_assignment_strategy=strategy)
        for _ in range(2)
    ]
    for one in members:
        one.subscribe([topic])
    found = poll_until(members, lambda: [len(m.assignment()) for m in members] == [2, 2])
    owned = {p.partition for m in members for p in m.assignment()}
    assert owned == {0, 1, 2, 3}
    members[0].close()
    found += poll_until(members[1:], lambda: len(members[1].assignment()) == 4)
    found += read(members[1], COUNT - len(found))
    members[1].close()
    assert set(found) == values


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(servers: str) -> None:
    fill(servers, "static")
    one = member(servers, "static-group", group_instance_id="one", session_timeout_ms=20000)
    two = member(servers, "static-group", group_instance_id="two", session_timeout_ms=20000)
    for each in (one, two):
        each.subscribe(["static"])
    poll_until([one, two], lambda: len(one.assignment()) == len(two.assignment()) == 2)
    before = sorted(p.partition for p in one.assignment())
    one.close()
    again = member(servers, "static-group", group_instance_id="one", session_timeout_ms=20000)
    again.subscribe(["static"])
    poll_until([again, two], lambda: len(again.assignment()) == 2)
    assert sorted(p.partition for p in again.assignment()) == before
    again.close()
    two.close()


def test_groups_are_listed_described_and_deleted(servers: str) -> None:
    fill(servers, "looked-at")
    consumer = member(servers, "looked-at-group", client_id="observer")
    consumer.subscribe(["looked-at"])
    assert read(consumer, 10)
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_consumer_groups().result(SECONDS_MAX)
    assert "looked-at-group" in {group.group_id for group in listed.valid}
    described = admin.describe_consumer_groups(["looked-at-group"])["looked-at-group"]
    group = described.result(SECONDS_MAX)
    assert group.state.name == "STABLE"
    assert [one.client_id for one in group.members] == ["observer"]
    consumer.close()
    admin.delete_consumer_groups(["looked-at-group"])["looked-at-group"].result(SECONDS_MAX)
    listed = admin.list_consumer_groups().result(SECONDS_MAX)
    assert "looked-at-group" not in {group.group_id for group in listed.valid}


def test_kafka_python_and_librdkafka_share_a_group(servers: str) -> None:
    fill(servers, "mixed")
    ours = member(servers, "mixed-group", partition_assignment_strategy="range")
    ours.subscribe(["mixed"])
    theirs = KafkaConsumer(
        "mixed",
        bootstrap_servers=servers,
        group_id="mixed-group",
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
    is_over = threading.Event()

    def poll_theirs() -> None:
        while not is_over.is_set():
            theirs.poll(timeout_ms=100)

    thread = threading.Thread(target=poll_theirs)
    thread.start()
    try:
        poll_until([ours], lambda: len(ours.assignment()) == len(theirs.assignment()) == 2)
    finally:
        is_over.set()
        thread.join()
        theirs.close()
        ours.close()


def test_committed_offsets_survive_a_restart(tmp_path: Path) -> None:
    with Broker(SETTINGS, data_dir=str(tmp_path)) as broker:
        fill(broker.bootstrap_servers, "kept", partitions=1)
        consumer = member(broker.bootstrap_servers, "kept-group", enable_auto_commit=False)
        consumer.subscribe(["kept"])
        assert len(read(consumer, 42)) == 42
        consumer.commit(
            offsets=[TopicPartition("kept", 0, 42, metadata="a note")], asynchronous=False
        )
        consumer.close()
    with Broker(SETTINGS, data_dir=str(tmp_path)) as broker:
        consumer = member(broker.bootstrap_servers, "kept-group")
        (found,) = consumer.committed([TopicPartition("kept", 0)], SECONDS_MAX)
        assert (found.offset, found.metadata) == (42, "a note")
        consumer.close()
