"""Ottla and Apache Kafka side by side: the same clients, settings and machine, in the same minutes.

Both are measured alternately, in rounds, and the median counts. Before that, the same load is sent
to both, so that Java has compiled the code that will run. Clients share the cores with the brokers,
and are often the bottleneck: so the broker's CPU time stands beside the wall time.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import count
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.broker_costs import (
    CONSUMERS,
    MICROSECONDS_EACH,
    PERCENT,
    SmallRequests,
    waiting_percent,
)
from benchmarks.broker_process import MeasuredBroker
from benchmarks.broker_starts import Started, has_kafka, started_kafka, started_ottla
from benchmarks.comparison import MEGABYTES, SECONDS, Case, Unit
from benchmarks.imports import with_bytecode_in
from benchmarks.librdkafka_load import Load, Pace, catch_up, latencies_ms, produce, topic_for
from benchmarks.many_clients import together
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
from benchmarks.wire_client import fetch_frame, produce_frame

TITLE = "Beside Apache Kafka"
ROUNDS: Final = 5
WARM_UP_ROUNDS: Final = 3
STARTS: Final = 3
PARTITIONS: Final = 1000
SMALL_LOAD_BYTES: Final = 60_000_000
LARGE_LOAD_BYTES: Final = 300_000_000
LOADS: Final = tuple(
    Load(record_bytes, load_bytes // record_bytes, partitions)
    for record_bytes, load_bytes in ((100, SMALL_LOAD_BYTES), (1000, LARGE_LOAD_BYTES))
    for partitions in (1, 12)
)
PRODUCERS: Final = (8, 32)
TOPIC_CONSUMERS: Final = 8
SHARED_LOAD: Final = Load(1000, 100_000, 12)
"""The records that each of several consumers of one topic reads."""
PACES: Final = tuple(Pace(rate=1000, seconds=1.5, linger_ms=linger_ms) for linger_ms in (5, 0))
RESIDENT_MEGABYTES: Final = Unit("MB", 1, is_time=True)
LESS_CPU: Final = round(1 / 0.7, 2)

Start = Callable[[str], AbstractContextManager[Started]]
_numbers = count()


def cases() -> Iterator[Case]:
    """Yield the rows of the comparison; only Ottla's figures where there is no Kafka."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        starts: list[Start] = [partial(started_ottla, environment=with_bytecode_in(folder))]
        if has_kafka():
            starts.append(started_kafka)
        yield from _start_cases(starts)
        brokers = [
            stack.enter_context(start(f"{folder}/{number}")).broker
            for number, start in enumerate(starts)
        ]
        _warm_up(brokers)
        for load in LOADS:
            yield from _load_cases(brokers, load)
        for producers in PRODUCERS:
            yield from _producers_cases(brokers, producers)
        yield from _consumers_cases(brokers)
        for pace in PACES:
            yield from _latency_cases(brokers, pace)
        yield from _request_cases(brokers)


# Starting, memory.


def _start_cases(starts: list[Start]) -> Iterator[Case]:
    _life(starts[0])  # compiles the byte code, which an installed package has
    seconds, busy_seconds, at_rest, with_partitions = in_turns(starts, STARTS, _life)
    yield case("start to first answered request", SECONDS, seconds, asked=0.4, asked_ratio=5)
    yield case(CPU, SECONDS, busy_seconds)
    yield case("memory at rest", RESIDENT_MEGABYTES, at_rest, asked=60)
    work = f"memory with {PARTITIONS:,} partitions"
    yield case(work, RESIDENT_MEGABYTES, with_partitions, asked=120)


def _life(start: Start) -> tuple[float, float, float, float]:
    """Return the duration of a start, and the memory before and after creating partitions."""
    with TemporaryDirectory() as folder, start(f"{folder}/data") as (broker, seconds):
        busy_seconds, at_rest = broker.cpu_seconds(), broker.memory_megabytes()
        with topic_for(broker.port, "crowd", PARTITIONS):
            return seconds, busy_seconds, at_rest, broker.memory_megabytes()


# Loads.


def _warm_up(brokers: list[MeasuredBroker]) -> None:
    for _ in range(WARM_UP_ROUNDS):
        for broker in brokers:
            for load in LOADS:
                _carry(load, broker)


def _carry(load: Load, broker: MeasuredBroker) -> tuple[float, float, float, float]:
    """Return seconds and CPU seconds for writing a load, then for reading it."""
    seconds = []
    with topic_for(broker.port, f"load-{next(_numbers)}", load.partitions) as topic:
        for way in (produce, catch_up):
            before = broker.cpu_seconds()
            seconds += [way(broker.port, topic, load), broker.cpu_seconds() - before]
    in_seconds, in_cpu_seconds, out_seconds, out_cpu_seconds = seconds
    return in_seconds, in_cpu_seconds, out_seconds, out_cpu_seconds


