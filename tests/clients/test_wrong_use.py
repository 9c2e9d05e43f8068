"""Wrong calls and calls at the wrong time: each raises an immediate, plain error."""

import copy
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Admin, ApiError, ClientClosedError, Consumer, Producer, TopicPartition, aio
from ottla.model.error_code import ErrorCode
from tests.clients.consumer_stories import SECONDS_MAX, new_topic

CLIENTS = [Admin, Consumer, Producer, aio.Admin, aio.Consumer, aio.Producer]


@pytest.fixture
def producer(story_servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=story_servers) as made:
        yield made


@pytest.fixture
def consumer(story_servers: str) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=story_servers, group_id="careless") as made:
        yield made


@pytest.mark.parametrize("kind", CLIENTS)
def test_an_address_is_no_settings(kind: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="bootstrap_servers="):
        kind("localhost:9092")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_clients_stay_in_their_process(
    producer: Producer, consumer: Consumer, copied: Callable[[object], object]
) -> None:
    for client in (producer, consumer):
        with pytest.raises(TypeError, match="Make one where it is used"):
            copied(client)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"value": 5}, r"the value is of type int.*value\.serializer"),
        ({"value": {"a": 1}}, "the value is of type dict"),
        ({"key": 5}, r"the key is of type int.*key\.serializer"),
        ({"headers": {"name": b"x"}}, "headers are a list of pairs"),
        ({"headers": [("name", "x")]}, "headers are a list of pairs"),
        ({"headers": [(b"name", b"x")]}, "headers are a list of pairs"),
        ({"timestamp": 1.5}, "whole number of milliseconds"),
    ],
)
def test_what_cannot_be_sent_is_named(
    story_servers: str, producer: Producer, record: dict[str, Any], said: str
) -> None:
    topic = new_topic(story_servers)
    producer.send(topic, b"fine").result(SECONDS_MAX)
    with pytest.raises(TypeError, match=said):
        producer.send(topic, **record)


def test_a_callback_that_raises_system_exit_has_no_effect(
    story_servers: str, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(story_servers, 2)
    caplog.set_level(logging.CRITICAL, "ottla.clients")
    first = producer.send(topic, b"a", partition=0, on_delivery=lambda *_: sys.exit(1))
    second = producer.send(topic, b"b", partition=1)
    assert [one.result(SECONDS_MAX).offset for one in (first, second)] == [0, 0]
    assert producer.send(topic, b"c", partition=0).result(SECONDS_MAX).offset == 1
    counts = producer.metrics()
    assert counts["buffer-available-bytes"] == counts["buffer-total-bytes"]


@pytest.mark.parametrize("wrong", ["letters", ("letters",), ("letters", -1), ("letters", "0"), 7])
def test_what_is_no_partition_is_refused(consumer: Consumer, wrong: Any) -> None:
    with pytest.raises(TypeError, match="is no partition"):
        consumer.assign([wrong])


def test_a_poll_takes_a_number_of_records_or_a_time(consumer: Consumer) -> None:
    with pytest.raises(TypeError, match=r"poll\(timeout="):
        consumer.poll(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("offset", "error"), [(-5, ValueError), ("5", TypeError)])
def test_what_is_no_offset_is_neither_committed_nor_sought(
    story_servers: str, consumer: Consumer, offset: Any, error: type[Exception]
) -> None:
    name = TopicPartition(new_topic(story_servers), 0)
    consumer.assign([name])
    with pytest.raises(error, match="offset"):
        consumer.commit({name: offset})
    with pytest.raises(error, match="offset"):
        consumer.seek(name, offset)
    assert consumer.committed([name]) == {}


def test_a_topic_that_can_never_be_is_not_waited_for(consumer: Consumer) -> None:
    consumer.subscribe(["no such/letters"])
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            consumer.poll(timeout=SECONDS_MAX)
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(TypeError, match="the name of a topic is text"):
        consumer.subscribe([5])  # type: ignore[list-item]


def test_a_closed_consumer_says_so(consumer: Consumer) -> None:
    name = TopicPartition("letters", 0)
    consumer.assign([name])
    consumer.close()
    consumer.close()
    calls: list[Callable[[], object]] = [
        consumer.poll,
        consumer.commit,
        lambda: consumer.assign([name]),
        lambda: consumer.pause(name),
        lambda: consumer.resume(name),
        lambda: consumer.seek(name, 0),
        consumer.seek_to_beginning,
        lambda: next(iter(consumer)),
    ]
    for call in calls:
        with pytest.raises(ClientClosedError, match="closed"):
            call()
