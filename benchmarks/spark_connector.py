"""Spark's own connector, the peer of our source and sink."""

from typing import Final

from benchmarks.spark_reader import STOCK
from tools.interop import TESTS, NotHereError, check_java, fetch, fetch_spark

STOCK_NAME: Final = "spark-sql-kafka-0-10"


def has_stock() -> bool:
    """Fetch Spark's connector once; return False, and print the reason, where that fails."""
    try:
        check_java()
        fetch("Spark", STOCK, TESTS / "spark-pom.xml", fetch_spark)
    except NotHereError as reason:
        print(f"{STOCK_NAME} is not measured: {reason}", flush=True)
        return False
    return True
