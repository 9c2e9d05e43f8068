"""Checks that the packages of the extra `ottla[spark]` are installed."""

from importlib.util import find_spec
from typing import Final

PACKAGES: Final = ("pyspark", "py4j", "pyarrow")


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
