"""The producer, both facades, over real sockets, read back by librdkafka."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as Librdkafka
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.clients.errors import NoResponseError
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.state.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
)
from ottla.clients.records.partitioner import partition_for_key
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from tests.clients.test_retry_stories import losing_answers

SECONDS = 60


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def producer(servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=servers) as made:
        yield made


def create(servers: str, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    names = {name.replace("_", "."): value for name, value in config.items()}
    created = admin.create_topics([NewTopic(topic, partitions, 1, config=names)])
    created[topic].result(SECONDS)


def read(servers: str, topic: str, count: int, partitions: int = 1) -> list[Any]:
    """Read with librdkafka until this many messages have arrived, and while there are more."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    messages: list[Any] = []
    ends = 0
    deadline = time.monotonic() + SECONDS
    while (len(messages) < count or ends < partitions) and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                messages.append(message)
            else:
                ends += 1
    consumer.close()
    return messages


def values(messages: list[Any]) -> list[bytes]:
    return [message.value() for message in messages]


def test_a_record_is_read_back_as_it_was_sent(servers: str, topic: str, producer: Producer) -> None:
    delivery = producer.send(
        topic, b"value", b"key", timestamp=1234567, headers=[("a", b"1"), ("a", None)]
    )
    assert delivery.result(SECONDS) == (topic, 0, 0, 1234567)
    assert delivery.done()
    assert delivery.exception() is None
    (message,) = read(servers, topic, 1)
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"key", b"value", 1234567)
    assert message.headers() == [("a", b"1"), ("a", None)]


def test_tombstones_and_text_are_sent(servers: str, topic: str, producer: Producer) -> None:
    producer.send(topic, None, "key")
    producer.send(topic, "käse")
    producer.flush(SECONDS)
    messages = read(servers, topic, 2)
    assert [(row.key(), row.value()) for row in messages] == [
        (b"key", None),
        (None, "käse".encode()),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_librdkafka(servers: str, topic: str, codec: str) -> None:
    sent = [b"%d %s" % (number, b"x" * 50) for number in range(5_000)]
    with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
        deliveries = [producer.send(topic, value) for value in sent]
        assert [row.result(SECONDS).offset for row in deliveries] == list(range(5_000))
    assert values(read(servers, topic, len(sent))) == sent


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks(servers: str, topic: str, acks: str) -> None:
    with Producer(bootstrap_servers=servers, acks=acks) as producer:
        deliveries = [producer.send(topic, b"%d" % number) for number in range(100)]
        producer.flush(SECONDS)
        offsets = [row.result(SECONDS).offset for row in deliveries]
    assert offsets == ([-1] * 100 if acks == "0" else list(range(100)))
    assert values(read(servers, topic, 100)) == [b"%d" % number for number in range(100)]


def test_asyncio_sends_and_awaits(servers: str, topic: str) -> None:
    async def story() -> None:
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            deliveries = [await producer.send(topic, b"%d" % number) for number in range(1_000)]
            assert (await deliveries[-1]).offset == 999
            await producer.flush(SECONDS)
            assert all(row.done() for row in deliveries)
            with pytest.raises(RuntimeError, match="await the delivery"):
                (await producer.send(topic, b"last")).result(1)

    asyncio.run(story())
    assert len(read(servers, topic, 1_001)) == 1_001


def test_a_synchronous_delivery_can_be_awaited_elsewhere(
    servers: str, topic: str, producer: Producer
) -> None:
    async def story() -> int:
        return (await producer.send(topic, b"value")).offset

    assert asyncio.run(story()) == 0


def test_a_record_that_is_waited_for_does_not_linger(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=600_000) as producer:
        producer.send(topic, b"first").result(SECONDS)
        producer.send(topic, b"second")
        producer.flush(SECONDS)
    assert values(read(servers, topic, 2)) == [b"first", b"second"]


def test_lingering_records_go_by_themselves(servers: str, topic: str) -> None:
    told = threading.Event()
    with Producer(bootstrap_servers=servers, linger_ms=20) as producer:
        producer.send(topic, b"value", on_delivery=lambda error, metadata: told.set())
        assert told.wait(SECONDS)


def test_callbacks_get_what_became_of_each_record_in_order(
    servers: str, topic: str, producer: Producer
) -> None:
    told: list[Any] = []

    def callback(error: BaseException | None, metadata: Any) -> None:
        told.append((error, metadata.offset))
        raise ValueError("the next one is called all the same")

    for _ in range(100):
        producer.send(topic, b"value", on_delivery=callback)
    producer.flush(SECONDS)
    assert told == [(None, number) for number in range(100)]


def test_done_callbacks_are_called_once(servers: str, topic: str, producer: Producer) -> None:
    told: list[Any] = []
    delivery = producer.send(topic, b"value")
    delivery.add_done_callback(told.append)
    delivery.result(SECONDS)
    producer.flush(SECONDS)
    delivery.add_done_callback(told.append)
    assert told == [delivery, delivery]


def test_a_key_goes_where_librdkafka_sends_it(servers: str, topic: str) -> None:
    create(servers, topic, 7)
    keys = [b"", b"a", b"key", "größe".encode(), *(b"key-%d" % number for number in range(200))]
    for name in ("murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a"):
        theirs: dict[bytes, int] = {}
        other = Librdkafka({"bootstrap.servers": servers, "partitioner": name})

        def note(_error: Any, message: Any, into: dict[bytes, int] = theirs) -> None:
            into[message.key()] = message.partition()

        for key in keys[1:]:
            other.produce(topic, b"v", key, on_delivery=note)
        other.flush(SECONDS)
        with Producer(bootstrap_servers=servers, partitioner=name) as producer:
            ours = {key: producer.send(topic, b"v", key).partition for key in keys[1:]}
        assert ours == theirs, name


def test_records_without_a_key_reach_all_partitions(servers: str, topic: str) -> None:
    create(servers, topic, 4)
    with Producer(bootstrap_servers=servers, batch_size=1_000) as producer:
        used = {producer.send(topic, b"x" * 100).partition for _ in range(5_000)}
    assert used == {0, 1, 2, 3}


def test_partitions_that_are_added_are_used(servers: str, topic: str) -> None:
    create(servers, topic, 1)
    deadline = time.monotonic() + SECONDS
    used: set[int] = set()
    with Producer(bootstrap_servers=servers, metadata_max_age_ms=50) as producer:
        producer.send(topic, b"before").result(SECONDS)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS)
        while used != {0, 1, 2} and time.monotonic() < deadline:
            used.add(producer.send(topic, b"after").result(SECONDS).partition)
    assert used == {0, 1, 2}


