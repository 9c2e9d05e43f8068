"""A query to be killed: it writes the lines of files to a topic, exactly once, a file a batch.

As a program it is a driver of its own: `python -m tests.pipelines.sink.lines SERVERS FOLDER TOPIC
TASKS` ends when all files are written.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_files(folder: Path, batches: int = 3, rows: int = 40) -> list[str]:
    """Write a file for each batch into `in`, and return all lines, sorted."""
    (folder / "in").mkdir()
    lines = [f"{batch:02}-{row:06}" for batch in range(batches) for row in range(rows)]
    for batch in range(batches):
        own = lines[batch * rows : (batch + 1) * rows]
        (folder / "in" / f"{batch:02}.txt").write_text("\n".join(own))
    return lines


def run_once(spark: "SparkSession", servers: str, folder: Path, topic: str, tasks: int) -> None:
    """Write the lines that are not yet in the topic; raise if the query fails."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    keyed = lines.selectExpr("value AS key", "value").repartition(tasks)
    query = (
        keyed.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    """Run as a driver."""
    from ottla.pipelines.sessions import end_session, spark_session  # noqa: PLC0415

    servers, folder, topic, tasks = sys.argv[1:]
    spark = spark_session("lines", master="local[2,4]", is_quick=True)
    run_once(spark, servers, Path(folder), topic, int(tasks))
    end_session(spark)


if __name__ == "__main__":
    main()
