"""The consumer against a real broker, with records that librdkafka has written."""

import threading
import time
from collections.abc import Iterator

import pytest

from ottla import (
    ApiError,
    Consumer,
    ConsumerError,
    DeserializationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicPartition,
    WakeupError,
)
from ottla.clients.consumer.state.errors import ConcurrentUseError
from ottla.clients.errors import ClientClosedError
from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from tests.clients.consumer_stories import (
    SECONDS_MAX,
    consumer_of,
    librdkafka_producer,
    new_topic,
    read,
    send,
    wait_until,
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


# -- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_with_headers_tombstones_and_missing_keys(servers: str, codec: str) -> None:
    topic = new_topic(servers)
    producer = librdkafka_producer(servers, compression_type=codec)
    for number in range(50):
        value = None if number % 5 == 0 else b"dear %d" % number * 20
        key = None if number % 3 == 0 else b"k%d" % number
        headers = [("n", b"%d" % number), ("null", None)] if number % 2 else []
        producer.produce(topic, value, key, partition=0, timestamp=1000 + number, headers=headers)
    assert producer.flush(SECONDS_MAX) == 0
    with consumer_of(servers, topic) as consumer:
        found = read(consumer, 50)
    for number, record in enumerate(found):
        assert (record.topic, record.partition, record.offset) == (topic, 0, number)
        assert (record.timestamp, record.timestamp_type) == (1000 + number, 0)
        assert record.value == (None if number % 5 == 0 else b"dear %d" % number * 20)
        assert record.key == (None if number % 3 == 0 else b"k%d" % number)
        wanted = (("n", b"%d" % number), ("null", None)) if number % 2 else ()
        assert record.headers == wanted
        assert record.leader_epoch >= 0


def test_the_brokers_time_is_told_as_such(servers: str) -> None:
    topic = new_topic(servers, message_timestamp_type="LogAppendTime")
    send(servers, topic, [b"dear"])
    with consumer_of(servers, topic) as consumer:
        assert read(consumer, 1)[0].timestamp_type == 1


@pytest.mark.parametrize("is_committed_only", [False, True])
def test_aborted_transactions_are_for_read_uncommitted_alone(
    servers: str, is_committed_only: bool
) -> None:
    topic = new_topic(servers)
    producer = librdkafka_producer(servers, transactional_id=topic)
    producer.init_transactions(SECONDS_MAX)
    for number in range(4):
        producer.begin_transaction()
        for part in (b"a", b"b"):
            producer.produce(topic, b"%d%s" % (number, part), partition=0)
        assert producer.flush(SECONDS_MAX) == 0  # an abort drops records that were not sent yet
        if number % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
    level = "read_committed" if is_committed_only else "read_uncommitted"
    with consumer_of(servers, topic, isolation_level=level) as consumer:
        wanted = [b"0a", b"0b", b"2a", b"2b"]
        if not is_committed_only:
            wanted = [b"0a", b"0b", b"1a", b"1b", b"2a", b"2b", b"3a", b"3b"]
        assert [record.value for record in read(consumer, len(wanted))] == wanted
        assert consumer.poll(timeout=0.2) == []
        assert consumer.position((topic, 0)) == 12  # over the markers, too
        assert consumer.lag((topic, 0)) == 0
        consumer.seek_to_beginning()
        assert consumer.poll_arrow(["value"])["value"].to_pylist() == wanted


def test_what_an_open_transaction_has_written_waits_for_its_end(servers: str) -> None:
    topic = new_topic(servers)
    producer = librdkafka_producer(servers, transactional_id=topic)
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"dear", partition=0)
    producer.flush(SECONDS_MAX)
    with consumer_of(servers, topic, isolation_level="read_committed") as consumer:
        assert consumer.poll(timeout=0.3) == []
        assert consumer.end_offsets([(topic, 0)]) == {(topic, 0): 0}
        producer.commit_transaction(SECONDS_MAX)
        assert [record.value for record in read(consumer, 1)] == [b"dear"]


def test_poll_returns_at_most_what_it_is_asked_for(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b"%d" % n for n in range(30)])
    with consumer_of(servers, topic, max_poll_records=7) as consumer:
        assert len(consumer.poll(3, timeout=SECONDS_MAX)) == 3
        assert [len(consumer.poll()) for _ in range(4)] == [7, 7, 7, 6]
        with pytest.raises(ValueError, match="at least 1"):
            consumer.poll(0)


def test_a_record_larger_than_every_limit_still_comes(servers: str) -> None:
    topic = new_topic(servers, max_message_bytes="8000000")
    sizes = [10, 5_000_000, 20, 3_000_000]
    send(servers, topic, [b"x" * size for size in sizes], message_max_bytes=8_000_000)
    limits = {"max_partition_fetch_bytes": 100, "fetch_max_bytes": 200}
    with consumer_of(servers, topic, **limits) as consumer:
        assert [len(record.value) for record in read(consumer, 4)] == sizes


