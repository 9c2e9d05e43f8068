"""What the stories about the admin client share: refusals, and somebody to write records."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from ottla import ErrorCode, ItemsFailedError, TopicPartition

SECONDS_MAX = 60


def refused(call: Callable[[], object]) -> tuple[ErrorCode, str]:
    """Return why something was refused: the code, and what people are told."""
    with pytest.raises(ItemsFailedError) as failure:
        call()
    return failure.value.code, str(failure.value)


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for what the broker brings about by itself."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, is_so
        time.sleep(0.02)


def write(servers: str, name: TopicPartition, count: int, *, first_ms: int = 1_000) -> None:
    """Write records whose timestamps are a millisecond apart."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        value = f"value {number}".encode()
        at_ms = first_ms + number
        producer.produce(name.topic, value, partition=name.partition, timestamp=at_ms)
    assert producer.flush(SECONDS_MAX) == 0
