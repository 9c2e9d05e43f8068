"""The only module that creates SparkSessions, with default settings from measurements.

The same call serves a laptop and a cluster: only the master differs. `check_executors` checks that
the executors of a cluster can run Ottla's Python code.
"""

import logging
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.spark.java import find_java
from ottla.pipelines.spark.jvm import (
    LOGGING,
    DriverJvm,
    SparkStartError,
    start_jvm,
    wants_sparks_own_way,
)
from ottla.pipelines.spark.spark_version import Version, check_spark_extra, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ADVICE: Final = "docs/spark-cluster.md lists the ways to install it there"


_REASONS: Final = (
    re.compile(r"(Cannot run program .+)$", re.MULTILINE),
    re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", re.MULTILINE),
)

TASK_TRIES: Final = 4
"""The attempts per task; `local[2]` alone would never retry."""
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
SETTINGS: Final[tuple[tuple[Version, str, str], ...]] = (
    ((4, 0), "spark.buffer.size", "1048576"),
    ((4, 0), "spark.sql.session.timeZone", "UTC"),
    ((4, 0), "spark.sql.streaming.stateStore.providerClass",
     f"{_STREAMING}.state.RocksDBStateStoreProvider"),
    ((4, 0), "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"),
    ((4, 0), "spark.ui.showConsoleProgress", "false"),
    ((4, 1), "spark.sql.python.filterPushdown.enabled", "true"),
    ((4, 1), "spark.sql.streaming.checkpointFileManagerClass",
     f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"),
)  # fmt: skip
"""For each setting: the first version of Spark that has it, its name, its value."""
_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
"""Between the JVM and Python. Not on a cluster: the paths of sockets are limited to 108 bytes, and
the directories of YARN's containers exceed them."""
_CHECKED_MASTERS: Final = ("spark://", "yarn", "k8s://")
"""Masters with executors that may run another Python than the driver."""
_jvms: Final[list[DriverJvm]] = []
"""The JVM that this process started, if any; PySpark has one at most."""


class ExecutorError(SparkStartError):
    """An executor cannot run Ottla's Python code."""


def check_executors(spark: "SparkSession") -> None:
    """Run one short job on the cluster. ExecutorError names the missing packages.

    Spark gives each core one task, so that an executor that registers later is not checked.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - an optional package

    def missing(_: int) -> str | None:
        # cloudpickle sends a nested function by value: executors without Ottla can run it.
        import sys  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415

        try:
            for module in ("pyarrow", "pyspark_ottla", "ottla.clients.tables.range_reader"):
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


def spark_session(
    name: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    is_quick: bool = False,
) -> "SparkSession":
    """Return the session of this process, and create it if there is none.

    Without a master it uses all cores of this machine. The caller's settings and those of
    spark-submit override the defaults. A quick session starts sooner and computes slower: for tests
    and short jobs. ImportError, JavaNotFoundError, SparkStartError or ExecutorError if a part is
    missing.
    """
    check_spark_extra()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an optional package

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    _mute_log_of_errors()
    submitted = _submitted()
    master = master or submitted.get("spark.master") or default_master()
    wanted = {"spark.app.name": name} | default_settings(spark_version(), master)
    wanted |= submitted | {"spark.master": master} | dict(settings or {})
    _name_the_python(master)
    if not _is_running() and not os.environ.get("SPARK_REMOTE"):
        _start(wanted, is_quick=is_quick)
    builder: Any = SparkSession.builder
    for key, value in wanted.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    if master.startswith(_CHECKED_MASTERS):
        _check(spark)
    _show_groups(spark)
    return spark


def check_installed(extra: str = "spark") -> None:
    """Raise an ImportError or a JavaNotFoundError if `spark_session` would; start nothing.

    Java is not checked if `spark_session` does not start it itself.
    """
    check_spark_extra(extra)
    if not wants_sparks_own_way(os.environ):
        find_java()


def end_session(spark: "SparkSession") -> None:
    """Stop a session, and end its JVM if it was started here: nothing is left running."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark import SparkContext  # noqa: PLC0415

    mute_spark()
    with suppress(Py4JError, OSError):  # the JVM may have ended before
        spark.stop()
    while _jvms:
        jvm = _jvms.pop()
        with suppress(Py4JError, OSError):
            jvm.gateway.shutdown()
        SparkContext._active_spark_context = None  # noqa: SLF001 - so that another can be made
        SparkContext._gateway = None  # noqa: SLF001
        SparkContext._jvm = None  # noqa: SLF001
        jvm.end()


def mute_spark() -> None:
    """Stop forwarding the output of the JVM and its workers: they log errors when stopped."""
    for jvm in _jvms:
        jvm.talk.mute()


def default_master() -> str:
    """Return the local master, with a thread for each core that this process may use."""
    return f"local[{len(os.sched_getaffinity(0))},{TASK_TRIES}]"


def default_settings(version: Version, master: str) -> dict[str, str]:
    """Return the settings for a version of Spark and a master."""
    settings = {name: value for since, name, value in SETTINGS if version >= since}
    if master.startswith("local"):
        settings |= _LOCAL
        settings["spark.sql.shuffle.partitions"] = str(len(os.sched_getaffinity(0)))
        if version >= (4, 1):
            settings[_UNIX_SOCKETS] = "true"
    return settings


def _name_the_python(master: str) -> None:
    """Make workers run this Python; on a cluster its path may differ, and can be configured."""
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit: its JVM runs, and waits for Python to connect."""
    if not os.environ.get("PYSPARK_GATEWAY_PORT"):
        return {}
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    SparkContext._ensure_initialized()  # noqa: SLF001
    return dict(SparkConf().getAll())


def _check(spark: "SparkSession") -> None:
    """End the session if its executors cannot run it: a caller has nothing to end then."""
    try:
        check_executors(spark)
    except BaseException:
        end_session(spark)
        raise


def _is_running() -> bool:
    from pyspark import SparkContext  # noqa: PLC0415

    return SparkContext._gateway is not None  # noqa: SLF001


def _start(settings: dict[str, str], *, is_quick: bool) -> None:
    from pyspark import SparkContext  # noqa: PLC0415

    if wants_sparks_own_way(os.environ):
        name = "spark.driver.extraJavaOptions"
        logging = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
        settings[name] = f"{logging} {settings.get(name, '')}".strip()
        return
    jvm = start_jvm(find_java(), settings, is_quick=is_quick)
    _jvms.append(jvm)
    SparkContext._ensure_initialized(gateway=jvm.gateway)  # noqa: SLF001 - PySpark has no other way


def _mute_log_of_errors() -> None:
    """Prevent PySpark from also printing each analysis error that it raises, as a page of JSON."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def _show_groups(spark: "SparkSession") -> None:
    """Show each query as a group with committed offsets."""
    from ottla.pipelines.source import query_groups  # noqa: PLC0415

    query_groups.watch(spark)
