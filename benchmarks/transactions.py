"""The cost of transactions, in Ottla and in Apache Kafka: the same clients, in the same minutes.

A transaction is a chain of requests, each of which waits for the previous response: librdkafka adds
the partition, produces, and ends; our producer need not add partitions. Beside transactions of many
records, an idempotent producer writes the same records without transactions, and read_uncommitted
consumers read them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.broker_process import MeasuredBroker
from benchmarks.broker_starts import has_kafka, kafka_name, started_kafka, started_ottla
from benchmarks.comparison import MEGABYTES, Case, Peer, Unit
from benchmarks.imports import with_bytecode_in
from benchmarks.librdkafka_load import topic_for
from benchmarks.side_by_side import (
    AS_GOOD,
    CPU,
    CPU_SECONDS,
    GB,
    MILLISECONDS,
    Figures,
    case,
    in_turns,
)
from benchmarks.transactional_load import Transactions, Way, read, write

TITLE = "Transactions, beside Apache Kafka"
ROUNDS: Final = 7
WARM_UP_ROUNDS: Final = 1
SMALL: Final = tuple(Transactions(300, 1, is_ours=is_ours) for is_ours in (False, True))
LARGE: Final = tuple(
    Transactions(960, 1000, producers, is_ours)
    for is_ours in (False, True)
    for producers in (1, 4, 8)
)
"""Rounds of at least a second: shorter rounds differ by a factor of two on a shared machine, and
the first batches of a producer without transactions are slower than the following batches."""
READ: Final = Transactions(200, 1000)
NEARLY_AS_GOOD: Final = 0.9
CPU_MILLISECONDS: Final = Unit("CPU ms", 1, is_time=True)
LEVELS: Final = ("read_committed", "read_uncommitted")

Measure = Callable[[MeasuredBroker], tuple[float, ...]]
_numbers = count()


def cases() -> Iterator[Case]:
    """Yield the rows of the comparison; only Ottla's figures where there is no Kafka."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        ottla = started_ottla(f"{folder}/0", environment=with_bytecode_in(folder))
        brokers = [stack.enter_context(ottla).broker]
        if has_kafka():
            brokers.append(stack.enter_context(started_kafka(f"{folder}/1")).broker)
        for load in SMALL:
            yield from _small_cases(brokers, load)
        for load in LARGE:
            yield from _large_cases(brokers, load)
        yield from _reading_cases(brokers)


def _small_cases(brokers: list[MeasuredBroker], load: Transactions) -> Iterator[Case]:
    wall, cpu = _measured(brokers, partial(_small, load))
    yield case(f"transaction of one record, {load.who}", MILLISECONDS, wall, asked_ratio=AS_GOOD)
    yield case(CPU, CPU_MILLISECONDS, cpu)


def _small(load: Transactions, broker: MeasuredBroker) -> tuple[float, float]:
    """Return a transaction's milliseconds of wall time, and of the broker's CPU time."""
    before = broker.cpu_seconds()
    seconds = written(load, Way.TRANSACTIONS, broker)
    cpu_seconds = broker.cpu_seconds() - before
    return 1000 * seconds / load.transactions, 1000 * cpu_seconds / load.transactions


def _large_cases(brokers: list[MeasuredBroker], load: Transactions) -> Iterator[Case]:
    ways = [partial(written, load, way) for way in (Way.TRANSACTIONS, Way.WITHOUT)]
    figures = _measured(brokers, partial(_compared, load, ways))
    yield from _rows(f"{load.records:,} x 1 KB each, {load.who}", Way.WITHOUT.value, figures)


def written(load: Transactions, way: Way, broker: MeasuredBroker) -> float:
    """Return the seconds that it takes to write this to a new topic."""
    with topic_for(broker.port, f"written-{next(_numbers)}", load.producers) as topic:
        return write(broker.port, topic, load, way)


def _reading_cases(brokers: list[MeasuredBroker]) -> Iterator[Case]:
    with ExitStack() as stack:
        for broker in brokers:
            topic = stack.enter_context(topic_for(broker.port, "read", 1))
            write(broker.port, topic, READ)
        ways = [partial(_read, level) for level in LEVELS]
        figures = _measured(brokers, partial(_compared, READ, ways))
    yield from _rows(f"catch up with {LEVELS[0]}", LEVELS[1], figures)


def _read(isolation_level: str, broker: MeasuredBroker) -> float:
    return read(broker.port, "read", READ, isolation_level)


# The common part of the rows.


def _measured(brokers: Sequence[MeasuredBroker], measure: Measure) -> list[Figures]:
    list(in_turns(brokers, WARM_UP_ROUNDS, measure))
    return list(in_turns(brokers, ROUNDS, measure))


def _compared(
    load: Transactions, ways: list[Callable[[MeasuredBroker], float]], broker: MeasuredBroker
) -> tuple[float, float, float, float]:
    """Return MB/s and CPU seconds per GB of one way, then of the other; now this goes first."""
    figures = {}
    for way in ways if next(_numbers) % 2 else reversed(ways):
        before = broker.cpu_seconds()
        seconds = way(broker)
        cpu_seconds = broker.cpu_seconds() - before
        speed = load.size_bytes / MEGABYTES.factor / seconds
        figures[way] = speed, cpu_seconds / load.size_bytes * GB
    one, other = ways
    return *figures[one], *figures[other]


def _rows(work: str, plain_name: str, figures: list[Figures]) -> Iterator[Case]:
    """Make rows that compare with Kafka, and both brokers with transactions and without."""
    wall, cpu, plain_wall, plain_cpu = figures
    yield _row(work, MEGABYTES, wall, Peer(plain_name, _nothing, NEARLY_AS_GOOD), plain_wall)
    yield _row(CPU, CPU_SECONDS, cpu, Peer(plain_name, _nothing), plain_cpu)


def _row(work: str, unit: Unit, figures: Figures, plain: Peer, plain_figures: Figures) -> Case:
    ours, theirs = (*figures, ())[:2]
    ours_plain, theirs_plain = (*plain_figures, ())[:2]
    peers = (
        plain._replace(figures=ours_plain),
        Peer(kafka_name(), _nothing, None, theirs),
        Peer(f"{kafka_name()} {plain.name}", _nothing, None, theirs_plain),
    )
    return Case(work=work, unit=unit, ours=_nothing, figures=ours, peers=peers)


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""
