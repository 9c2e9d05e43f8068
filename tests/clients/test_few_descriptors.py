"""A broker that may open few files, with many partitions and many clients: nothing goes offline."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.started_broker import SECONDS_MAX, StartedBroker

TOPIC: Final = "orders"
PARTITIONS: Final = 300
DESCRIPTORS: Final = 192
CROWD: Final = 400
CROWDED_SECONDS: Final = 4
ROUNDS: Final = 3
SETTINGS: Final = (
    "ottla.admin.listener=",
    "max.connections.per.ip=5000",
)


def write(servers: str, producer: Producer | None = None) -> None:
    """Append one record to each partition, and flush it."""
    failed: list[str] = []
    producer = producer or producing(servers)
    for number in range(PARTITIONS):
        producer.produce(
            TOPIC,
            b"x" * 100,
            partition=number,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failed, failed[:3]


def producing(servers: str) -> Producer:
    return Producer(
        {"bootstrap.servers": servers, "acks": "all", "retry.backoff.ms": 50, "log_level": 0}
    )


def read(servers: str, count: int) -> None:
    """Read this many records of every partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "r", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found, deadline = 0, time.monotonic() + SECONDS_MAX
    while found < count * PARTITIONS:
        assert time.monotonic() < deadline, f"{found} records"
        for message in consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            found += 1
    consumer.close()


@contextmanager
def crowd(servers: str) -> Iterator[None]:
    """Hold more connections than there can be descriptors for."""
    host, _, port = servers.rpartition(":")
    with ExitStack() as stack:
        for _ in range(CROWD):
            with suppress(OSError):
                connection = socket.create_connection((host, int(port)), timeout=1)
                stack.enter_context(connection)
        yield


def test_many_partitions_and_many_clients_take_no_log_offline(tmp_path: Path) -> None:
    settings = (f"log.dirs={tmp_path / 'data'}", *SETTINGS)
    with StartedBroker(tmp_path, *settings, descriptors_max=DESCRIPTORS) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config={"flush.messages": "1"})
        admin.create_topics([topic])[TOPIC].result(SECONDS_MAX)
        producer = producing(servers)
        write(servers, producer)
        with crowd(servers):
            cpu_seconds, began = broker.cpu_seconds, time.monotonic()
            time.sleep(CROWDED_SECONDS)
            share = (broker.cpu_seconds - cpu_seconds) / (time.monotonic() - began)
            assert share < 0.5, "the accept loop spins"
            for _ in range(ROUNDS):  # over a connection opened before the crowd
                write(servers, producer)
        read(servers, ROUNDS + 1)
        lines = broker.log.read_text()
    assert "offline" not in lines, lines
    assert "Traceback" not in lines, lines


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    settings = (f"log.dirs={tmp_path / 'data'}", *SETTINGS)
    with StartedBroker(tmp_path, *settings, descriptors_max=f"128:{hard}") as broker:
        assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
