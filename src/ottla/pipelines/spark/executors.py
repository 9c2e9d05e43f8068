"""Checks that the executors of a cluster can run Ottla's Python code."""

import re
from typing import TYPE_CHECKING, Final

from ottla.pipelines.spark.jvm import SparkStartError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ADVICE: Final = "docs/spark-cluster.md lists the ways to install it there"


_REASONS: Final = (
    re.compile(r"(Cannot run program .+)$", re.MULTILINE),
    re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", re.MULTILINE),
)


class ExecutorError(SparkStartError):
    """An executor cannot run Ottla's Python code."""


def check_executors(spark: "SparkSession") -> None:
    """Run one short job on the cluster. ExecutorError names what the executors lack.

    Spark gives each core one task, so that an executor that registers later is not checked.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - an optional package

    def missing(_: int) -> str | None:
        # cloudpickle sends a nested function by value: executors without Ottla can run it.
        import sys  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415

        try:
            for module in ("pyarrow", "pyspark_ottla", "ottla.pipelines.source.range_reading"):
                import_module(module)
        except ImportError as error:
            return f"{sys.executable}: {error}"
        return None

    context = spark.sparkContext
    tasks = context.defaultParallelism
    try:
        found = context.parallelize(range(tasks), tasks).map(missing).collect()
    except Py4JJavaError as error:
        reason = _reason(str(error.java_exception.getMessage()))
        raise ExecutorError(
            f"the executors of {context.master} cannot run Python: {reason}; {_ADVICE}"
        ) from None
    for lack in found:
        if lack is not None:
            raise ExecutorError(
                f"the executors of {context.master} cannot import ottla with {lack}; {_ADVICE}"
            )


def _reason(message: str) -> str:
    """Return the error of the executor in the message of a job that failed."""
    failure, _, _ = message.partition("Driver stacktrace:")
    for pattern in _REASONS:
        if found := pattern.findall(failure):
            return str(found[-1])
    return failure.strip().partition("\n")[0]
