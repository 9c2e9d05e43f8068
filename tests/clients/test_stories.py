"""The stories of every client library with a broker, over real sockets; the same for each."""

from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.clients.driver import CODECS, AdminDriver, Driver, Sent
from tests.clients.drivers.librdkafka import LibrdkafkaDriver

NOON_MS = 1_700_000_000_000


def letters(count: int, *, start: int = 0) -> list[Sent]:
    return [
        Sent(f"letter {number}".encode(), b"Ottla", (("from", b"Prague"),), NOON_MS + number)
        for number in range(start, start + count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_in_any_codec_is_consumed(driver: Driver, topic: str, codec: str) -> None:
    sent = letters(300)
    driver.produce(topic, sent, codec=codec)
    found = driver.consume(topic, 300)
    assert [(one.value, one.key, one.headers) for one in found] == [one[:3] for one in sent]
    assert [one.offset for one in found] == list(range(300))
    if driver.sets_timestamps:
        assert [one.timestamp_ms for one in found] == [one.timestamp_ms for one in sent]


def test_what_one_client_wrote_every_other_reads(driver: Driver, topic: str) -> None:
    sent = letters(50)
    LibrdkafkaDriver(driver.servers).produce(topic, sent, codec="zstd")
    driver.produce(topic, letters(50, start=50), codec="lz4")
    expected = [one.value for one in letters(100)]
    assert [one.value for one in driver.consume(topic, 100)] == expected
    assert [one.value for one in LibrdkafkaDriver(driver.servers).consume(topic, 100)] == expected


def test_a_tombstone_is_kept_as_one_in_a_compacted_topic(driver: Driver, topic: str) -> None:
    LibrdkafkaDriver(driver.servers).create_topic(topic, cleanup_policy="compact")
    driver.produce(topic, [Sent(b"alive", b"a"), Sent(b"short-lived", b"b"), Sent(None, b"b")])
    found = driver.consume(topic, 3)
    assert [(one.key, one.value) for one in found] == [
        (b"a", b"alive"),
        (b"b", b"short-lived"),
        (b"b", None),
    ]


def test_offsets_are_found_by_time(driver: Driver, topic: str) -> None:
    # Not every client can set timestamps: the clock has to advance between the first and the last.
    driver.produce(topic, letters(3))
    found = driver.consume(topic, 3)
    while found[-1].timestamp_ms == found[0].timestamp_ms:
        driver.produce(topic, letters(1, start=len(found)))
        found = driver.consume(topic, len(found) + 1)
    for wanted_ms in (found[0].timestamp_ms, found[0].timestamp_ms + 1, found[-1].timestamp_ms):
        first = next(one.offset for one in found if one.timestamp_ms >= wanted_ms)
        assert driver.offset_at(topic, wanted_ms) == first
    assert driver.offset_at(topic, found[-1].timestamp_ms + 3_600_000) is None


def test_a_topic_is_made_grows_and_goes(driver: Driver, topic: str) -> None:
    # Libraries without admin requests only watch.
    admin = driver if isinstance(driver, AdminDriver) else LibrdkafkaDriver(driver.servers)
    admin.create_topic(topic, 2, retention_ms="3600000")
    assert driver.topics()[topic] == 2
    admin.add_partitions(topic, 5)
    assert driver.topics()[topic] == 5
    driver.produce(topic, letters(3))
    admin.delete_topic(topic)
    assert topic not in driver.topics()
    admin.create_topic(topic)
    driver.produce(topic, letters(1, start=7))
    assert [one.value for one in driver.consume(topic, 1)] == [b"letter 7"]


def test_records_outlive_a_restart(client: type[Driver], tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)) as broker:
        before = client(broker.bootstrap_servers)
        before.produce("kept", letters(100), codec="gzip", is_idempotent=True)
    with Broker(data_dir=str(tmp_path)) as broker:
        after = client(broker.bootstrap_servers)
        assert after.topics()["kept"] == 1
        after.produce("kept", letters(100, start=100), codec="snappy", is_idempotent=True)
        found = after.consume("kept", 200)
    assert [one.value for one in found] == [one.value for one in letters(200)]
