"""Producers beside each other: a million records of 100 bytes, and one awaited record.

The broker is Ottla, in a process of its own. All producers write to one partition alternately, each
run to a topic of its own, and the clock stops when the last record is confirmed. Settings are the
defaults, but for librdkafka's queue, which takes a million records, and for awaited records, which
are sent without linger. Only ours takes records in bulk. The slow producers write a part.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import kafka
import pyarrow as pa
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer as LibrdkafkaProducer

from benchmarks.broker_process import running_broker
from benchmarks.comparison import MICROSECONDS, MILLION_RECORDS, Case, Peer, Unit
from benchmarks.librdkafka_load import topic_for
from benchmarks.wire_client import WireClient, produce_frame
from ottla import Producer

TITLE = "Producers, to one partition"
RECORDS: Final = 1_000_000
SLOW_RECORDS: Final = 50_000
WAITED_FOR: Final = 1_500
WARM_UP: Final = 100
ROUNDS: Final = 5
WAIT_SECONDS: Final = 60
VALUE: Final = bytes(100)
VALUES: Final = [VALUE] * RECORDS
TABLE: Final = pa.table({"value": pa.array(VALUES, pa.binary())})
LATENCY_RATIO: Final = 0.83
"""Ours may take 1.2 times as long as librdkafka."""

Write = Callable[[int, str], float]
"""Writes to a topic of the broker on a port; returns million records a second, or microseconds."""


def cases() -> Iterator[Case]:
    """Yield the rows of the comparison."""
    rates: dict[str, Write] = {
        "one by one": _ours_one_by_one,
        "a list": _ours_from_a_list,
        "arrow": _ours_from_arrow,
        "confluent-kafka": _librdkafka,
        "kafka-python": _kafka_python,
        "aiokafka": _aiokafka,
    }
    waits: dict[str, Write] = {
        "ours": _ours_waiting,
        "confluent-kafka": _librdkafka_waiting,
        "kafka-python": _kafka_python_waiting,
        "aiokafka": _aiokafka_waiting,
        "a bare socket": _socket_waiting,
    }
    with TemporaryDirectory() as folder, running_broker(folder) as broker:
        rate = _in_turns(broker.port, rates)
        wait = _in_turns(broker.port, waits)
    asked = {"confluent-kafka": 1.0, "kafka-python": 5.0, "aiokafka": 5.0}
    yield _case("one call each", MILLION_RECORDS, rate, "one by one", asked)
    yield _case("from a list", MILLION_RECORDS, rate, "a list", {"confluent-kafka": 3.0})
    yield _case("from Arrow", MILLION_RECORDS, rate, "arrow", {"confluent-kafka": 3.0})
    others = dict.fromkeys(("kafka-python", "aiokafka", "a bare socket"))
    asked_of_waiting = {"confluent-kafka": LATENCY_RATIO, **others}
    yield _case("one record waited for, p50", MICROSECONDS, wait, "ours", asked_of_waiting)


def _in_turns(port: int, writers: dict[str, Write]) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in writers}
    for round_number in range(ROUNDS):
        for name, write in writers.items():
            with topic_for(port, f"records-{len(writers)}-{round_number}", 1) as topic:
                figures[name].append(write(port, topic))
    return figures


def _case(
    work: str,
    unit: Unit,
    figures: dict[str, list[float]],
    ours: str,
    asked: dict[str, float | None] | dict[str, float],
) -> Case:
    peers = [Peer(name, _nothing, ratio, tuple(figures[name])) for name, ratio in asked.items()]
    return Case(
        work=work, unit=unit, ours=_nothing, peers=tuple(peers), figures=tuple(figures[ours])
    )


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""


def _rate(records: int, write: Callable[[], object]) -> float:
    began = time.perf_counter()
    write()
    return records / (time.perf_counter() - began) / 1e6


def _p50(wait_for_one: Callable[[], object]) -> float:
    taken = []
    for _ in range(WARM_UP + WAITED_FOR):
        began = time.perf_counter()
        wait_for_one()
        taken.append(time.perf_counter() - began)
    return median(taken[WARM_UP:]) * 1e6


# -- ours -------------------------------------------------------------------------------------


def _ours(port: int, topic: str, write: Callable[[Producer], object]) -> float:
    with Producer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
        producer.partitions_for(topic)
        return _rate(RECORDS, lambda: write(producer))


def _ours_one_by_one(port: int, topic: str) -> float:
    def write(producer: Producer) -> None:
        for value in VALUES:
            producer.send(topic, value)
        producer.flush(WAIT_SECONDS)

    return _ours(port, topic, write)


def _ours_from_a_list(port: int, topic: str) -> float:
    return _ours(port, topic, lambda producer: producer.send_many(topic, VALUES).result())


def _ours_from_arrow(port: int, topic: str) -> float:
    return _ours(port, topic, lambda producer: producer.send_arrow(topic, TABLE).result())


def _ours_waiting(port: int, topic: str) -> float:
    with Producer(bootstrap_servers=f"127.0.0.1:{port}", linger_ms=0) as producer:
        return _p50(lambda: producer.send(topic, VALUE).result(WAIT_SECONDS))


# -- others -----------------------------------------------------------------------------------


def _librdkafka_producer(port: int, **settings: Any) -> LibrdkafkaProducer:
    return LibrdkafkaProducer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0, **settings}
    )


def _librdkafka(port: int, topic: str) -> float:
    producer = _librdkafka_producer(port, **{"queue.buffering.max.messages": 2 * RECORDS})
    producer.list_topics(topic, timeout=WAIT_SECONDS)

    def write() -> None:
        for value in VALUES:
            producer.produce(topic, value)
        assert producer.flush(WAIT_SECONDS) == 0, "the broker does not answer"

    return _rate(RECORDS, write)


def _librdkafka_waiting(port: int, topic: str) -> float:
    producer = _librdkafka_producer(port, **{"linger.ms": 0})

    def wait_for_one() -> None:
        producer.produce(topic, VALUE)
        producer.flush(WAIT_SECONDS)

    return _p50(wait_for_one)


def _kafka_python(port: int, topic: str) -> float:
    producer = kafka.KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}")
    producer.partitions_for(topic)

    def write() -> None:
        for _ in range(SLOW_RECORDS):
            producer.send(topic, VALUE)
        producer.flush(WAIT_SECONDS)

    rate = _rate(SLOW_RECORDS, write)
    producer.close()
    return rate


def _kafka_python_waiting(port: int, topic: str) -> float:
    producer = kafka.KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}", linger_ms=0)
    taken = _p50(lambda: producer.send(topic, VALUE).get(WAIT_SECONDS))
    producer.close()
    return taken


def _aiokafka(port: int, topic: str) -> float:
    return asyncio.run(_write_with_aiokafka(port, topic))


async def _write_with_aiokafka(port: int, topic: str) -> float:
    producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{port}")
    await producer.start()
    await producer.partitions_for(topic)
    began = time.perf_counter()
    for _ in range(SLOW_RECORDS):
        await producer.send(topic, VALUE)
    await producer.flush()
    rate = SLOW_RECORDS / (time.perf_counter() - began) / 1e6
    await producer.stop()
    return rate


def _aiokafka_waiting(port: int, topic: str) -> float:
    return asyncio.run(_wait_with_aiokafka(port, topic))


async def _wait_with_aiokafka(port: int, topic: str) -> float:
    producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{port}", linger_ms=0)
    await producer.start()
    taken = []
    for _ in range(WARM_UP + WAITED_FOR):
        began = time.perf_counter()
        await producer.send_and_wait(topic, VALUE)
        taken.append(time.perf_counter() - began)
    await producer.stop()
    return median(taken[WARM_UP:]) * 1e6


def _socket_waiting(port: int, topic: str) -> float:
    """Send a prepared frame and wait for the response: the floor of every producer."""
    client = WireClient(port)
    frame = produce_frame(topic, value=VALUE)
    taken = _p50(lambda: client.ask(frame))
    client.close()
    return taken
