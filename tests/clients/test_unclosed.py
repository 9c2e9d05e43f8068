"""Clients that are never closed: collected, or open when the interpreter exits."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Admin, Consumer, Producer, aio
from ottla.testing import Broker

SECONDS = 60


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


def complaints(work: Callable[[], None]) -> list[str]:
    """Return the warnings from the garbage collection of the work's objects."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
        gc.collect()
        wait_for_threads()
        gc.collect()
    return [str(row.message) for row in caught]


def wait_for_threads() -> None:
    """Wait until no client has a thread any more."""
    deadline = time.monotonic() + SECONDS
    while any(
        thread.name.startswith(("producer ", "consumer ", "ottla-admin"))
        for thread in threading.enumerate()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_producer_says_how_many_records_it_had_left(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> None:
        producer = Producer(
            bootstrap_servers=servers, linger_ms=600_000, delivery_timeout_ms=700_000
        )
        producer.partitions_for(topic)
        for _ in range(3):
            producer.send(topic, b"letter")

    assert complaints(work) == ["unclosed Producer; 3 records may not have been sent"]
    assert "3 records may not have been sent" in caplog.text


def test_a_consumer_and_an_admin_complain_once_and_their_sockets_do_not(
    servers: str, topic: str
) -> None:
    def work() -> None:
        consumer = Consumer(bootstrap_servers=servers, group_id=topic)
        consumer.subscribe([topic])
        consumer.poll(timeout=0.1)
        Admin(bootstrap_servers=servers).topics.list()

    assert sorted(complaints(work)) == ["unclosed Admin", "unclosed Consumer"]


def test_what_was_closed_is_not_complained_about(servers: str, topic: str) -> None:
    def work() -> None:
        Producer(bootstrap_servers=servers).close()
        Consumer(bootstrap_servers=servers, group_id=topic).close()
        Admin(bootstrap_servers=servers).close()

        async def aio_work() -> None:
            for make in (aio.Producer, aio.Consumer, aio.Admin):
                async with make(bootstrap_servers=servers):
                    pass

        asyncio.run(aio_work())

    assert complaints(work) == []


@pytest.mark.parametrize("is_aio", [False, True])
def test_what_a_collected_producer_had_left_arrives_all_the_same(
    servers: str, topic: str, is_aio: bool
) -> None:
    async def of_asyncio() -> None:
        producer = aio.Producer(bootstrap_servers=servers)
        delivery = await producer.send(topic, b"letter")
        del producer
        gc.collect()
        assert (await delivery).offset == 0

    def work() -> None:
        if is_aio:
            asyncio.run(of_asyncio())
        else:
            delivery = Producer(bootstrap_servers=servers).send(topic, b"letter")
            gc.collect()
            assert delivery.result(SECONDS).offset == 0

    (said,) = complaints(work)
    assert said.startswith("unclosed aio.Producer" if is_aio else "unclosed Producer")


@pytest.mark.parametrize("is_over", [False, True])
def test_clients_for_asyncio_complain_too(servers: str, topic: str, is_over: bool) -> None:
    async def work(kept: list[Any]) -> None:
        producer = aio.Producer(bootstrap_servers=servers)
        await (await producer.send(topic, b"letter"))
        admin = aio.Admin(bootstrap_servers=servers)
        await admin.topics.list()
        if is_over:
            kept += [producer, admin]
        del producer, admin
        gc.collect()
        await asyncio.sleep(0)

    found = complaints(lambda: asyncio.run(work([])))
    assert sorted(found) == ["unclosed aio.Admin", "unclosed aio.Producer"]


@pytest.mark.parametrize("client", ["Producer", "Consumer", "Admin"])
def test_an_interpreter_ends_without_a_word_unless_it_is_asked(servers: str, client: str) -> None:
    program = f"import ottla\nclient = ottla.{client}(bootstrap_servers={servers!r})\n"
    program += {
        "Producer": "client.send('letters', b'letter').result()",
        "Consumer": "client.topics()",
        "Admin": "client.topics.list()",
    }[client]
    for flags, said in (([], ""), (["-W", "default"], f"ResourceWarning: unclosed {client}")):
        ended = subprocess.run(
            [sys.executable, *flags, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert ended.stdout == ""
        assert (said in ended.stderr) if said else ended.stderr == ""
        assert "socket" not in ended.stderr
