"""Spark writes five million records of 100 bytes from Parquet: our sink beside Spark's own.

One broker of ours, in a process of its own, serves both, one after the other; each has Spark in a
process of its own, on two cores. Topics have four partitions, and the records have keys. The stock
connector is fetched at the first run; where it cannot be fetched, it is not measured.

A micro-batch has 10,000 rows that Spark makes up; counted is the time from trigger to checkpoint.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.broker_process import running_broker
from benchmarks.comparison import MILLION_RECORDS, MILLISECONDS, Case, Peer, Unit
from benchmarks.spark_connector import STOCK_NAME, has_stock
from benchmarks.spark_reader import MICRO_BATCH_RECORDS, ROOT, STOCK

TITLE = "Spark writes, two cores"
RECORDS: Final = int(os.environ.get("OTTLA_SPARK_RECORDS", "5000000"))
PROCESS_SECONDS_MAX: Final = 1800

Figures = dict[str, tuple[float, ...]]


def cases() -> Iterator[Case]:
    """Yield the rows of the comparison."""
    with TemporaryDirectory() as folder, running_broker(folder, num_partitions="4") as broker:
        stock = _measured("stock", broker.port) if has_stock() else {}
        ours = _measured("ours", broker.port)
    once, exactly = "at_least_once", "exactly_once"
    yield _case("from Parquet, at least once", MILLION_RECORDS, ours, once, stock, once, 1.0)
    yield _case("from Parquet, exactly once", MILLION_RECORDS, ours, exactly, ours, once, 0.85)
    for work, way in (("at least once", once), ("exactly once", exactly)):
        name = f"micro-batch of {MICRO_BATCH_RECORDS}, {work}, p50"
        own, theirs = f"micro_batches_{way}_ms", f"micro_batches_{once}_ms"
        asked = 1.0 if way == once else None
        yield _case(name, MILLISECONDS, _middle(ours), own, _middle(stock), theirs, asked)


def _case(
    work: str,
    unit: Unit,
    ours: Figures,
    own: str,
    others: Figures,
    theirs: str,
    asked: float | None,
) -> Case:
    name = "at least once" if others is ours else STOCK_NAME
    peer = Peer(name, _nothing, asked, others.get(theirs, ()))
    return Case(work=work, unit=unit, ours=_nothing, peers=(peer,), figures=ours[own])


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""


def _middle(figures: Figures) -> Figures:
    """Return only medians: the best of many micro-batches is no useful figure."""
    return {name: (median(rounds),) for name, rounds in figures.items()}


def _measured(contender: str, port: int) -> Figures:
    path = [str(STOCK / "python")] if contender == "stock" else []
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark_writer", contender, str(port), str(RECORDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)])},
        stdout=subprocess.PIPE,
        timeout=PROCESS_SECONDS_MAX,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: tuple(rounds) for name, rounds in found.items()}
