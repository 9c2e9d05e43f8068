"""A driver on a cluster: it reads a topic as a batch, then copies it as a stream, exactly once.

`python -m tests.pipelines.clusters.copying MASTER SERVERS FOLDER [NAME=VALUE ...]` prints where it
ran and what the batch has read, as a line of JSON. The master - is the one that spark-submit names;
the pairs are settings of Spark.
"""

import json
import sys
from pathlib import Path

from ottla.pipelines.sessions import ExecutorError, end_session, spark_session
from tests.pipelines.clusters.windows import SETTINGS

SOURCE = "letters"
TARGET = "copies"


def main() -> None:
    """Be a driver; exit with one sentence if the executors cannot run it."""
    master, servers, folder, *pairs = sys.argv[1:]
    settings = SETTINGS | {"spark.local.dir": f"{folder}/local"}
    settings |= dict(pair.split("=", 1) for pair in pairs)
    named = None if master == "-" else master
    try:
        spark = spark_session("copies", master=named, settings=settings, is_quick=True)
    except ExecutorError as error:
        sys.exit(str(error))
    cluster = {"kafka.bootstrap.servers": servers}
    reader = spark.read.format("ottla").options(**cluster, subscribe=SOURCE)
    rows = reader.load().selectExpr("CAST(value AS string) AS value").collect()
    told = {"master": spark.sparkContext.master, "values": sorted(row.value for row in rows)}
    print(json.dumps(told))  # noqa: T201
    stream = spark.readStream.format("ottla").options(
        **cluster, subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger="30"
    )
    query = (
        stream.load()
        .select("value")
        .writeStream.format("ottla")
        .options(**cluster, topic=TARGET, exactlyOnce="true")
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    end_session(spark)


if __name__ == "__main__":
    main()
