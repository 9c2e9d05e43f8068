"""Checks that PySpark is installed, and new enough for a feature."""

from importlib.util import find_spec
from typing import Final

PACKAGES: Final = ("pyspark", "py4j", "pyarrow")

Version = tuple[int, int]
BATCHES: Final[Version] = (4, 0)
"""The first with data sources in Python."""
FILTERS: Final[Version] = (4, 1)
"""The first that passes filters to them."""
STREAM_WRITES: Final[Version] = (4, 1)
"""The first with Arrow writers for streams."""
STREAMS: Final[Version] = (4, 2)
"""The first that gives a Python stream reader the start of a micro-batch and a read limit."""


def check_spark_extra(extra: str = "spark") -> None:
    """Raise an ImportError with the command that installs the first missing package.

    Packages are looked up and not imported: importing them takes most of a second.
    """
    for package in PACKAGES:
        if find_spec(package) is None:
            raise ImportError(
                f"Spark needs the package {package}, which is not installed:"
                f" pip install 'ottla[{extra}]'",
                name=package,
            ) from None  # a caller may be handling the import that failed


class SparkVersionError(ImportError):
    """The installed PySpark lacks an interface that a feature needs."""


def spark_version() -> Version:
    """Return the major and minor version of the installed PySpark."""
    from pyspark import __version__  # noqa: PLC0415 - an optional package

    major, minor = __version__.split(".")[:2]
    return int(major), int(minor)


def check_spark_version(needed: Version, feature: str) -> None:
    """Raise a SparkVersionError, with the remedy, if the installed PySpark is older."""
    found = spark_version()
    if found < needed:
        wanted = ".".join(map(str, needed))
        raise SparkVersionError(
            f"{feature} needs PySpark {wanted} or newer, and this is"
            f" {'.'.join(map(str, found))}: upgrade Spark on the driver and on the cluster"
            f" (pip install 'pyspark>={wanted}')"
        )
