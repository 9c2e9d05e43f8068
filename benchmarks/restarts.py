"""Starts of a broker after a kill, beside starts of the same broker after a clean stop.

A killed broker reads all parts of its logs that may not be on disk. No flushes happen here, so that
is all of them. The logs are in the page cache, as after the end of a process.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from confluent_kafka import Producer

from benchmarks.broker_starts import started_ottla
from benchmarks.comparison import SECONDS, Case, Peer
from benchmarks.imports import with_bytecode_in
from benchmarks.librdkafka_load import QUEUE_WAIT_SECONDS
from benchmarks.side_by_side import CPU, Figures, in_turns
from benchmarks.wire_client import TOPIC, WireClient

TITLE = "Starts after a kill, beside starts after a clean stop"
ROUNDS: Final = 5
FLUSH_SECONDS: Final = 120
RECORD_BYTES: Final = 1000
BATCH_BYTES: Final = 4096


class Stopped(NamedTuple):
    """The data of a broker, and how it is ended each time."""

    data: str
    stop: signal.Signals


def cases() -> Iterator[Case]:
    """Yield the starts of a broker with many logs, and of one with large logs."""
    with TemporaryDirectory() as folder:
        environment = with_bytecode_in(folder)
        for name, partitions, records in (
            ("3,000 partitions", 3000, 30_000),
            ("1.5 GB in batches of 4 KB", 12, 1_500_000),
        ):
            killed = Stopped(f"{folder}/{partitions}-killed", signal.SIGKILL)
            stopped = Stopped(f"{folder}/{partitions}-stopped", signal.SIGTERM)
            _fill(killed, environment, partitions, records)
            shutil.copytree(killed.data, stopped.data)
            start = partial(_start, environment)
            start(stopped)
            wall, busy = in_turns([killed, stopped], ROUNDS, start)
            yield _case(f"start after kill -9, {name}", wall)
            yield _case(CPU, busy)


def _case(work: str, figures: Figures) -> Case:
    killed, stopped = figures
    peer = Peer("after SIGTERM", lambda: None, None, stopped)
    return Case(work=work, unit=SECONDS, ours=lambda: None, figures=killed, peers=(peer,))


def _start(environment: dict[str, str], stopped: Stopped) -> tuple[float, float]:
    """Start a broker, and end it as always; return the seconds and CPU seconds of the start."""
    with started_ottla(stopped.data, environment) as (broker, seconds):
        busy_seconds = broker.cpu_seconds()
        os.kill(broker.pid, stopped.stop)
    return seconds, busy_seconds


def _fill(to: Stopped, environment: dict[str, str], partitions: int, records: int) -> None:
    with started_ottla(to.data, environment) as (broker, _):
        client = WireClient(broker.port)
        client.create_topic(TOPIC, partitions)
        client.close()
        settings = {"enable.idempotence": True, "batch.size": BATCH_BYTES, "log_level": 0}
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", **settings})
        value = os.urandom(RECORD_BYTES)
        for number in range(records):
            _send(producer, value, number % partitions)
        assert producer.flush(FLUSH_SECONDS) == 0, "the broker does not answer"
        os.kill(broker.pid, to.stop)


def _send(producer: Producer, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(TOPIC, value, partition=partition)
        except BufferError:
            producer.poll(QUEUE_WAIT_SECONDS)
        else:
            return
