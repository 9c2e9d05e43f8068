"""The consumer through failures of brokers, connections and topics."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from ottla import CorruptRecordError, LogTruncationError, TopicPartition, aio
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import read_client_settings
from ottla.clients.consumer.fetching.prefetcher import LOOK_AGAIN_S
from ottla.model.address import Address
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from tests.clients.consumer_stories import (
    SECONDS_MAX,
    consumer_of,
    damage,
    delete_topic,
    librdkafka_producer,
    make_topic,
    new_topic,
    read,
    send,
    wait_until,
)
from tests.clients.cutting_proxy import CuttingProxy, broker_behind


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "ottla.clients")


def test_a_consumer_goes_on_when_the_broker_comes_back() -> None:
    with Broker() as broker:
        topic = new_topic(broker.bootstrap_servers)
        send(broker.bootstrap_servers, topic, [b"before"])
        with consumer_of(broker.bootstrap_servers, topic, retry_backoff_ms=10) as consumer:
            assert [record.value for record in read(consumer, 1)] == [b"before"]
            for number in range(3):
                broker.restart()
                send(broker.bootstrap_servers, topic, [b"after %d" % number])
                assert [record.value for record in read(consumer, 1)] == [b"after %d" % number]


def test_a_consumer_waits_for_a_broker_that_is_not_there_yet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with consumer_of(f"127.0.0.1:{port}", "letters", retry_backoff_ms=10) as consumer:
        assert consumer.poll(timeout=0.2) == []
        with Broker(port=port) as broker:
            send(broker.bootstrap_servers, "letters", [b"dear"])
            assert [record.value for record in read(consumer, 1)] == [b"dear"]


def test_answers_that_get_lost_are_asked_for_again_and_nothing_comes_twice() -> None:
    proxy = CuttingProxy(every=3, api_key=ApiKey.FETCH)
    with broker_behind(proxy) as servers:
        topic = new_topic(servers)
        send(servers, topic, [b"%d" % n for n in range(2000)], batch_num_messages=20)
        limits = {"max_partition_fetch_bytes": 2000, "retry_backoff_ms": 5}
        with consumer_of(servers, topic, **limits) as consumer:
            found = read(consumer, 2000)
        assert proxy.cuts > 3
    assert [record.value for record in found] == [b"%d" % n for n in range(2000)]


def test_a_slow_consumer_fetches_no_more_than_its_buffer_holds() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        topic = new_topic(servers, partitions=4)
        producer = librdkafka_producer(servers, batch_size=20_000)
        for number in range(4000):
            producer.produce(topic, b"x" * 1000, partition=number % 4)
        assert producer.flush(SECONDS_MAX) == 0
        limits = {"max_partition_fetch_bytes": 50_000, "fetch_max_bytes": 150_000}
        with consumer_of(servers, topic, **limits) as consumer:
            consumer.assign([(topic, number) for number in range(4)])
            partitions = consumer.core.state.assigned.values()
            found = []
            while len(found) < 4000:
                found += consumer.poll(100, timeout=SECONDS_MAX)
                buffered = [partition.buffered_bytes for partition in partitions]
                assert sum(buffered) <= 2 * limits["fetch_max_bytes"]
                assert max(buffered) <= 3 * limits["max_partition_fetch_bytes"]
            for number in range(4):
                offsets = [record.offset for record in found if record.partition == number]
                assert offsets == list(range(1000))


def test_a_full_paused_partition_delays_no_other_partition() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        full, empty = new_topic(servers), new_topic(servers)
        send(servers, full, [b"x" * 1000] * 20, batch_num_messages=1)
        limits = {"max_partition_fetch_bytes": 2000}
        with consumer_of(servers, full, empty, **limits) as consumer:
            assert len(consumer.poll(1, timeout=SECONDS_MAX)) == 1
            wait_until(lambda: consumer.core.state.is_room_awaited, "the buffer is full")
            consumer.pause((full, 0))
            send(servers, empty, [b"dear"])
            found = consumer.poll(timeout=LOOK_AGAIN_S / 2)
            assert [record.value for record in found] == [b"dear"]


def test_a_topic_that_is_missing_is_read_once_it_is_there() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        servers = broker.bootstrap_servers
        with consumer_of(servers, "later", retry_backoff_ms=10) as consumer:
            assert consumer.poll(timeout=0.2) == []
            make_topic(servers, "later")
            send(servers, "later", [b"dear"])
            assert [record.value for record in read(consumer, 1)] == [b"dear"]


def test_a_topic_made_anew_is_read_from_its_start() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "letters")
        send(servers, "letters", [b"1", b"2", b"3"])
        settings = {"auto_offset_reset": "latest", "retry_backoff_ms": 10}
        with consumer_of(servers, "letters", **settings) as consumer:
            consumer.seek(("letters", 0), 0)
            assert len(read(consumer, 3)) == 3
            delete_topic(servers, "letters")
            make_topic(servers, "letters")
            send(servers, "letters", [b"%d" % n for n in range(10, 20)])
            assert [r.value for r in read(consumer, 10)] == [b"%d" % n for n in range(10, 20)]


def test_a_topic_made_anew_is_read_from_its_start_though_it_was_known_when_assigned() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "letters")
        send(servers, "letters", [b"1", b"2", b"3"])
        with consumer_of(servers, "letters", retry_backoff_ms=10) as consumer:
            for _ in range(2):
                consumer.unsubscribe()
                consumer.assign([TopicPartition("letters", 0)])
                assert len(read(consumer, 3)) == 3
            consumer.pause(("letters", 0))
            assert consumer.poll(timeout=0.5) == []  # no fetch is on its way then
            delete_topic(servers, "letters")
            make_topic(servers, "letters")
            send(servers, "letters", [b"%d" % n for n in range(10, 20)])
            consumer.resume(("letters", 0))
            assert read(consumer, 1)[0].value == b"10"


def test_without_a_reset_a_topic_made_anew_is_told_to_the_application() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "letters")
        send(servers, "letters", [b"1", b"2", b"3"])
        settings = {"auto_offset_reset": "none", "retry_backoff_ms": 10}
        with consumer_of(servers, "letters", **settings) as consumer:
            consumer.seek(("letters", 0), 0)
            assert len(read(consumer, 3)) == 3
            delete_topic(servers, "letters")
            make_topic(servers, "letters")
            with pytest.raises(LogTruncationError, match="letters-0: read up to 3"):
                read(consumer, 1)


def test_a_position_with_an_epoch_of_another_log_is_noticed() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        topic = new_topic(servers)
        send(servers, topic, [b"%d" % n for n in range(5)])
        with consumer_of(servers, topic, auto_offset_reset="none") as consumer:
            consumer.seek((topic, 0), 2, leader_epoch=0)
            assert read(consumer, 3)[0].offset == 2
            consumer.seek((topic, 0), 9, leader_epoch=0)
            with pytest.raises(LogTruncationError) as raised:
                read(consumer, 1)
            assert (raised.value.offset, raised.value.diverged_at) == (9, 5)
        with consumer_of(servers, topic) as consumer:
            consumer.seek((topic, 0), 9, leader_epoch=0)
            assert consumer.poll(timeout=0.3) == []
            assert consumer.position((topic, 0)) == 5


def test_damage_on_the_brokers_disk_is_named_and_can_be_passed(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "letters")
        for value in (b"before", b"damaged", b"after"):
            send(servers, "letters", [value])
        wait_until(lambda: damage(tmp_path), "the log is not on disk")
        with consumer_of(servers, "letters") as consumer:
            assert [record.value for record in read(consumer, 1)] == [b"before"]
            with pytest.raises(CorruptRecordError, match="letters-0 offset 1: ") as raised:
                read(consumer, 1)
            assert consumer.position(("letters", 0)) == 1
            consumer.seek(raised.value.partition, raised.value.next_offset)
            assert [record.value for record in read(consumer, 1)] == [b"after"]


# -- asyncio ------------------------------------------------------------------------------------


def test_the_asyncio_face_reads_seeks_and_iterates() -> None:
    async def story(servers: str, topic: str) -> None:
        settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
        async with aio.Consumer(settings) as consumer:
            name = TopicPartition(topic, 0)
            consumer.assign([name])
            assert [record.offset for record in await consumer.poll(3, timeout=SECONDS_MAX)] == [
                0,
                1,
                2,
            ]
            assert await consumer.position(name) == 3
            assert await consumer.end_offsets([name]) == {name: 10}
            found = [record.offset async for record in consumer.records(timeout=0.5)]
            assert found == list(range(3, 10))
            consumer.seek(name, 8)
            assert (await consumer.poll_arrow(timeout=SECONDS_MAX)).num_rows == 2
            waiting = asyncio.ensure_future(consumer.poll(timeout=SECONDS_MAX))
            await asyncio.to_thread(send, servers, topic, [b"late"])
            assert [record.value for record in await waiting] == [b"late"]

    with Broker() as broker:
        topic = new_topic(broker.bootstrap_servers)
        send(broker.bootstrap_servers, topic, [b"%d" % n for n in range(10)])
        asyncio.run(story(broker.bootstrap_servers, topic))


# -- leaders ------------------------------------------------------------------------------------


def test_a_leader_hint_counts_if_it_is_newer_and_the_leader_is_known() -> None:
    async def story(servers: str, topic: str) -> None:
        async with ClusterView(read_client_settings({"bootstrap.servers": servers}, {})) as view:
            name, elsewhere = TopicPartition(topic, 0), Address("127.0.0.1", 1)
            assert not view.learn_leader(name, 7, 5, elsewhere)  # the topic is not known yet
            known = await view.partition(name)
            assert not view.learn_leader(name, 7, known.leader_epoch, elsewhere)
            assert not view.learn_leader(name, 7, known.leader_epoch + 1, None)
            assert (await view.partition(name)).leader_id == known.leader_id
            assert view.learn_leader(name, 7, known.leader_epoch + 1, elsewhere)
            assert (await view.partition(name)).leader_id == 7
            assert view.address_of(7) == elsewhere

    with Broker() as broker:
        topic = new_topic(broker.bootstrap_servers)
        asyncio.run(story(broker.bootstrap_servers, topic))
