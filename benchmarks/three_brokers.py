"""Three brokers with three replicas, Ottla and Apache Kafka side by side on this machine.

Both clusters run at the same time and are measured alternately, by the same client. CPU time is the
sum of the three brokers. Ottla's ZooKeeper is not included; Kafka's controllers are, since they
run in the same processes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.broker_costs import PERCENT
from benchmarks.broker_starts import has_kafka
from benchmarks.cluster_starts import (
    BROKERS,
    SESSION_MS,
    MeasuredCluster,
    kafka_cluster,
    ottla_cluster,
)
from benchmarks.comparison import MEGABYTES, SECONDS, Case, Unit
from benchmarks.failing_over import await_replicas, longest_silence, seconds_to_write_everywhere
from benchmarks.librdkafka_load import Load, Pace, latencies_ms, produce, topic_for
from benchmarks.side_by_side import AS_GOOD, CPU, CPU_SECONDS, GB, MILLISECONDS, case, in_turns
from ottla.simulation.stories import cluster_story as simulation
from ottla.simulation.world.randomness import dice
from ottla.testing.zookeeper_server import why_not

TITLE = "Three brokers, three replicas, beside Apache Kafka"
ROUNDS: Final = 5
LOAD_ROUNDS: Final = 15
"""Rounds of a load differ by a factor of three: five of them give medians that contradict."""
WARM_UP_ROUNDS: Final = 5
LOAD_BYTES: Final = 150_000_000
RECORD_BYTES: Final = 1000
LOADS: Final = tuple(
    Load(RECORD_BYTES, LOAD_BYTES // RECORD_BYTES, partitions) for partitions in (1, 3, 12)
)
PACES: Final = tuple(Pace(rate=500, seconds=2, linger_ms=linger_ms) for linger_ms in (5, 0))
DEATHS: Final = 3
CROWD: Final = 2000
"""The number of partitions: each broker leads a third of them and follows the rest."""
SETTLING_SECONDS: Final = 5
IDLE_SECONDS: Final = 20
SIMULATIONS: Final = 5
SIMULATED: Final = Unit("simulated s/s", 1, is_time=False)
SESSION_SECONDS: Final = SESSION_MS / 1000

_numbers = count()


def cases() -> Iterator[Case]:
    """Yield the rows: only Ottla's figures where there is no Kafka, none without a ZooKeeper."""
    if why_not():
        print(f"A cluster is not measured: {why_not()}", flush=True)
        return
    with ExitStack() as stack:
        clusters = [stack.enter_context(ottla_cluster())]
        if has_kafka():
            folder = Path(stack.enter_context(TemporaryDirectory()))
            clusters.append(stack.enter_context(kafka_cluster(folder / "kafka")))
        _warm_up(clusters)
        for load in LOADS:
            yield from _load_cases(clusters, load)
        for pace in PACES:
            yield from _latency_cases(clusters, pace)
        yield from _departure_cases(clusters)
        yield from _crowd_cases(clusters)
    yield from _simulation_cases()


# Loads and latency.


def _warm_up(clusters: list[MeasuredCluster]) -> None:
    for _ in range(WARM_UP_ROUNDS):
        for cluster in clusters:
            for load in LOADS:
                _carry(load, cluster)


def _carry(load: Load, cluster: MeasuredCluster) -> tuple[float, float]:
    """Return the seconds until all of a load was acknowledged, and the CPU seconds."""
    with _topic(cluster, "load", load.partitions) as topic:
        before = sum(cluster.cpu_seconds().values())
        seconds = produce(cluster.port, topic, load)
        return seconds, sum(cluster.cpu_seconds().values()) - before


def _load_cases(clusters: list[MeasuredCluster], load: Load) -> Iterator[Case]:
    wall, cpu = in_turns(clusters, LOAD_ROUNDS, partial(_carry, load))
    plural = "s"[: load.partitions - 1]
    work = f"produce {load.record_bytes} B, acks=all, {load.partitions} partition{plural}"
    speeds = [tuple(load.size_bytes / MEGABYTES.factor / each for each in row) for row in wall]
    yield case(work, MEGABYTES, speeds, asked_ratio=AS_GOOD)
    costs = [tuple(each * GB / load.size_bytes for each in row) for row in cpu]
    yield case(CPU, CPU_SECONDS, costs)