def test_a_topic_made_anew_with_fewer_partitions_is_written_to(servers: str, topic: str) -> None:
    create(servers, topic, 4)
    key = next(key for key in map(b"%d".__mod__, range(100)) if partition_for_key(key, 4) == 3)
    hurry = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 500, "linger_ms": 0}
    with Producer(bootstrap_servers=servers, allow_auto_create_topics=False, **hurry) as producer:
        assert producer.send(topic, b"before", key).result(SECONDS).partition == 3
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_topics([topic])[topic].result(SECONDS)
        create(servers, topic, 1)
        deadline = time.monotonic() + SECONDS
        while (sent := producer.send(topic, b"after", key)).exception(SECONDS) is not None:
            assert time.monotonic() < deadline, sent.exception()
        assert sent.partition == 0


def test_many_threads_lose_and_double_nothing(servers: str, topic: str) -> None:
    create(servers, topic, 3)

    def work(thread: int) -> None:
        for number in range(5_000):
            producer.send(topic, b"%d" % number, b"%d" % thread)

    with Producer(bootstrap_servers=servers, batch_size=10_000) as producer:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    messages = read(servers, topic, 30_000, 3)
    for thread in range(6):
        mine = [row.value() for row in messages if row.key() == b"%d" % thread]
        assert mine == [b"%d" % number for number in range(5_000)]


