"""Client metrics: docs/client-metrics.md names all of them, and their values are correct."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, Consumer, Producer, aio
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from tests.clients.consumer_stories import new_topic, read, send, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "client-metrics.md"
COMMON = "All clients"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.bootstrap_servers


def named(*headings: str) -> set[str]:
    """Return the metric names under these headings of the page."""
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    told = [section for section in sections if section.startswith(tuple(headings))]
    return {
        line.split("`")[1]
        for section in told
        for line in section.splitlines()
        if line.startswith("| `")
    }


def test_the_page_names_every_metric_and_no_other(servers: str) -> None:
    async def of_asyncio() -> list[set[str]]:
        async with (
            aio.Producer(bootstrap_servers=servers) as producer,
            aio.Consumer(bootstrap_servers=servers) as consumer,
            aio.Admin(bootstrap_servers=servers) as admin,
        ):
            return [set(client.metrics()) for client in (producer, consumer, admin)]

    with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers) as consumer,
        Admin(bootstrap_servers=servers) as admin,
    ):
        synchronous = [set(client.metrics()) for client in (producer, consumer, admin)]
    assert synchronous == [named(COMMON, "Producers"), named(COMMON, "Consumers"), named(COMMON)]
    assert asyncio.run(of_asyncio()) == synchronous


def test_a_producer_counts_what_it_sends(servers: str) -> None:
    topic = new_topic(servers)
    with Producer(bootstrap_servers=servers, linger_ms=50) as producer:
        for _ in range(1_000):
            producer.send(topic, b"x" * 100)
        producer.flush()
        metrics = producer.metrics()
    assert metrics["record-send-total"] == 1_000
    assert metrics["records-per-request-avg"] > 1
    assert metrics["outgoing-byte-total"] > 100_000
    assert 0 < metrics["request-latency-avg"] <= metrics["request-latency-max"]
    assert metrics["requests-in-flight"] == 0
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert producer.metrics()["connection-count"] == 0


def test_what_a_caller_sends_itself_is_counted_as_well(servers: str) -> None:
    topic = new_topic(servers)
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        producer.send(topic, b"first").result(60)
        before = producer.metrics()
        for _ in range(50):
            producer.send(topic, b"x" * 1_000).result(60)
        after = producer.metrics()
        latency = producer._core.view.counts.latency_of(ApiKey.PRODUCE)
    assert latency.count >= 51
    assert after["request-total"] - before["request-total"] >= 50
    assert after["response-total"] - before["response-total"] >= 50
    assert after["outgoing-byte-total"] - before["outgoing-byte-total"] > 50_000


def test_a_member_counts_what_it_asks_its_group_for(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b"%d" % number for number in range(10)])
    with Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
    ) as consumer:
        consumer.subscribe([topic])
        read(consumer, 10)
        consumer.commit()
        wait_until(lambda: consumer.metrics()["heartbeat-total"] > 1, "heartbeats")
        metrics = consumer.metrics()
    assert metrics["records-consumed-total"] == 10
    assert metrics["incoming-byte-total"] > metrics["bytes-consumed-total"] > 0
    assert metrics["records-lag-max"] == 0
    assert metrics["assigned-partitions"] == 1
    assert metrics["rebalance-total"] == 1
    assert metrics["join-total"] >= metrics["sync-total"] >= 1
    assert metrics["commit-total"] >= 1
    for name in ("fetch-latency", "commit-latency", "join-time", "sync-time", "request-latency"):
        assert 0 < metrics[f"{name}-avg"] <= metrics[f"{name}-max"], name


def test_an_admin_counts_what_it_asks(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.list()
        metrics = admin.metrics()
    assert metrics["request-total"] >= metrics["response-total"] >= 2
    assert metrics["connection-count"] == metrics["connection-creation-total"] == 1
