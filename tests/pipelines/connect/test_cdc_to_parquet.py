"""The worked example has the results that its page shows."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples import cdc_to_parquet
from examples.local_postgres import LocalPostgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_and_its_changes_are_in_files(
    spark: "SparkSession",
    broker_servers: str,
    postgres: LocalPostgres,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with postgres.database("shop"):
        cdc_to_parquet.main(spark, postgres.url_of("shop"), broker_servers, tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "5 rows of the table are in files",
        "9 rows and changes are in files",
        "folders: city=Berlin, city=Prague, city=Vienna",
        "the latest of each order are the table: True",
    ]
