"""Spark reads ten million records of 100 bytes: our source beside Spark's own connector.

One broker of ours, in a process of its own, serves both, one after the other; each has Spark in a
process of its own, on two cores. Rows go to Spark's sink "noop", which discards them. The stock
connector is fetched at the first run; where it cannot be fetched, it is not measured.

A micro-batch has 10,000 rows; its time is counted from trigger to checkpoint, as Spark reports it.
Our sessions write checkpoints faster than Spark's default; the stock connector is measured with
both.
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
from benchmarks.comparison import MILLION_RECORDS, MILLISECONDS, Case, Peer
from benchmarks.librdkafka_load import Load, produce, topic_for
from benchmarks.spark_connector import STOCK_NAME, has_stock
from benchmarks.spark_reader import MICRO_BATCH_RECORDS, ROOT, STOCK

TITLE = "Spark reads, two cores"
LOAD: Final = Load(100, int(os.environ.get("OTTLA_SPARK_RECORDS", "10000000")), 4)
PROCESS_SECONDS_MAX: Final = 1800

Figures = dict[str, tuple[float, ...]]


def cases() -> Iterator[Case]:
    """Yield the rows of the comparison."""
    with (
        TemporaryDirectory() as folder,
        running_broker(folder) as broker,
        topic_for(broker.port, "records", LOAD.partitions) as topic,
    ):
        produce(broker.port, topic, LOAD)
        stock = _measured("stock", broker.port, topic) if has_stock() else {}
        ours = _measured("ours", broker.port, topic)
    yield _case("batch, all columns", ours, "batch", _peer(STOCK_NAME, stock, "batch", 1.0))
    yield _case(
        "batch, value and offset only", ours, "narrow", _peer("all columns", ours, "batch", 1.2)
    )
    yield _case(
        "stream, AvailableNow",
        ours,
        "stream",
        _peer("batch", ours, "batch", 0.9),
        _peer(STOCK_NAME, stock, "stream", None),
    )
    yield Case(
        work=f"micro-batch of {MICRO_BATCH_RECORDS}, p50",
        unit=MILLISECONDS,
        ours=_nothing,
        peers=(
            _peer(STOCK_NAME, stock, "unset_micro_batches_ms", 1.0),
            _peer(f"{STOCK_NAME}, same checkpoints", stock, "micro_batches_ms", None),
        ),
        figures=ours["micro_batches_ms"],
    )


def _case(work: str, ours: Figures, name: str, *peers: Peer) -> Case:
    return Case(work=work, unit=MILLION_RECORDS, ours=_nothing, peers=peers, figures=ours[name])


def _peer(name: str, figures: Figures, work: str, asked: float | None) -> Peer:
    return Peer(name, _nothing, asked, figures.get(work, ()))


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""


def _measured(contender: str, port: int, topic: str) -> Figures:
    path = [str(STOCK / "python")] if contender == "stock" else []
    words = [contender, str(port), topic, str(LOAD.records)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark_reader", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)])},
        stdout=subprocess.PIPE,
        timeout=PROCESS_SECONDS_MAX,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        # The extremes of many micro-batches are no useful figures.
        name: (median(rounds),) if name.endswith("_ms") else tuple(rounds)
        for name, rounds in found.items()
    }