def test_iteration_ends_when_nothing_comes_and_goes_on_when_asked_again(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b"1", b"2"])
    with consumer_of(servers, topic) as consumer:
        assert next(iter(consumer)).value == b"1"
        assert consumer.position((topic, 0)) == 1  # the second has not been given out
        assert [record.value for record in consumer.records(timeout=0.5)] == [b"2"]
        send(servers, topic, [b"3"])
        assert next(iter(consumer)).value == b"3"
        assert consumer.position((topic, 0)) == 3


def test_several_partitions_come_as_one_arrow_table(servers: str) -> None:
    topic = new_topic(servers, partitions=3)
    producer = librdkafka_producer(servers)
    for number in range(300):
        producer.produce(topic, b"%d" % number, partition=number % 3, headers=[("h", b"x")])
    assert producer.flush(SECONDS_MAX) == 0
    found: list[tuple[bytes, int, int]] = []
    with consumer_of(servers, topic) as consumer:
        consumer.assign([(topic, number) for number in range(3)])
        while len(found) < 300:
            table = consumer.poll_arrow(["value", "partition", "offset"], timeout=SECONDS_MAX)
            assert table.num_rows
            found += zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
        assert consumer.position((topic, 1)) == 100
        assert consumer.poll_arrow(timeout=0).num_rows == 0
        assert "headers" not in consumer.poll_arrow(timeout=0).column_names
    assert sorted(found) == sorted((b"%d" % n, n % 3, n // 3) for n in range(300))


def test_deserializers_make_values_and_a_bad_one_can_be_passed(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b'{"n": 1}', None, b"not JSON", b'{"n": 4}'])
    with consumer_of(servers, topic, value_deserializer="json") as consumer:
        assert [record.value for record in read(consumer, 2)] == [{"n": 1}, None]
        for _ in range(2):
            with pytest.raises(DeserializationError, match=f"{topic}-0 offset 2: ") as raised:
                read(consumer, 1)
        assert consumer.position((topic, 0)) == 2
        consumer.seek(raised.value.partition, raised.value.next_offset)
        assert [record.value for record in read(consumer, 1)] == [{"n": 4}]


def test_interceptors_see_what_is_given_out(servers: str) -> None:
    class Censor:
        def on_consume(self, records: list[object]) -> list[object]:
            return records[1:]

    topic = new_topic(servers)
    send(servers, topic, [b"1", b"2"])
    with consumer_of(servers, topic, interceptors=[Censor()]) as consumer:
        assert [record.value for record in read(consumer, 1)] == [b"2"]


# -- positions ----------------------------------------------------------------------------------


def test_seeking_throws_away_what_was_fetched(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b"%d" % n for n in range(100)])
    with consumer_of(servers, topic) as consumer:
        assert read(consumer, 1)[0].offset == 0
        consumer.seek((topic, 0), 42)
        assert consumer.poll(1, timeout=SECONDS_MAX)[0].offset == 42
        consumer.seek_to_end()
        assert consumer.position((topic, 0)) == 100
        send(servers, topic, [b"last"])
        assert [record.value for record in read(consumer, 1)] == [b"last"]
        consumer.seek_to_beginning((topic, 0))
        assert consumer.poll(1, timeout=SECONDS_MAX)[0].offset == 0
        with pytest.raises(ValueError, match="begin with 0"):
            consumer.seek((topic, 0), -1)


def test_what_is_paused_waits_and_nothing_is_lost(servers: str) -> None:
    loud, quiet = new_topic(servers), new_topic(servers)
    for topic in (loud, quiet):
        send(servers, topic, [b"%d" % n for n in range(20)])
    with consumer_of(servers, loud, quiet, max_poll_records=5) as consumer:
        consumer.pause((quiet, 0))
        assert consumer.paused() == {(quiet, 0)}
        assert {record.topic for record in read(consumer, 20)} == {loud}
        assert consumer.poll(timeout=0.2) == []
        consumer.resume((quiet, 0))
        assert [record.offset for record in read(consumer, 20)] == list(range(20))


def test_times_are_found(servers: str) -> None:
    topic = new_topic(servers)
    producer = librdkafka_producer(servers)
    for number in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1000 + 1000 * number)
    assert producer.flush(SECONDS_MAX) == 0
    with consumer_of(servers, topic) as consumer:
        name = TopicPartition(topic, 0)
        assert consumer.offsets_for_times({name: 4500})[name] == (4, 5000)
        assert consumer.offsets_for_times({name: 10_001})[name] is None
        assert consumer.beginning_offsets([name]) == {name: 0}
        assert consumer.end_offsets([name]) == {name: 10}


