"""Reads a topic with Spark, in a process of its own: `python -m benchmarks.spark_reader …`.

Ours runs in a session that Ottla makes; Spark's own connector, of the version that `make interop`
fetches, in Spark's own, with the same cores and the same way to write checkpoints. The figures
are printed as JSON: records a second of each round, and milliseconds of each micro-batch.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
STOCK: Final = ROOT / ".interop" / "spark"
CORES: Final = 2
ROUNDS: Final = 7
SECONDS_MAX: Final = 600
MICRO_BATCH_RECORDS: Final = 10_000
MICRO_BATCHES: Final = 50
WARM_UP_BATCHES: Final = 20
NARROW: Final = "value binary, offset bigint"
FORMAT_BY_CONTENDER: Final = {"ours": "ottla", "stock": "kafka"}
CHECKPOINTS_SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
)


def main() -> None:
    """Measure one contender."""
    parser = argparse.ArgumentParser()
    parser.add_argument("contender", choices=FORMAT_BY_CONTENDER)
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("records", type=int)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        spark, end = our_session() if given.contender == "ours" else stock_session(folder)
        reading = Reading(spark, FORMAT_BY_CONTENDER[given.contender], given, Path(folder))
        figures = reading.figures() if given.contender == "ours" else reading.stock_figures()
        end()
    json.dump(figures, sys.stdout)


class Reading:
    """The measurements of one session."""

    def __init__(self, spark: Any, kind: str, given: argparse.Namespace, folder: Path) -> None:
        self._spark = spark
        self._kind = kind
        self._records = given.records
        self._folder = folder
        self._checkpoints = 0
        self._options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{given.port}",
            "subscribe": given.topic,
            "startingOffsets": "earliest",
        }

    def figures(self) -> dict[str, list[float]]:
        """Measure all that our source does."""
        works = {
            "batch": self._batch,
            "stream": self._stream,
            "narrow": lambda: self._batch(NARROW),
        }
        return self._in_turns(works) | {"micro_batches_ms": self._micro_batches_ms()}

    def stock_figures(self) -> dict[str, list[float]]:
        """Measure Spark's own connector; micro-batches also with default settings."""
        found = self._in_turns({"batch": self._batch, "stream": self._stream})
        found["micro_batches_ms"] = self._micro_batches_ms()
        self._spark.conf.unset(CHECKPOINTS_SETTING)
        assert self._spark.conf.get(CHECKPOINTS_SETTING, "none") == "none"
        return found | {"unset_micro_batches_ms": self._micro_batches_ms()}

    def _in_turns(self, works: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
        """Measure both alternately; the first run of each warms up."""
        found: dict[str, list[float]] = {name: [] for name in works}
        for turn in range(1 + ROUNDS):
            for name, work in works.items():
                began = time.perf_counter()
                work()
                if turn:
                    found[name].append(self._records / (time.perf_counter() - began) / 1e6)
        return found

    def _batch(self, schema: str = "") -> None:
        reader = self._spark.read.format(self._kind).options(**self._options)
        frame = (reader.schema(schema) if schema else reader).load()
        frame.write.format("noop").mode("overwrite").save()

    def _stream(self) -> None:
        query = self._writer({}).trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS_MAX)
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert rows == self._records, f"{rows} of {self._records} records were read"

    def _micro_batches_ms(self) -> list[float]:
        query = self._writer({"maxOffsetsPerTrigger": str(MICRO_BATCH_RECORDS)}).start()
        last = WARM_UP_BATCHES + MICRO_BATCHES
        while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < last:
            time.sleep(1)  # to look costs the driver a little
        taken = {
            progress["batchId"]: progress["durationMs"]["triggerExecution"]
            for progress in query.recentProgress
            if progress["numInputRows"]
        }
        query.stop()
        return [taken[number] for number in sorted(taken) if number >= WARM_UP_BATCHES]

    def _writer(self, options: dict[str, str]) -> Any:
        self._checkpoints += 1
        reader = self._spark.readStream.format(self._kind).options(**self._options, **options)
        place = str(self._folder / f"checkpoint-{self._checkpoints}")
        return reader.load().writeStream.format("noop").option("checkpointLocation", place)


def our_session() -> tuple[Any, Callable[[], None]]:
    """Return a session made by Ottla, and a function that ends it."""
    from ottla.pipelines.sessions import end_session, spark_session  # noqa: PLC0415

    spark = spark_session("benchmark", master=f"local[{CORES},4]")
    return spark, lambda: end_session(spark)


def stock_session(folder: str) -> tuple[Any, Callable[[], None]]:
    """Return a session with Spark's own connector, and a function that ends it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(map(str, sorted((STOCK / "jars").glob("*.jar")))),
        CHECKPOINTS_SETTING: _CHECKPOINTS,
        "spark.sql.warehouse.dir": folder,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder: Any = SparkSession.builder
    builder = builder.master(f"local[{CORES}]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark, spark.stop


if __name__ == "__main__":
    main()