def _load_cases(brokers: list[MeasuredBroker], load: Load) -> Iterator[Case]:
    in_wall, in_cpu, out_wall, out_cpu = in_turns(brokers, ROUNDS, partial(_carry, load))
    name = f"{load.record_bytes} B, {load.partitions} partition{'s'[: load.partitions - 1]}"
    for way, *found in (("produce", in_wall, in_cpu), ("catch up on", out_wall, out_cpu)):
        yield from _speed_cases(f"{way} {name}", load.size_bytes, found)


def _producers_cases(brokers: list[MeasuredBroker], producers: int) -> Iterator[Case]:
    """Yield the rows of several producers that share a load."""
    share = Load(1000, LARGE_LOAD_BYTES // 1000 // producers, 12)

    def carry(broker: MeasuredBroker) -> tuple[float, float]:
        with topic_for(broker.port, f"many-{next(_numbers)}", share.partitions) as topic:
            before = broker.cpu_seconds()
            seconds = together("produce", broker.port, topic, share, producers)
            return seconds, broker.cpu_seconds() - before

    carry(brokers[-1])
    work = f"produce 1 KB, 12 partitions, {producers} producers"
    yield from _speed_cases(work, share.size_bytes * producers, in_turns(brokers, ROUNDS, carry))


def _consumers_cases(brokers: list[MeasuredBroker]) -> Iterator[Case]:
    """Yield the rows of several consumers that each read all of one topic."""
    load = SHARED_LOAD

    def carry(broker: MeasuredBroker) -> tuple[float, float]:
        with topic_for(broker.port, f"many-{next(_numbers)}", load.partitions) as topic:
            produce(broker.port, topic, load)
            before = broker.cpu_seconds()
            seconds = together("catch-up", broker.port, topic, load, TOPIC_CONSUMERS)
            return seconds, broker.cpu_seconds() - before

    work = f"catch up on 1 KB, 12 partitions, {TOPIC_CONSUMERS} consumers of the same topic"
    size_bytes = load.size_bytes * TOPIC_CONSUMERS
    yield from _speed_cases(work, size_bytes, in_turns(brokers, ROUNDS, carry))


def _speed_cases(work: str, size_bytes: int, found: Iterable[Figures]) -> Iterator[Case]:
    wall, busy = found
    megabytes, gigabytes = size_bytes / MEGABYTES.factor, size_bytes / GB
    speeds = [tuple(megabytes / seconds for seconds in each) for each in wall]
    yield case(work, MEGABYTES, speeds, asked_ratio=AS_GOOD)
    costs = [tuple(seconds / gigabytes for seconds in each) for each in busy]
    yield case(CPU, CPU_SECONDS, costs, asked_ratio=LESS_CPU)


# Latency.


def _latency_cases(brokers: list[MeasuredBroker], pace: Pace) -> Iterator[Case]:
    percentiles = in_turns(brokers, ROUNDS, partial(_percentiles, pace))
    for name, figures in zip(("p50", "p99"), percentiles, strict=True):
        work = f"latency at {pace.rate:,} records/s, linger.ms={pace.linger_ms}, {name}"
        yield case(work, MILLISECONDS, figures, asked_ratio=AS_GOOD)


def _percentiles(pace: Pace, broker: MeasuredBroker) -> tuple[float, float]:
    with topic_for(broker.port, f"pace-{next(_numbers)}", 1) as topic:
        hundredths = quantiles(latencies_ms(broker.port, topic, pace), n=100)
    return hundredths[49], hundredths[98]


# Requests.


def _request_cases(brokers: list[MeasuredBroker]) -> Iterator[Case]:
    for shape, frame in (("produce", produce_frame), ("fetch", fetch_frame)):
        topic = f"small-{shape}"
        requests = [SmallRequests(broker, topic, frame(topic)) for broker in brokers]
        list(in_turns(requests, WARM_UP_ROUNDS, _microseconds))
        (figures,) = in_turns(requests, ROUNDS, _microseconds)
        work = f"small {shape}, pipelined, CPU"
        yield case(work, MICROSECONDS_EACH, figures, asked=40)
        for each in requests:
            each.close()
    (figures,) = in_turns(brokers, 1, lambda broker: (waiting_percent(broker, "idle"),))
    work = f"{CONSUMERS} consumers wait on {CONSUMERS} idle partitions"
    yield case(work, PERCENT, figures, asked=3)


def _microseconds(requests: SmallRequests) -> tuple[float]:
    return (requests.microseconds(),)
