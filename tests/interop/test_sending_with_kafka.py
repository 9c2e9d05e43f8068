"""Ottla's producer sends to Apache Kafka, and librdkafka reads the records."""

from collections.abc import Iterator

import pytest

from ottla import Consumer, Producer
from tests.clients.test_producer import SECONDS, lane_of, read, values
from tests.interop.console import Console
from tests.interop.kafka_clients import create_topic
from tests.interop.kafka_node import kafka_node


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield node.start().bootstrap_server


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_takes_every_codec(server: str, codec: str) -> None:
    topic = f"codec-{codec}"
    create_topic(server, topic)
    sent = [b"%d" % number for number in range(5_000)]
    with Producer(bootstrap_servers=server, compression_type=codec) as producer:
        deliveries = [producer.send(topic, value) for value in sent]
        assert [row.result(SECONDS).offset for row in deliveries] == list(range(5_000))
    assert values(read(server, topic, len(sent))) == sent


def test_kafka_follows_a_new_epoch(server: str) -> None:
    create_topic(server, "gap")
    sent = [b"%d" % number for number in range(20_000)]
    with Producer(bootstrap_servers=server, batch_size=1_000, linger_ms=0) as producer:
        for number, value in enumerate(sent):
            producer.send("gap", value)
            if number == 10_000:
                producer.flush(SECONDS)
                lane_of(producer, "gap").queue.next_sequence += 17
        producer.flush(SECONDS)
        assert producer._core.sender.identity.producer_epoch == 1
    assert values(read(server, "gap", len(sent))) == sent


def test_a_batch_that_kafka_finds_too_large_is_cut(server: str) -> None:
    create_topic(server, "small", **{"max.message.bytes": "2000"})
    sent = [b"%d %s" % (number, b"x" * 300) for number in range(500)]
    with Producer(bootstrap_servers=server) as producer:
        deliveries = [producer.send("small", value) for value in sent]
        producer.flush(SECONDS)
        assert [row.result(SECONDS).offset for row in deliveries] == list(range(500))
    assert values(read(server, "small", 500)) == sent


def test_a_key_goes_where_kafkas_own_producer_puts_it(server: str) -> None:
    create_topic(server, "keyed", 7)
    keys = ["k" * length + str(length * 37) for length in range(1, 40)] + ["größe"]
    options = "--reader-property parse.key=true --reader-property key.separator=:"
    lines = "".join(f"{key}:theirs\n" for key in keys)
    Console(server)(f"console-producer --topic keyed {options}", stdin=lines)
    with Producer(bootstrap_servers=server) as producer:
        for key in keys:
            producer.send("keyed", b"ours", key)
    with Consumer(bootstrap_servers=server, auto_offset_reset="earliest") as consumer:
        consumer.assign([("keyed", number) for number in range(7)])
        found = [next(consumer.records(timeout=SECONDS)) for _ in range(2 * len(keys))]
    ours, theirs = (
        {one.key.decode(): one.partition for one in found if one.value == name}
        for name in (b"ours", b"theirs")
    )
    assert set(ours) == set(keys)
    assert ours == theirs
