"""Idempotent producers of every client library, with responses that are lost on the way."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.clients.cutting_proxy import CuttingProxy, broker_behind
from tests.clients.driver import Driver, Sent
from tests.clients.drivers.librdkafka import LibrdkafkaDriver

COUNT = 300
PER_BATCH = 10


@contextmanager
def losing_answers(every: int) -> Iterator[tuple[CuttingProxy, str]]:
    """Run a broker behind a proxy that drops responses; yield the proxy and its address."""
    proxy = CuttingProxy(every=every)
    with broker_behind(proxy) as servers:
        yield proxy, servers


def letters() -> list[Sent]:
    return [Sent(f"letter {number}".encode(), b"Ottla") for number in range(COUNT)]


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_an_idempotent_producer_sends_again_and_nothing_is_there_twice(
    client: type[Driver],
) -> None:
    with losing_answers(every=3) as (proxy, servers):
        driver = client(servers)
        driver.produce("retried", letters(), is_idempotent=True, records_per_batch=PER_BATCH)
        driver.produce("retried", [Sent(b"the end", b"Ottla")])
        found = driver.consume("retried", COUNT + 1)
        assert proxy.cuts > 0
    expected = [one.value for one in letters()]
    assert [one.value for one in found] == [*expected, b"the end"]


def test_without_idempotence_the_same_loss_makes_doubles() -> None:
    with losing_answers(every=3) as (proxy, servers):
        driver = LibrdkafkaDriver(servers)
        driver.produce("doubled", letters(), records_per_batch=PER_BATCH)
        driver.produce("doubled", [Sent(b"the end", b"Ottla")])
        found = driver.consume("doubled", COUNT + 1)
        assert proxy.cuts > 0
    expected = {one.value for one in letters()}
    values = [one.value for one in found]
    assert len(set(values)) < len(values)
    assert set(values) <= expected | {b"the end"}
