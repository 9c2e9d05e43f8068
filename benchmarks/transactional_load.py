"""What librdkafka does to a broker in transactions, and without them: write, and read it again.

Settings are librdkafka's own, but for its queues: producers keep a few megabytes, so that none
measures how fast memory can be had, and consumers ask again as in `librdkafka_load.py`.
"""

import multiprocessing
from contextlib import closing
from threading import BrokenBarrierError
from time import perf_counter
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.librdkafka_load import (
    ANSWER_SECONDS_MAX,
    BACKOFF_MS,
    CONSUMED_AT_ONCE,
)

RECORD_BYTES: Final = 1000
QUEUE_KILOBYTES: Final = 8_000
QUEUE_WAIT_SECONDS: Final = 0.001
"""Nothing wakes a producer whose queue has room again, if it has asked for no reports."""


class Transactions(NamedTuple):
    """So many transactions of so many records, divided among producers."""

    transactions: int
    records: int
    producers: int = 1

    @property
    def size_bytes(self) -> int:
        """What all values take together."""
        return self.transactions * self.records * RECORD_BYTES


def write(port: int, topic: str, load: Transactions, *, is_transactional: bool) -> float:
    """Return the seconds until all is committed; without transactions, until it is acknowledged.

    Each producer has a process and a partition of its own, so that what one waits for keeps
    nobody else from working.
    """
    processes = multiprocessing.get_context("spawn")
    gate = processes.Barrier(load.producers + 1, timeout=ANSWER_SECONDS_MAX)
    each = load._replace(transactions=load.transactions // load.producers)
    producers = [
        processes.Process(target=_produce, args=(gate, port, topic, each, is_transactional, number))
        for number in range(load.producers)
    ]
    for producer in producers:
        producer.start()
    try:
        gate.wait()
        began = perf_counter()
        gate.wait()
        return perf_counter() - began
    except BrokenBarrierError:
        raise RuntimeError("a producer has failed") from None
    finally:
        for producer in producers:
            producer.join()


def read(port: int, topic: str, load: Transactions, isolation_level: str) -> float:
    """Return the seconds it takes to read what was written, by one producer."""
    settings = {
        **_address(port),
        "group.id": "benchmark",
        "isolation.level": isolation_level,
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": BACKOFF_MS,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.list_topics(topic, timeout=ANSWER_SECONDS_MAX)
        began = perf_counter()
        consumer.assign([TopicPartition(topic, 0, 0)])
        missing = load.transactions * load.records
        while missing > 0:
            records = consumer.consume(CONSUMED_AT_ONCE, timeout=ANSWER_SECONDS_MAX)
            assert records, f"{missing} records are missing"
            missing -= len(records)
        return perf_counter() - began


def _produce(
    gate: Any, port: int, topic: str, load: Transactions, is_transactional: bool, number: int
) -> None:
    """Be one producer: get ready, wait for the others, send, and say when that is done."""
    try:
        make = _transactional if is_transactional else _idempotent
        producer = make(port, f"{topic}-{number}")
        one = Transactions(1, 1)  # until then librdkafka looks for its brokers, and for an id
        _send_all(topic, is_transactional, one, producer, number)
        gate.wait()
        _send_all(topic, is_transactional, load, producer, number)
        gate.wait()
    except BaseException:
        gate.abort()
        raise


def _transactional(port: int, name: str) -> Producer:
    producer = Producer({**_writing(port), "transactional.id": name})
    producer.init_transactions(ANSWER_SECONDS_MAX)
    return producer


def _idempotent(port: int, name: str) -> Producer:
    producer = Producer({**_writing(port), "client.id": name, "enable.idempotence": True})
    producer.list_topics(timeout=ANSWER_SECONDS_MAX)
    return producer


def _send_all(
    topic: str, is_transactional: bool, load: Transactions, producer: Producer, partition: int
) -> None:
    value = bytes(RECORD_BYTES)
    for _ in range(load.transactions):
        if is_transactional:
            producer.begin_transaction()
        for _ in range(load.records):
            _send(producer, topic, partition, value)
        producer.poll(0)
        if is_transactional:
            producer.commit_transaction(ANSWER_SECONDS_MAX)
    assert producer.flush(ANSWER_SECONDS_MAX) == 0, "the broker does not answer"


def _send(producer: Producer, topic: str, partition: int, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(QUEUE_WAIT_SECONDS)
        else:
            return


def _writing(port: int) -> dict[str, Any]:
    return {**_address(port), "queue.buffering.max.kbytes": QUEUE_KILOBYTES}


def _address(port: int) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