def test_reading_begins_at_the_end_unless_something_else_is_said(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b"old"])
    with consumer_of(servers, topic, auto_offset_reset="latest") as consumer:
        assert consumer.position((topic, 0)) == 1


def test_reading_begins_as_long_ago_as_is_said(servers: str) -> None:
    topic = new_topic(servers)
    producer = librdkafka_producer(servers)
    for hours_ago in (5, 2, 0):
        timestamp = int(time.time() * 1000) - hours_ago * 3_600_000
        producer.produce(topic, b"%d" % hours_ago, partition=0, timestamp=timestamp)
    assert producer.flush(SECONDS_MAX) == 0
    with consumer_of(servers, topic, auto_offset_reset="by_duration:PT3H") as consumer:
        assert [record.value for record in read(consumer, 2)] == [b"2", b"0"]
    with consumer_of(servers, topic, auto_offset_reset="by_duration:PT0S") as consumer:
        assert consumer.position((topic, 0)) == 3  # no record is that new: the end


def test_without_a_reset_the_application_has_to_say_where(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b"dear"])
    with consumer_of(servers, topic, auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match=f"{topic}-0"):
                consumer.poll(timeout=SECONDS_MAX)
        consumer.seek((topic, 0), 7)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=f"7 in {topic}-0"):
                consumer.poll(timeout=SECONDS_MAX)
        consumer.seek((topic, 0), 0)
        assert [record.value for record in read(consumer, 1)] == [b"dear"]


def test_an_offset_out_of_range_is_reset(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b"dear"])
    with consumer_of(servers, topic) as consumer:
        consumer.seek((topic, 0), 7)
        assert [record.offset for record in read(consumer, 1)] == [0]


def test_a_partition_that_fails_is_heard_of_while_others_go_on(servers: str) -> None:
    good, bad = new_topic(servers), new_topic(servers)
    send(servers, good, [b"%d" % n for n in range(20_000)])
    send(servers, bad, [b"dear"])
    limits = {"max_partition_fetch_bytes": 10_000, "max_poll_records": 10}
    with consumer_of(servers, good, bad, auto_offset_reset="none", **limits) as consumer:
        consumer.seek((good, 0), 0)
        consumer.seek((bad, 0), 7)
        with pytest.raises(OffsetOutOfRangeError, match=f"7 in {bad}-0"):
            read(consumer, 20_000)


# -- use ----------------------------------------------------------------------------------------


def test_the_cluster_can_be_looked_at(servers: str) -> None:
    topic = new_topic(servers, partitions=2)
    with consumer_of(servers, topic) as consumer:
        assert [row.partition for row in consumer.partitions_for(topic)] == [0, 1]
        assert len(consumer.topics()[topic]) == 2
        assert consumer.assignment() == {(topic, 0)}
        with pytest.raises(ApiError) as raised:
            consumer.partitions_for("nowhere")
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metrics_count_what_was_read(servers: str) -> None:
    topic = new_topic(servers)
    send(servers, topic, [b"%d" % n for n in range(10)])
    with consumer_of(servers, topic) as consumer:
        read(consumer, 10)
        metrics = consumer.metrics()
    assert metrics["records-consumed-total"] == 10
    assert metrics["bytes-consumed-total"] > 10


def test_a_poll_that_waits_is_woken_from_another_thread(servers: str) -> None:
    with consumer_of(servers, new_topic(servers)) as consumer:
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout=SECONDS_MAX)
        timer.join()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(timeout=SECONDS_MAX)
        assert consumer.poll(timeout=0) == []


def test_two_threads_at_once_are_refused(servers: str) -> None:
    def poll() -> None:
        with pytest.raises(WakeupError):
            consumer.poll(timeout=SECONDS_MAX)

    def is_refused() -> bool:
        try:
            consumer.pause()
        except ConcurrentUseError as error:
            return "thread" in str(error)
        return False

    with consumer_of(servers, new_topic(servers)) as consumer:
        polling = threading.Thread(target=poll)
        polling.start()
        wait_until(is_refused, "two threads are let in")
        with pytest.raises(ConcurrentUseError):
            consumer.close()
        consumer.wakeup()
        polling.join()
        assert consumer.poll(timeout=0) == []


def test_what_makes_no_sense_is_refused_with_a_reason(servers: str) -> None:
    consumer = Consumer(bootstrap_servers=servers)
    with pytest.raises(ConsumerError, match="nothing is subscribed"):
        consumer.poll()
    with pytest.raises(ConsumerError, match=r"group\.id"):
        consumer.subscribe(["letters"])
    with pytest.raises(ConsumerError, match=r"group\.id"):
        consumer.commit()
    with pytest.raises(ConsumerError, match="not assigned"):
        consumer.seek(("letters", 0), 0)
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosedError):
        consumer.poll()
