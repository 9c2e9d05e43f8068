"""Which features need which PySpark."""

from typing import Final

Version = tuple[int, int]
BATCHES: Final[Version] = (4, 0)
"""The first with data sources in Python."""
FILTERS: Final[Version] = (4, 1)
"""The first that passes filters to them."""
STREAM_WRITES: Final[Version] = (4, 1)
"""The first with Arrow writers for streams."""
STREAMS: Final[Version] = (4, 2)
"""The first that gives a Python stream reader the start of a micro-batch and a read limit."""


class SparkVersionError(ImportError):
    """The installed PySpark lacks an interface that a feature needs."""


def spark_version() -> Version:
    """Return the major and minor version of the installed PySpark."""
    from pyspark import __version__  # noqa: PLC0415 - an optional package

    major, minor = __version__.split(".")[:2]
    return int(major), int(minor)


def check_spark_version(needed: Version, feature: str) -> None:
    """Raise a SparkVersionError that says what to upgrade if the installed PySpark is older."""
    found = spark_version()
    if found < needed:
        wanted = ".".join(map(str, needed))
        raise SparkVersionError(
            f"{feature} needs PySpark {wanted} or newer, and this is"
            f" {'.'.join(map(str, found))}: upgrade Spark on the driver and on the cluster"
            f" (pip install 'pyspark>={wanted}')"
        )
