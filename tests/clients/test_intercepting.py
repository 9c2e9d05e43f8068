"""Interceptors over real sockets: in every facade of the clients, and with traces in headers."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from ottla import Consumer, Producer, TopicPartition, aio
from ottla.clients.records.tracing import TracePropagation
from ottla.testing import Broker
from tests.clients.consumer_stories import new_topic, wait_until

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.bootstrap_servers


class Noting:
    """Records all its calls."""

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def on_send(self, record: Any) -> Any:
        self.noted.append(("sent", record.value))
        return record

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self.noted.append(("landed", metadata.offset, error))

    def on_consume(self, records: list[Any]) -> list[Any]:
        self.noted += [("read", record.value) for record in records]
        return records

    def on_commit(self, offsets: dict[Any, Any]) -> None:
        self.noted += [("committed", row.offset) for row in offsets.values()]

    def close(self) -> None:
        self.noted.append("closed")


def send(servers: str, topic: str, noting: Noting) -> None:
    with Producer(bootstrap_servers=servers, interceptors=[noting]) as producer:
        producer.send(topic, b"letter").result(60)


def send_in_asyncio(servers: str, topic: str, noting: Noting) -> None:
    async def work() -> None:
        async with aio.Producer(bootstrap_servers=servers, interceptors=[noting]) as producer:
            await (await producer.send(topic, b"letter"))

    asyncio.run(work())


def settings_for(servers: str, topic: str, noting: Noting, **more: Any) -> dict[str, Any]:
    own = {"group_id": topic, "auto_offset_reset": "earliest", "interceptors": [noting]}
    return {"bootstrap_servers": servers, **own, **more}


def read(servers: str, topic: str, noting: Noting) -> None:
    settings = settings_for(servers, topic, noting, enable_auto_commit=False)
    with Consumer(**settings) as consumer:
        consumer.subscribe([topic])
        assert len(consumer.poll(timeout=60)) == 1
        consumer.commit()


def read_in_asyncio(servers: str, topic: str, noting: Noting) -> None:
    async def work() -> None:
        settings = settings_for(servers, topic, noting, enable_auto_commit=False)
        async with aio.Consumer(**settings) as consumer:
            await consumer.subscribe([topic])
            assert len(await consumer.poll(timeout=60)) == 1
            await consumer.commit_async()

    asyncio.run(work())


Work = Callable[[str, str, Noting], None]


@pytest.mark.parametrize("work", [send, send_in_asyncio])
def test_both_producers_ask_and_tell(servers: str, work: Work) -> None:
    noting = Noting()
    work(servers, new_topic(servers), noting)
    assert noting.noted == [("sent", b"letter"), ("landed", 0, None), "closed"]


@pytest.mark.parametrize("work", [read, read_in_asyncio])
def test_both_consumers_ask_and_tell(servers: str, work: Work) -> None:
    topic, noting = new_topic(servers), Noting()
    send(servers, topic, Noting())
    work(servers, topic, noting)
    assert noting.noted == [("read", b"letter"), ("committed", 1), "closed"]


def test_automatic_commits_are_told_too(servers: str) -> None:
    topic, noting = new_topic(servers), Noting()
    send(servers, topic, Noting())
    settings = settings_for(servers, topic, noting, auto_commit_interval_ms=1)
    with Consumer(**settings) as consumer:
        consumer.subscribe([topic])
        assert len(consumer.poll(timeout=60)) == 1

        def is_told() -> bool:
            consumer.poll(timeout=0.01)
            return ("committed", 1) in noting.noted

        wait_until(is_told, "an automatic commit")


def opentelemetry() -> ModuleType:
    """Return a stand-in for the `opentelemetry` module, limited to the functions in use."""
    module = ModuleType("opentelemetry.propagate")

    def inject(carrier: dict[str, str]) -> None:
        carrier["traceparent"] = TRACE

    def extract(carrier: dict[str, str]) -> dict[str, str]:
        return {"from": carrier["traceparent"]}

    vars(module).update(inject=inject, extract=extract)
    return module


def test_a_trace_arrives_with_the_record(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", opentelemetry())
    topic, traces = new_topic(servers), TracePropagation()
    with Producer(bootstrap_servers=servers, interceptors=[traces]) as producer:
        producer.send(topic, b"letter", headers=[("mine", b"1")]).result(60)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (record,) = consumer.poll(timeout=60)
    assert list(record.headers) == [("mine", b"1"), ("traceparent", TRACE.encode())]
    assert traces.context_of(record) == {"from": TRACE}
