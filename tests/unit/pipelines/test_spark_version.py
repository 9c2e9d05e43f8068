"""Which PySpark a feature needs, and the sentence for an older one."""

import pyspark
import pytest
from pyspark.sql.types import StructType

from ottla.pipelines.datasource import OttlaDataSource
from ottla.pipelines.spark.spark_version import (
    BATCHES,
    STREAMS,
    SparkVersionError,
    check_spark_version,
    spark_version,
)
from ottla.pipelines.streams.pipeline import Pipeline


def test_the_version_is_a_pair_of_numbers_with_any_suffix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.10.0.dev1")
    assert spark_version() == (4, 10)
    check_spark_version(STREAMS, "a stream")


def test_pyspark_4_1_reads_batches_and_refuses_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    check_spark_version(BATCHES, "reading topics")
    with pytest.raises(SparkVersionError) as refused:
        OttlaDataSource({}).streamReader(StructType())
    assert str(refused.value) == (
        "reading topics as a stream needs PySpark 4.2 or newer, and this is 4.1: upgrade Spark on"
        " the driver and on the cluster (pip install 'pyspark>=4.2')"
    )


def test_pyspark_4_0_reads_and_writes_batches_and_refuses_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    check_spark_version(BATCHES, "reading topics")
    source = OttlaDataSource({})
    with pytest.raises(SparkVersionError, match=r"^reading topics as a stream needs PySpark 4\.2"):
        source.streamReader(StructType())
    with pytest.raises(SparkVersionError, match=r"^writing a stream to topics needs PySpark 4\.1"):
        source.streamWriter(StructType(), overwrite=False)


def test_an_older_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.8")
    with pytest.raises(SparkVersionError, match=r"^reading topics needs PySpark 4\.0 or newer"):
        OttlaDataSource({}).reader(StructType())
    with pytest.raises(SparkVersionError, match=r"^writing topics needs PySpark 4\.0 or newer"):
        OttlaDataSource({}).writer(StructType(), overwrite=False)


def test_a_streaming_pipeline_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    with pytest.raises(SparkVersionError, match=r"^reading topics as a stream needs"):
        Pipeline("shop").stream("orders")
