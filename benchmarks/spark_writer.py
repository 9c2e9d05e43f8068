"""Writes Parquet files to topics with Spark, in a process of its own.

`python -m benchmarks.spark_writer …` prints the measurements as JSON: records a second of each
round, for each way to write that the contender has, and milliseconds of each micro-batch.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.spark_reader import (
    FORMAT_BY_CONTENDER,
    MICRO_BATCH_RECORDS,
    our_session,
    stock_session,
)

ROUNDS: Final = 3
PARTITIONS: Final = 4
MICRO_BATCHES: Final = 30
WARM_UP_BATCHES: Final = 10
MICRO_TURNS: Final = 2
"""The last run counts: during the first, the JVM has not compiled all code of streams yet."""
SECONDS_MAX: Final = 600
KEY_AND_VALUE: Final = "CAST(id AS STRING) AS key", "encode(rpad(id, 100, '.'), 'utf-8') AS value"


def main() -> None:
    """Measure one contender."""
    parser = argparse.ArgumentParser()
    parser.add_argument("contender", choices=FORMAT_BY_CONTENDER)
    parser.add_argument("port", type=int)
    parser.add_argument("records", type=int)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        is_ours = given.contender == "ours"
        spark, end = our_session() if is_ours else stock_session(folder)
        writing = Writing(spark, given, Path(folder))
        figures = writing.figures(is_exactly_once_known=is_ours)
        end()
    json.dump(figures, sys.stdout)


class Writing:
    """The measurements of one session."""

    def __init__(self, spark: Any, given: argparse.Namespace, folder: Path) -> None:
        self._spark = spark
        self._kind = FORMAT_BY_CONTENDER[given.contender]
        self._name = given.contender
        self._server = f"127.0.0.1:{given.port}"
        self._records = given.records
        self._folder = folder
        self._topics = 0

    def figures(self, *, is_exactly_once_known: bool) -> dict[str, list[float]]:
        """Measure each way alternately; the first run of each warms up."""
        source = str(self._folder / "rows")
        rows = self._spark.range(0, self._records, 1, PARTITIONS).selectExpr(*KEY_AND_VALUE)
        rows.write.parquet(source)
        frame = self._spark.read.parquet(source)
        ways: dict[str, dict[str, str]] = {"at_least_once": {}}
        if is_exactly_once_known:
            ways["exactly_once"] = {"exactlyOnce": "true"}
        found: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(1 + ROUNDS):
            for name, options in ways.items():
                began = time.perf_counter()
                writer = frame.write.format(self._kind).mode("append")
                writer.options(**self._options(), **options).save()
                if turn:
                    found[name].append(self._records / (time.perf_counter() - began) / 1e6)
        for _ in range(MICRO_TURNS):
            for name, options in ways.items():
                found[f"micro_batches_{name}_ms"] = self._micro_batches_ms(options)
        return found

    def _options(self) -> dict[str, str]:
        self._topics += 1
        topic = f"{self._name}-{self._topics}"
        return {"kafka.bootstrap.servers": self._server, "topic": topic}

    def _micro_batches_ms(self, options: dict[str, str]) -> list[float]:
        """Write micro-batches that Spark generates, and return the milliseconds of each."""
        reader = self._spark.readStream.format("rate-micro-batch")
        rows = reader.option("rowsPerBatch", MICRO_BATCH_RECORDS).option("numPartitions", 2).load()
        place = self._folder / f"checkpoint-{self._topics}"
        writer = rows.selectExpr("value AS id").selectExpr(*KEY_AND_VALUE).writeStream
        writer = writer.format(self._kind).options(**self._options(), **options)
        query = writer.option("checkpointLocation", str(place)).start()
        deadline = time.monotonic() + SECONDS_MAX
        found: dict[int, float] = {}
        while len(found) < WARM_UP_BATCHES + MICRO_BATCHES and time.monotonic() < deadline:
            if not query.isActive:
                raise query.exception()
            for progress in query.recentProgress:
                found[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            time.sleep(0.2)
        query.stop()
        return [found[number] for number in sorted(found)][WARM_UP_BATCHES:]


if __name__ == "__main__":
    main()
