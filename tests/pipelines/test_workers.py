"""The Python processes that Spark starts on this machine."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_this_python_without_sparks_jar_on_their_path(spark: "SparkSession") -> None:
    def told(_: int) -> tuple[str, list[str]]:
        return sys.executable, sys.path

    [(executable, path)] = spark.sparkContext.parallelize([0], 1).map(told).collect()
    assert executable == sys.executable
    assert path
    assert not [entry for entry in path if "spark-core" in entry]
