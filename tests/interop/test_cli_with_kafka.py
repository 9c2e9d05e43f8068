"""`ottla` as the command line of an Apache Kafka broker."""

import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from tests.clients.cli_calls import SECONDS_MAX, call, lines_of_json, refused, rows, text
from tests.interop.kafka_node import TOOL_SECONDS_MAX, java_command, kafka_node


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield node.start().bootstrap_server


def test_topics_and_settings(brokers: str) -> None:
    call("topic", "create", "letters", "-p", "2", "-c", "retention.ms=60000", brokers=brokers)
    described = rows("topic", "describe", "letters", brokers=brokers)
    assert len(described["partitions"]) == 2
    assert described["configs"] == [{"name": "retention.ms", "value": "60000"}]
    call("topic", "alter", "letters", "-p", "3", "--delete-config", "retention.ms", brokers=brokers)
    assert rows("topic", "describe", "letters", brokers=brokers)["configs"] == []
    assert len(rows("config", "describe", "broker", "1", "--all", brokers=brokers)) > 100
    assert "exists" in call("topic", "create", "letters", brokers=brokers, expect=1).stderr.decode()
    assert rows("topic", "delete", "letters", "--yes", brokers=brokers)[0]["status"] == "deleted"
    assert "there is no topic" in refused("topic", "describe", "letters", brokers=brokers)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_in_every_codec_go_in_and_come_out(brokers: str, codec: str) -> None:
    topic = f"codec-{codec}"
    call("topic", "create", topic, "-p", "3", brokers=brokers)
    lines = b"".join(b"k%d:v%d\n" % (number, number) for number in range(50))
    call("produce", topic, "-f", "%k:%v\\n", "-z", codec, "-H", "a:b", brokers=brokers, stdin=lines)
    read = lines_of_json(text("consume", topic, "-f", "json", brokers=brokers))
    assert sorted((row["key"], row["value"]) for row in read) == sorted(
        (f"k{number}", f"v{number}") for number in range(50)
    )
    assert {row["headers"][0]["value"] for row in read} == {"b"}


def test_a_key_goes_where_kafkas_own_producer_puts_it(brokers: str) -> None:
    lines = b"".join(b"key-%d:v\n" % number for number in range(40))
    call("topic", "create", "ours", "theirs", "-p", "7", brokers=brokers)
    call("produce", "ours", "-f", "%k:%v\\n", brokers=brokers, stdin=lines)
    options = ("--bootstrap-server", brokers, "--topic", "theirs")
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    subprocess.run(
        java_command("org.apache.kafka.tools.ConsoleProducer", *options, *keys),
        input=lines,
        check=True,
        capture_output=True,
        timeout=TOOL_SECONDS_MAX,
    )

    def places(topic: str) -> list[str]:
        return sorted(text("consume", topic, "-f", "%k %p\\n", brokers=brokers).splitlines())

    assert len(places("theirs")) == 40
    assert places("ours") == places("theirs")


def test_groups_are_read_described_moved_and_deleted(brokers: str) -> None:
    call("topic", "create", "grouped", "-p", "2", brokers=brokers)
    call("produce", "grouped", "-p", "1", brokers=brokers, stdin=b"a\nb\nc\n")
    assert text("consume", "grouped", "-g", "readers", "-n", "2", brokers=brokers) == "a\nb\n"
    described = rows("group", "describe", "readers", brokers=brokers)
    assert {row["partition"]: row["lag"] for row in described}[1] == 1
    moved = ("group", "reset-offsets", "readers", "-t", "grouped:1", "--to-earliest", "--execute")
    assert rows(*moved, brokers=brokers)[0]["new_offset"] == 0
    assert text("consume", "grouped", "-g", "readers", brokers=brokers) == "a\nb\nc\n"
    assert rows("group", "delete", "readers", "--yes", brokers=brokers)[0]["status"] == "deleted"


def test_a_group_of_the_new_protocol_is_described(brokers: str) -> None:
    call("topic", "create", "modern", "-p", "2", brokers=brokers)
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "moderns",
            "client.id": "modern",
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe(["modern"])
    for _ in range(10 * SECONDS_MAX):
        consumer.poll(0.1)
        if len(consumer.assignment()) == 2:
            break
    members = rows("group", "describe", "moderns", "--members", brokers=brokers)
    assert [(row["client_id"], row["partitions"]) for row in members] == [("modern", 2)]
    consumer.close()
    assert "there is no group" in refused("group", "describe", "nobody", brokers=brokers)


def test_records_are_trimmed_and_disks_are_shown(brokers: str) -> None:
    call("topic", "create", "trimmed", brokers=brokers)
    call("produce", "trimmed", brokers=brokers, stdin=b"a\nb\n")
    trimmed = rows("topic", "trim", "trimmed", "--before", "1", "--yes", brokers=brokers)
    assert trimmed[0]["log_start_offset"] == 1
    assert text("consume", "trimmed", brokers=brokers) == "b\n"
    assert rows("cluster", "logdirs", brokers=brokers)[0]["status"] == "ok"
    assert len(rows("cluster", "describe", brokers=brokers)["brokers"]) == 1


def test_the_load_generator_runs(brokers: str) -> None:
    call("topic", "create", "load", brokers=brokers)
    assert rows("bench", "produce", "load", "-n", "20000", brokers=brokers)["records"] == 20_000
    assert rows("bench", "consume", "load", brokers=brokers)["records"] == 20_000
