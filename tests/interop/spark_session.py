"""Spark with its own connector to Kafka, on two cores of this machine.

PySpark and the jars are not in the repository: `make interop` fetches them by name, into an ignored
directory of their own, so that Spark downloads nothing when it starts. The PySpark of the virtual
environment is not used: the connector must be of Spark's very version.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SPARK = Path(__file__).parents[2] / ".interop" / "spark"
JARS = SPARK / "jars"
PYTHON = SPARK / "python"

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session(directory: Path) -> Iterator[Any]:
    """Start Spark, with its working files below a directory, and end its JVM in the end."""
    assert PYTHON.is_dir(), f"PySpark is not in {PYTHON}: `make interop` puts it there"
    sys.path.insert(0, str(PYTHON))
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]").appName("interop")
    builder = builder.config("spark.jars", ",".join(map(str, sorted(JARS.glob("*.jar")))))
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gateway = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        sys.path.remove(str(PYTHON))