def _latency_cases(clusters: list[MeasuredCluster], pace: Pace) -> Iterator[Case]:
    percentiles = in_turns(clusters, ROUNDS, partial(_percentiles, pace))
    for name, figures in zip(("p50", "p99"), percentiles, strict=True):
        work = f"latency at {pace.rate:,} records/s, linger.ms={pace.linger_ms}, {name}"
        yield case(work, MILLISECONDS, figures)


def _percentiles(pace: Pace, cluster: MeasuredCluster) -> tuple[float, float]:
    with _topic(cluster, "pace", 1) as topic:
        hundredths = quantiles(latencies_ms(cluster.port, topic, pace), n=100)
    return hundredths[49], hundredths[98]


# Brokers that go.


def _departure_cases(clusters: list[MeasuredCluster]) -> Iterator[Case]:
    (seconds,) = in_turns(clusters, DEATHS, partial(_silence, MeasuredCluster.kill))
    work = f"kill -9 of a leader to the next ack, {SESSION_SECONDS:g} s sessions"
    yield case(work, SECONDS, seconds, asked=SESSION_SECONDS + 1)
    (seconds,) = in_turns(clusters, DEATHS, partial(_silence, MeasuredCluster.terminate))
    milliseconds = [tuple(1000 * each for each in row) for row in seconds]
    yield case(
        "longest wait for an ack while a leader stops", MILLISECONDS, milliseconds, asked=200
    )


def _silence(end: Callable[[MeasuredCluster, int], None], cluster: MeasuredCluster) -> tuple[float]:
    with _topic(cluster, "alive", 1) as topic:
        return (longest_silence(cluster, topic, end),)


# Many partitions.


def _crowd_cases(clusters: list[MeasuredCluster]) -> Iterator[Case]:
    idle, seconds = in_turns(clusters, 1, _crowd)
    followed = CROWD - CROWD // BROKERS
    work = f"idle broker that follows {followed:,} partitions and leads {CROWD - followed:,}"
    yield case(work, PERCENT, idle, asked=5)
    work = f"{CROWD:,} partitions, kill -9: until all that it led take writes"
    yield case(work, SECONDS, seconds, asked=SESSION_SECONDS + 3)


def _crowd(cluster: MeasuredCluster) -> tuple[float, float]:
    """Return the busiest broker's idle CPU time, and the seconds of recovery after a death."""
    with _topic(cluster, "crowd", CROWD) as topic:
        time.sleep(SETTLING_SECONDS)
        before = cluster.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        after = cluster.cpu_seconds()
        busiest = max(after[one] - before[one] for one in after)
        return busiest / IDLE_SECONDS * 100, seconds_to_write_everywhere(cluster, topic)


@contextmanager
def _topic(cluster: MeasuredCluster, name: str, partitions: int) -> Iterator[str]:
    """Yield a topic with a replica on each broker, all of them in sync."""
    with topic_for(cluster.port, f"{name}-{next(_numbers)}", partitions, BROKERS) as topic:
        await_replicas(cluster, topic)
        yield topic


# Simulation.


def _simulation_cases() -> Iterator[Case]:
    """Yield one row for the first seeds without transactions, and one with transactions.

    Transactional clients come in addition to all others, and send four times as many requests.
    """
    under_load = "simulation of three brokers under load"
    yield _simulation_case(under_load, has_transactions=False, asked=10)
    yield _simulation_case(f"{under_load}, and transactions", has_transactions=True)


def _simulation_case(work: str, *, has_transactions: bool, asked: float | None = None) -> Case:
    settings = ((seed, simulation.Setting.draw(dice(seed, "setting"))) for seed in count())
    fitting = (seed for seed, one in settings if (one.transactional_ids > 0) == has_transactions)
    speeds = tuple(map(_simulated_seconds_per_second, islice(fitting, SIMULATIONS)))
    return Case(work=work, unit=SIMULATED, ours=lambda: None, figures=speeds, asked=asked)


def _simulated_seconds_per_second(seed: int) -> float:
    began = time.process_time()
    report = simulation.run(seed)
    assert not report.violations, report.violations
    return report.simulated_seconds / (time.process_time() - began)
