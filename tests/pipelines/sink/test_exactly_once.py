"""Readers of committed records see exactly the intended rows, even if processes are killed.

Spark's Python processes, in tasks and in the driver, are killed at requests to the broker. The
death of a whole driver is in test_driver_deaths.py, and many more kills are in the soak.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from ottla.wire.api_key import ApiKey
from tests.pipelines.sink.lines import run_once, write_files
from tests.pipelines.sink.processes import kill_python_workers
from tests.pipelines.sink.reading import all_committed
from tests.pipelines.sink.tripwire import Tripwire, Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
}
STARTS_MAX = 4
ROWS = 15_000
"""More than Spark gives to a task at once."""


@pytest.fixture(scope="module")
def tripwire() -> Iterator[Tripwire]:
    with Tripwire(SETTINGS) as running:
        yield running


def run_until_done(spark: "SparkSession", servers: str, folder: Path, topic: str) -> int:
    """Restart the query until it succeeds, each time with more tasks; return the number of runs."""
    for start in range(1, STARTS_MAX):
        try:
            run_once(spark, servers, folder, topic, tasks=start + 1)
        except StreamingQueryException:
            continue
        return start
    raise AssertionError("the query does not end")


def kill() -> None:
    """Kill all Python workers that Spark has under this process."""
    kill_python_workers(os.getpid())


WIRES = {
    "in the middle of writing": Wire(ApiKey.PRODUCE, kill, count=3),
    "before the decision": Wire(ApiKey.PRODUCE, kill, is_decision=True),
    "after the decision": Wire(ApiKey.END_TXN, kill, is_after=True, is_decision=True),
    "when some have ended": Wire(ApiKey.END_TXN, kill, is_after=True, is_decision=False),
}


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_worker_is_killed(
    spark: "SparkSession", tripwire: Tripwire, tmp_path: Path, wire: Wire
) -> None:
    lines = write_files(tmp_path)
    topic = f"topic-{uuid4()}"
    wire.is_tripped, wire.seen = False, 0
    tripwire.stretch(wire)
    run_until_done(spark, tripwire.bootstrap_servers, tmp_path, topic)
    assert wire.is_tripped
    assert sorted(all_committed(tripwire.bootstrap_servers, topic)) == lines


def test_a_task_that_fails_is_tried_again(spark: "SparkSession", tripwire: Tripwire) -> None:
    topic = f"topic-{uuid4()}"

    def fail_once(number: int) -> str:
        from pyspark import TaskContext  # noqa: PLC0415 - in the worker

        context = TaskContext.get()
        assert context is not None
        if number % ROWS == ROWS - 1 and context.attemptNumber() == 0:
            raise ValueError("the first attempt fails when most is written")
        return str(number)

    value = f.udf(fail_once, "string", useArrow=False)("id").alias("value")
    frame = spark.range(0, 2 * ROWS, 1, 2).select(value)
    options = {"kafka.bootstrap.servers": tripwire.bootstrap_servers, "topic": topic}
    frame.write.format("ottla").mode("append").options(**options, exactlyOnce="true").save()
    found = all_committed(tripwire.bootstrap_servers, topic)
    assert sorted(map(int, found)) == list(range(2 * ROWS))
