"""The Python processes that Spark starts on this machine."""

import os
import sys
from typing import TYPE_CHECKING

import pytest

from ottla.model.settings.setting_sources import gather_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_the_python_of_the_driver(spark: "SparkSession") -> None:
    [found] = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == sys.executable


@pytest.mark.usefixtures("spark")
def test_a_broker_that_is_started_beside_spark_finds_no_setting_in_what_spark_is_told() -> None:
    told = {name: text for name, text in os.environ.items() if "PYTHON" in name}
    assert "PYSPARK_PYTHON" in told
    assert gather_settings(overrides=[], environ=told, properties="").settings == {}
