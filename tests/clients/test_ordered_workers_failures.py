"""Ordered workers through failures of handlers, bytes and brokers, and how they end."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from ottla import (
    Consumer,
    ConsumerRecord,
    CorruptRecordError,
    HandlerError,
    StuckHandlerError,
    TopicPartition,
    aio,
)
from ottla.testing import Broker
from tests.clients.consumer_stories import (
    SECONDS_MAX,
    damage,
    make_topic,
    new_topic,
    send,
    wait_until,
)
from tests.clients.workshop import (
    CONSUMER,
    FACES,
    Book,
    Workshop,
    committed,
    wait_for,
    workshops,
    write,
)

Make = Callable[..., Workshop]
each_face = pytest.mark.parametrize("face", FACES)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "ottla.clients")


@pytest.fixture
def make() -> Iterator[Make]:
    with workshops() as make:
        yield make


def of_key(record: ConsumerRecord) -> object:
    return (record.partition, record.key)


# -- failures -------------------------------------------------------------------------------------


@each_face
def test_what_fails_is_tried_again_and_then_put_into_the_dead_letter_topic(
    story_servers: str, make: Make, face: str
) -> None:
    topic = new_topic(story_servers)
    graves = f"{topic}.dlq"
    make_topic(story_servers, graves)
    write(story_servers, topic, ["a", "b", "a", "b"])
    book = Book()
    book.lane_of = of_key

    def handle(record: ConsumerRecord) -> None:
        tries = Counter(begun.offset for begun in book.begun)[record.offset]
        if record.offset == 0 or (record.offset == 1 and tries == 1):
            raise KeyError(record.value)

    shop = make(
        face, story_servers, topic, book, handle, retries=2, backoff_ms=5, dead_letter_topic=graves
    )
    wait_for(book, 3)
    assert shop.stop() is None
    assert Counter(record.offset for record in book.begun)[0] == 3
    assert all(offsets == sorted(offsets) for offsets in book.offsets_by_lane().values())
    assert shop.metric("records-dead-lettered-total") == 1
    assert shop.metric("records-retried-total") == 3
    assert committed(story_servers, topic) == [4]
    (buried,) = read_all(story_servers, graves)
    assert (buried.key, buried.value) == (b"a", b"letter 1")
    headers = dict(buried.headers)
    assert headers["__connect.errors.topic"] == topic.encode()
    assert headers["__connect.errors.offset"] == b"0"
    assert headers["__connect.errors.connector.name"] == topic.encode()
    assert headers["__connect.errors.exception.class.name"] == b"KeyError"
    assert b"raise KeyError" in headers["__connect.errors.exception.stacktrace"]


@each_face
def test_what_cannot_be_deserialized_is_buried_as_the_bytes_it_was(
    story_servers: str, make: Make, face: str
) -> None:
    topic = new_topic(story_servers)
    graves = f"{topic}.dlq"
    make_topic(story_servers, graves)
    write(story_servers, topic, ["a", "b"])  # no JSON
    book = Book()
    shop = make(
        face,
        story_servers,
        topic,
        book,
        settings={"value_deserializer": "json", "key_deserializer": "string"},
        dead_letter_topic=graves,
    )
    wait_until(lambda: shop.metric("records-dead-lettered-total") == 2, "both are buried")
    assert shop.stop() is None
    assert (book.begun, shop.metric("records-retried-total")) == ([], 0)
    assert committed(story_servers, topic) == [2]
    buried = read_all(story_servers, graves)
    assert {(one.key, one.value) for one in buried} == {(b"a", b"letter 1"), (b"b", b"letter 2")}
    headers = dict(buried[0].headers)
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert headers["__connect.errors.exception.class.name"] == b"json.decoder.JSONDecodeError"


def read_all(servers: str, topic: str) -> list[ConsumerRecord]:
    name = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([name])
        wanted = consumer.end_offsets([name])[name]
        found: list[ConsumerRecord] = []
        while len(found) < wanted:
            found += consumer.poll(timeout=SECONDS_MAX)
        return found


@each_face
def test_a_dead_letter_that_cannot_be_written_stops_everything(
    story_servers: str, make: Make, face: str
) -> None:
    topic = new_topic(story_servers)
    graves = f"{topic}.dlq"
    make_topic(story_servers, graves, max_message_bytes="100")
    write(story_servers, topic, ["a", "b"])
    book = Book()

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 0:
            raise ValueError("x" * 1000)

    shop = make(face, story_servers, topic, book, handle, retries=0, dead_letter_topic=graves)
    error = shop.wait()
    assert isinstance(error, HandlerError)
    assert f"it cannot be written to {graves!r}" in str(error)
    assert committed(story_servers, topic) == [0]


@each_face
def test_a_failure_stops_everything_and_names_the_record(
    story_servers: str, make: Make, face: str
) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, ["a", "b", "a", "a"])
    book = Book()
    book.lane_of = of_key

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 2:
            raise ZeroDivisionError("no")

    shop = make(face, story_servers, topic, book, handle, retries=1, backoff_ms=1)
    error = shop.wait()
    assert isinstance(error, HandlerError)
    assert (error.partition, error.offset) == (TopicPartition(topic, 0), 2)
    assert str(error) == (f"{topic}-0 offset 2: the handler failed 2 times: ZeroDivisionError: no")
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert 3 not in [record.offset for record in book.begun]
    assert committed(story_servers, topic) == [2]
    again = Book()
    shop = make(face, story_servers, topic, again)
    wait_for(again, 2)
    assert shop.stop() is None
    assert [record.offset for record in again.begun] == [2, 3]


@each_face
def test_only_what_is_worth_it_is_tried_again_and_the_rest_may_be_skipped(
    story_servers: str, make: Make, face: str
) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, ["a", "b", "c"])
    book = Book()

    def handle(record: ConsumerRecord) -> None:
        if record.offset < 2:
            raise TimeoutError if record.offset else ValueError

    shop = make(
        face,
        story_servers,
        topic,
        book,
        handle,
        retries=2,
        backoff_ms=1,
        retry_on=TimeoutError,
        on_error="skip",
    )
    wait_until(lambda: committed(story_servers, topic) == [3], "all are done or skipped")
    assert shop.stop() is None
    assert Counter(record.offset for record in book.begun) == {0: 1, 1: 3, 2: 1}
    assert shop.metric("records-skipped-total") == 2


# -- bytes and brokers ----------------------------------------------------------------------------


@each_face
def test_damaged_bytes_stop_everything_or_are_skipped(tmp_path: Path, face: str) -> None:
    with Broker(data_dir=tmp_path) as broker, workshops() as make:
        servers = broker.bootstrap_servers
        make_topic(servers, "letters")
        for value in (b"before", b"damaged", b"after"):
            send(servers, "letters", [value])
        wait_until(lambda: damage(tmp_path), "the log is not on disk")
        shop = make(face, servers, "letters", Book())
        error = shop.wait()
        assert isinstance(error, CorruptRecordError)
        assert error.offset == 1
        assert committed(servers, "letters") == [1]
        book = Book()
        shop = make(face, servers, "letters", book, on_error="skip")
        wait_for(book, 1)
        assert shop.stop() is None
        assert [record.value for record in book.done] == [b"after"]
        assert shop.metric("records-skipped-total") == 1
        assert committed(servers, "letters") == [3]


@each_face
def test_the_broker_goes_and_comes_back_and_every_record_is_done(tmp_path: Path, face: str) -> None:
    with Broker(data_dir=tmp_path) as broker, workshops() as make:
        servers = broker.bootstrap_servers
        topic = new_topic(servers)
        write(servers, topic, [f"key {number % 10}" for number in range(100)])
        book = Book()
        gate = Event()
        told = {"retry_backoff_ms": 10, "reconnect_backoff_max_ms": 50}
        shop = make(
            face,
            servers,
            topic,
            book,
            held=lambda record: record.offset >= 50 and not gate.is_set(),
            settings=told,
            workers=10,  # one for each key: no record that is held keeps another from starting
        )
        wait_for(book, 50)
        broker.restart()
        gate.set()
        write(servers, topic, ["key 0"] * 50)
        wait_until(
            lambda: {record.offset for record in book.done} == set(range(150)), "all are done"
        )
        assert shop.stop() is None
        assert committed(servers, topic) == [150]


# -- ending ---------------------------------------------------------------------------------------


@each_face
def test_a_handler_that_hangs_is_named_and_not_waited_for_for_ever(
    story_servers: str, make: Make, face: str
) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, ["a", "b", "c"])
    book = Book()
    gate = Event()
    shop = make(
        face,
        story_servers,
        topic,
        book,
        held=lambda record: record.offset == 1 and not gate.is_set(),
        timeout=0.3,
    )
    wait_for(book, 2)
    error = shop.stop()
    gate.set()
    assert isinstance(error, StuckHandlerError)
    assert error.records == ((TopicPartition(topic, 0), 1),)
    assert f"{topic}-0 offset 1 (for " in str(error)
    assert committed(story_servers, topic) == [1]


def test_a_run_that_is_cancelled_ends_what_it_has_begun(story_servers: str) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, ["one key"] * 100)
    settings = CONSUMER | {"bootstrap_servers": story_servers, "group_id": topic}
    done: list[int] = []
    ten = asyncio.Event()

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.02)
        done.append(record.offset)
        if len(done) == 10:
            ten.set()

    async def story() -> None:
        async with aio.Consumer(settings) as consumer:
            await consumer.subscribe([topic])
            task = asyncio.create_task(consumer.run(handle))
            async with asyncio.timeout(SECONDS_MAX):
                await ten.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(story())
    assert 10 <= len(done) < 100
    assert committed(story_servers, topic) == [len(done)]


def test_a_stop_that_comes_too_early_ends_the_next_run(story_servers: str) -> None:
    topic = new_topic(story_servers)
    with Consumer(bootstrap_servers=story_servers, group_id=topic) as consumer:
        consumer.subscribe([topic])
        consumer.stop()
        consumer.run(print)


def test_a_coroutine_function_is_refused_where_threads_would_call_it(story_servers: str) -> None:
    async def handle(_record: ConsumerRecord) -> None:
        """A coroutine that the workers would never await."""

    with (
        Consumer(bootstrap_servers=story_servers, group_id="nobody") as consumer,
        pytest.raises(TypeError, match=r"ottla\.aio"),
    ):
        consumer.run(handle)
