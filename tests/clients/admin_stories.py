"""Helpers of the admin client's stories: refusals, waiting, and writing records."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from ottla import ErrorCode, ItemsFailedError, TopicPartition

SECONDS_MAX = 240


def refused(call: Callable[[], object]) -> tuple[ErrorCode, str]:
    """Return the error code and the message of a refusal."""
    with pytest.raises(ItemsFailedError) as failure:
        call()
    return failure.value.code, str(failure.value)


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for a change that the broker makes in the background."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, is_so
        time.sleep(0.02)


def write(servers: str, name: TopicPartition, count: int, *, first_ms: int = 1_000) -> None:
    """Write records with timestamps one millisecond apart."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        value = f"value {number}".encode()
        at_ms = first_ms + number
        producer.produce(name.topic, value, partition=name.partition, timestamp=at_ms)
    assert producer.flush(SECONDS_MAX) == 0
