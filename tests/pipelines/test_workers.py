"""The Python processes that Spark starts on this machine."""

import os
import sys
from typing import TYPE_CHECKING

import pytest

from ottla.model.settings.setting_sources import gather_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_this_python_without_sparks_jar_on_their_path(spark: "SparkSession") -> None:
    def told(_: int) -> tuple[str, list[str]]:
        return sys.executable, sys.path

    [(executable, path)] = spark.sparkContext.parallelize([0], 1).map(told).collect()
    assert executable == sys.executable
    assert path
    assert not [entry for entry in path if "spark-core" in entry]


@pytest.mark.usefixtures("spark")
def test_a_broker_that_is_started_beside_spark_finds_no_setting_in_what_spark_is_told() -> None:
    told = {name: text for name, text in os.environ.items() if "PYTHON" in name}
    assert "PYSPARK_PYTHON" in told
    assert gather_settings(overrides=[], environ=told, properties="").settings == {}