@pytest.fixture
def _hasty_threads() -> Iterator[None]:
    """Switch threads often, so that their steps interleave."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=[0, 5], ids=["at-once", "lingering"])
def waited_for(
    servers: str, request: pytest.FixtureRequest, _hasty_threads: None
) -> Iterator[Producer]:
    """A producer for sends that are awaited one by one."""
    with Producer(bootstrap_servers=servers, linger_ms=request.param) as made:
        yield made


def test_every_awaited_record_is_counted_once(
    servers: str, topic: str, waited_for: Producer
) -> None:
    told: list[int] = []
    for number in range(100):
        delivery = waited_for.send(
            topic, b"%d" % number, on_delivery=lambda _, row: told.append(row.offset)
        )
        assert delivery.result(SECONDS).offset == number
    waited_for.flush(SECONDS)  # the last callback may still run
    counts = waited_for.metrics()
    assert told == list(range(100))
    assert counts["record-send-total"] == 100
    assert counts["buffer-available-bytes"] == counts["buffer-total-bytes"]
    assert values(read(servers, topic, 100)) == [b"%d" % number for number in range(100)]


def test_what_is_waited_for_and_what_is_not_keep_their_order(
    servers: str, topic: str, waited_for: Producer
) -> None:
    for number in range(4_000):
        delivery = waited_for.send(topic, b"%d" % number)
        if number % 7 == 0:
            assert delivery.result(SECONDS).offset == number
    waited_for.flush(SECONDS)
    assert values(read(servers, topic, 4_000)) == [b"%d" % number for number in range(4_000)]


@pytest.mark.parametrize("partitions", [1, 3])
def test_threads_that_wait_lose_and_double_nothing(
    servers: str, topic: str, waited_for: Producer, partitions: int
) -> None:
    create(servers, topic, partitions)

    def work(thread: int) -> None:
        for number in range(300):
            delivery = waited_for.send(topic, b"%d" % number, b"%d" % thread)
            if number % 4:
                delivery.result(SECONDS)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waited_for.flush(SECONDS)
    counts = waited_for.metrics()
    assert counts["record-send-total"] == 1_200
    assert counts["buffer-available-bytes"] == counts["buffer-total-bytes"]
    assert counts["requests-in-flight"] == 0
    messages = read(servers, topic, 1_200, partitions)
    for thread in range(4):
        mine = [row.value() for row in messages if row.key() == b"%d" % thread]
        assert mine == [b"%d" % number for number in range(300)]


def test_every_waiter_of_a_record_gets_its_result(topic: str, waited_for: Producer) -> None:
    for number in range(50):
        delivery = waited_for.send(topic, b"x")
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(delivery.result, SECONDS) for _ in range(3)]
        assert [row.result().offset for row in waiting] == [number] * 3


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_every_awaited_record_gets_a_result_although_responses_are_lost(
    topic: str, linger_ms: int
) -> None:
    with losing_answers(every=10) as (proxy, servers):
        with Producer(
            bootstrap_servers=servers, linger_ms=linger_ms, retry_backoff_ms=5
        ) as producer:
            offsets = [
                producer.send(topic, b"%d" % number).result(SECONDS).offset for number in range(100)
            ]
        assert offsets == list(range(100))
        assert proxy.cuts > 3
        assert values(read(servers, topic, 100)) == [b"%d" % number for number in range(100)]


def test_order_is_kept_and_nothing_doubled_where_answers_are_lost(topic: str) -> None:
    sent = [b"%d" % number for number in range(20_000)]
    with losing_answers(every=4) as (proxy, servers):
        with Producer(
            bootstrap_servers=servers, batch_size=2_000, linger_ms=0, retry_backoff_ms=5
        ) as producer:
            deliveries = [producer.send(topic, value) for value in sent]
            producer.flush(SECONDS)
            offsets = [row.result(SECONDS).offset for row in deliveries]
            assert producer.metrics()["record-retry-total"] > 0
        assert proxy.cuts > 3
        assert values(read(servers, topic, len(sent))) == sent
        assert offsets == list(range(len(sent)))


def test_one_request_at_a_time_keeps_order_without_idempotence(topic: str) -> None:
    sent = [b"%d" % number for number in range(5_000)]
    with losing_answers(every=4) as (_, servers):
        with Producer(
            bootstrap_servers=servers,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            batch_size=2_000,
            linger_ms=0,
            retry_backoff_ms=5,
        ) as producer:
            for value in sent:
                producer.send(topic, value)
            producer.flush(SECONDS)
        found = values(read(servers, topic, len(sent)))
        assert len(found) > len(sent)  # records that were sent twice are in the log twice
        assert list(dict.fromkeys(found)) == sent


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        yield broker


def test_a_broker_that_restarts_gets_all_records_once(own_broker: Broker, topic: str) -> None:
    sent = [b"%d" % number for number in range(6_000)]
    with Producer(bootstrap_servers=own_broker.bootstrap_servers, batch_size=5_000) as producer:
        for number, value in enumerate(sent):
            producer.send(topic, value)
            if number % 2_000 == 1_000:
                own_broker.restart()
        producer.flush(SECONDS)
    assert values(read(own_broker.bootstrap_servers, topic, len(sent))) == sent


def test_a_batch_that_the_broker_finds_too_large_is_cut(servers: str, topic: str) -> None:
    create(servers, topic, 1, max_message_bytes="2000")
    sent = [b"%d %s" % (number, b"x" * 300) for number in range(500)]
    told: list[int] = []
    with Producer(bootstrap_servers=servers) as producer:
        deliveries = [
            producer.send(
                topic, value, on_delivery=lambda _error, metadata: told.append(metadata.offset)
            )
            for value in sent
        ]
        producer.flush(SECONDS)
        assert producer.metrics()["batch-split-total"] > 0
        assert producer.metrics()["buffer-available-bytes"] == 32 << 20
    assert [row.result(SECONDS).offset for row in deliveries] == list(range(500))
    assert sorted(told) == list(range(500))
    assert values(read(servers, topic, 500)) == sent


def test_a_record_too_large_for_the_broker_fails_alone(servers: str, topic: str) -> None:
    create(servers, topic, 1, max_message_bytes="2000")
    with Producer(bootstrap_servers=servers) as producer:
        deliveries = [producer.send(topic, b"x" * size) for size in (10, 5_000, 20)]
        producer.flush(SECONDS)
        after = producer.send(topic, b"after")
        assert after.result(SECONDS).offset == 2
    error = deliveries[1].exception(SECONDS)
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert [len(row) for row in values(read(servers, topic, 3))] == [10, 20, 5]


def test_a_record_above_max_request_size_is_refused_at_once(topic: str) -> None:
    with (
        Producer(bootstrap_servers="127.0.0.1:1", max_request_size=1_000_000) as producer,
        pytest.raises(RecordTooLargeError, match=r"would take 10000\d\d bytes .* is 1000000"),
    ):
        producer.send(topic, b"x" * 1_000_000)


def fill(producer: Producer, topic: str) -> None:
    for _ in range(200):
        producer.send(topic, b"x" * 100)


@pytest.mark.parametrize("max_block_ms", [0, 50])
def test_a_full_buffer_refuses_at_once_or_after_max_block_ms(topic: str, max_block_ms: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        producer = Producer(
            bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}",
            buffer_memory=10_000,
            max_block_ms=max_block_ms,
        )
        producer._core.accumulator.set_partition_count(topic, 1)
        with pytest.raises(BufferFullError, match=rf"max\.block\.ms, {max_block_ms}: .*10000"):
            fill(producer, topic)
        producer.close(0)


def test_a_full_buffer_is_waited_for(servers: str, topic: str) -> None:
    sent = [b"%d %s" % (number, b"x" * 100) for number in range(5_000)]
    with Producer(bootstrap_servers=servers, buffer_memory=20_000) as producer:
        for value in sent:
            producer.send(topic, value)
    assert values(read(servers, topic, len(sent))) == sent


def test_a_full_buffer_is_waited_for_in_asyncio(servers: str, topic: str) -> None:
    sent = [b"%d %s" % (number, b"x" * 100) for number in range(5_000)]

    async def story() -> None:
        async with AsyncProducer(bootstrap_servers=servers, buffer_memory=20_000) as producer:
            for value in sent:
                await producer.send(topic, value)

    asyncio.run(story())
    assert values(read(servers, topic, len(sent))) == sent


def test_records_are_given_up_after_delivery_timeout_ms(topic: str) -> None:
    """The broker accepts the connection of a producer that knows the topic, and never responds."""
    with Broker() as broker:
        producer = Producer(
            bootstrap_servers=broker.bootstrap_servers,
            request_timeout_ms=300,
            delivery_timeout_ms=1_000,
            linger_ms=0,
        )
        producer.send(topic, b"before").result(SECONDS)
        port = broker.port
        broker.stop()
        with socket.create_server(("127.0.0.1", port)):
            deliveries = [producer.send(topic, b"%d" % number) for number in range(10)]
            errors = [row.exception(SECONDS) for row in deliveries]
            assert all(isinstance(error, DeliveryTimeoutError) for error in errors)
            assert "delivery.timeout.ms, 1000" in str(errors[0])
            producer.close(1)


def test_a_topic_that_cannot_be_found_is_told_after_max_block_ms(servers: str) -> None:
    with (
        Producer(
            bootstrap_servers=servers, max_block_ms=300, allow_auto_create_topics=False
        ) as producer,
        pytest.raises(NoResponseError, match=r"'nowhere' was not found within max\.block\.ms, 300"),
    ):
        producer.send("nowhere", b"value")


def test_a_partition_that_is_not_there_is_told_at_once(
    servers: str, topic: str, producer: Producer
) -> None:
    producer.send(topic, b"value").result(SECONDS)
    for partition in (7, -1):
        with pytest.raises(ApiError, match=f"there is no {partition}"):
            producer.send(topic, b"value", partition=partition)


def test_nothing_can_be_sent_after_the_end(servers: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=servers)
    delivery = producer.send(topic, b"value")
    producer.close()
    assert delivery.result(0).offset == 0
    with pytest.raises(ProducerClosedError):
        producer.send(topic, b"value")
    producer.close()


def test_closing_without_time_fails_what_is_left(topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        producer = Producer(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}")
        producer._core.accumulator.set_partition_count(topic, 1)
        delivery = producer.send(topic, b"value")
        producer.close(0)
        assert isinstance(delivery.exception(SECONDS), ProducerClosedError)


def test_serializers_and_interceptors_see_every_record(servers: str, topic: str) -> None:
    acknowledged: list[int] = []

    class Interceptor:
        def on_send(self, record: Any) -> Any:
            return record._replace(value={**record.value, "seen": True})

        def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
            acknowledged.append(metadata.offset)

    with Producer(
        bootstrap_servers=servers,
        key_serializer="string",
        value_serializer="json",
        interceptors=[Interceptor()],
    ) as producer:
        producer.send(topic, {"a": 1}, "key").result(SECONDS)
    (message,) = read(servers, topic, 1)
    assert (message.key(), message.value()) == (b"key", b'{"a":1,"seen":true}')
    assert acknowledged == [0]


def lane_of(producer: Producer, topic: str) -> Any:
    return next(row for row in producer._core.accumulator.lanes() if row.topic == topic)


def test_a_gap_in_the_sequences_is_mended_by_a_new_epoch(
    servers: str, topic: str, producer: Producer
) -> None:
    producer.send(topic, b"0").result(SECONDS)
    epoch = producer._core.sender.identity.producer_epoch
    lane_of(producer, topic).queue.next_sequence += 1_000  # as if the broker had lost some
    deliveries = [producer.send(topic, b"%d" % number) for number in range(1, 500)]
    assert [row.result(SECONDS).offset for row in deliveries] == list(range(1, 500))
    assert producer._core.sender.identity.producer_epoch == epoch + 1
    assert values(read(servers, topic, 500)) == [b"%d" % number for number in range(500)]


def test_a_gap_with_five_batches_on_their_way_loses_and_doubles_nothing(
    servers: str, topic: str
) -> None:
    with Producer(bootstrap_servers=servers, batch_size=1_000, linger_ms=0) as producer:
        sent = [b"%d" % number for number in range(20_000)]
        for number, value in enumerate(sent):
            producer.send(topic, value)
            if number % 5_000 == 4_000:
                producer.flush(SECONDS)  # the producer asserts that batches in flight follow on
                lane_of(producer, topic).queue.next_sequence += 17
        producer.flush(SECONDS)
        assert producer.metrics()["record-error-total"] == 0
    assert values(read(servers, topic, len(sent))) == sent


def test_an_epoch_that_is_over_fails_its_batch_and_no_other(
    servers: str, topic: str, producer: Producer
) -> None:
    for turn in range(2):  # the broker has to see a later epoch first
        producer.send(topic, b"%d" % turn).result(SECONDS)
        lane_of(producer, topic).queue.must_renumber = True
    producer.send(topic, b"2").result(SECONDS)
    identity = producer._core.sender.identity
    identity.producer_epoch -= 2
    error = producer.send(topic, b"refused").exception(SECONDS)
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.INVALID_PRODUCER_EPOCH
    identity.producer_epoch += 3  # an epoch that was not used yet
    assert producer.send(topic, b"3").result(SECONDS).offset == 3
    assert values(read(servers, topic, 4)) == [b"0", b"1", b"2", b"3"]


def test_the_last_epoch_is_followed_by_another_id(
    servers: str, topic: str, producer: Producer
) -> None:
    producer.send(topic, b"0").result(SECONDS)
    identity = producer._core.sender.identity
    identity.producer_epoch = 2**15 - 1
    first_id = identity.producer_id
    producer.send(topic, b"1").result(SECONDS)
    lane_of(producer, topic).queue.must_renumber = True
    assert producer.send(topic, b"2").result(SECONDS).offset == 2
    assert identity.producer_id != first_id
