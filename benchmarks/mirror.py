"""A mirror between two brokers, all with Spark on the same two cores: `make bench ARGS=mirror`.

Both brokers are processes of their own. `run_once` copies records of librdkafka, each time under
another prefix; the figure is the time of the whole call, including Spark's start of a query, but
not of its JVM. CPU seconds show where the time goes.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.broker_process import MeasuredBroker, running_broker
from benchmarks.comparison import MEGABYTES, MILLISECONDS, Case
from benchmarks.librdkafka_load import Load, produce, topic_for
from ottla.pipelines.mirror.options import MirrorOptions
from ottla.pipelines.mirror.running import Mirror
from ottla.pipelines.sessions import end_session, spark_session

TITLE = "Mirror, two cores for all of it"
LOAD: Final = Load(1_000, int(os.environ.get("OTTLA_MIRROR_RECORDS", "2000000")), 4)
ROUNDS: Final = 3
ASKED_MEGABYTES: Final = 200.0
PROCESSES: Final = ("source broker", "target broker", "Spark's JVM", "Python workers")


class Round(NamedTuple):
    """The measurements of one copy."""

    megabytes: float
    seconds: float
    cpu_seconds: tuple[float, ...]
    """By PROCESSES."""


def cases() -> Iterator[Case]:
    """Yield the speed, and each process's CPU time per 100 MB."""
    rounds = list(_rounds())
    yield Case(
        work=f"{LOAD.records:,} x {LOAD.record_bytes} bytes",
        unit=MEGABYTES,
        ours=_nothing,
        asked=ASKED_MEGABYTES,
        figures=tuple(one.megabytes / one.seconds for one in rounds),
    )
    for index, name in enumerate(PROCESSES):
        yield Case(
            work=f"CPU for 100 MB: {name}",
            unit=MILLISECONDS,
            ours=_nothing,
            figures=tuple(one.cpu_seconds[index] * 1e5 / one.megabytes for one in rounds),
        )


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""


def _rounds() -> Iterator[Round]:
    with ExitStack() as stack:
        folders = [stack.enter_context(TemporaryDirectory()) for _ in range(3)]
        source = stack.enter_context(running_broker(folders[0]))
        target = stack.enter_context(running_broker(folders[1]))
        spark = spark_session("benchmark", master="local[2,4]")
        stack.callback(end_session, spark)
        topic = stack.enter_context(topic_for(source.port, "records", LOAD.partitions))
        produce(source.port, topic, LOAD)
        for number in range(ROUNDS + 1):
            options = MirrorOptions(
                {"bootstrap.servers": f"127.0.0.1:{source.port}"},
                {"bootstrap.servers": f"127.0.0.1:{target.port}"},
                (topic,),
                prefix=f"round{number}.",
            )
            mirror = Mirror(spark, options, Path(folders[2]) / str(number))
            measured = _measured(mirror, source, target)
            if number:  # the first round warms up the JVM
                yield measured


def _measured(mirror: Mirror, source: MeasuredBroker, target: MeasuredBroker) -> Round:
    before, begun = _cpu_seconds(source, target), time.perf_counter()
    copied = mirror.run_once()
    seconds = time.perf_counter() - begun
    after = _cpu_seconds(source, target)
    used = tuple(late - early for early, late in zip(before, after, strict=True))
    return Round(copied.bytes / 1e6, seconds, used)


def _cpu_seconds(source: MeasuredBroker, target: MeasuredBroker) -> tuple[float, ...]:
    """Return the CPU time of each process, in the order of PROCESSES; this process works, too."""
    jvm, python = 0.0, time.process_time()
    for pid in _descendants(os.getpid()) - {source.pid, target.pid}:
        spent = MeasuredBroker(pid, 0).cpu_seconds()
        if "java" in Path(f"/proc/{pid}/comm").read_text():
            jvm += spent
        else:
            python += spent
    return source.cpu_seconds(), target.cpu_seconds(), jvm, python


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            continue
        if parent == pid:
            child = int(path.parent.name)
            found |= {child} | _descendants(child)
    return found
