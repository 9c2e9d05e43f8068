"""Runs all connectors of a file in one Spark session, until they are stopped or done."""

import re
from collections.abc import Callable, Sequence
from threading import Event
from typing import TYPE_CHECKING, Final

from ottla.pipelines.connect.declaring.connector import Home
from ottla.pipelines.connect.declaring.declaration import Declaration
from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.declaring.preflight import check_brokers
from ottla.pipelines.connect.query_builder import start
from ottla.pipelines.sessions import check_installed
from ottla.pipelines.spark.java import JavaNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S: Final = 0.2
START_TRIES: Final = 5
"""The number of starts of a query on a machine so busy that its Python starts too late."""
SLOW_START: Final = "failed to connect back"
_REASONS: Final = (
    re.compile(r"^(?:[\w.]+\.)?(?:\w*(?:Error|Exception)): (.+)$", re.MULTILINE),
    re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE),
)


def check(declarations: Sequence[Declaration]) -> None:
    """Check Spark, external systems and brokers; a ConnectorError names the missing part."""
    try:
        check_installed("pipelines")
    except (ImportError, JavaNotFoundError) as error:
        raise ConnectorError(str(error)) from None
    for declaration in declarations:
        home = Home(declaration.name, declaration.folder, "")
        connector = declaration.connector(home, declaration.settings)
        try:
            connector.check()
        except ConnectorError as error:
            raise ConnectorError(f"{declaration.place}: {error}") from error
    check_brokers(declarations)


def run(
    spark: "SparkSession",
    declarations: Sequence[Declaration],
    *,
    is_once: bool,
    stop: Event,
    say: Callable[[str], None],
) -> None:
    """Run connectors until `stop` is set or, with `is_once`, until all present data is processed.

    With `is_once`, sources run before sinks, so that their records are processed as well. The first
    failure ends all; ConnectorError names the connector and the reason. No query is left running.
    """
    sources = [one for one in declarations if one.is_source]
    sinks = [one for one in declarations if not one.is_source]
    rounds = [sources, sinks] if is_once else [[*sources, *sinks]]
    for group in rounds:
        _run_together(spark, group, is_once=is_once, stop=stop, say=say)


def _run_together(
    spark: "SparkSession",
    declarations: Sequence[Declaration],
    *,
    is_once: bool,
    stop: Event,
    say: Callable[[str], None],
) -> None:
    started: list[_Running] = []
    try:
        for declaration in declarations:
            if stop.is_set():
                return
            started.append(_Running(spark, declaration, is_once=is_once))
            say(f"{declaration.name} runs")
        running = list(started)
        while running and not stop.wait(LOOK_EVERY_S):
            running = [one for one in running if one.goes_on()]
    finally:
        for one in started:
            one.query.stop()
    if is_once and not stop.is_set():
        for declaration in declarations:
            say(f"{declaration.name} is done")


class _Running:
    """A connector with a running query; it is restarted if Python did not start in time."""

    def __init__(self, spark: "SparkSession", declaration: Declaration, *, is_once: bool) -> None:
        self._spark = spark
        self._declaration = declaration
        self._is_once = is_once
        self._tries_left = START_TRIES
        self.query = _started(spark, declaration, is_once=is_once)

    def goes_on(self) -> bool:
        """Return whether the query continues; a ConnectorError has the reason of a failure."""
        if self.query.isActive:
            return True
        error = self.query.exception()
        if error is None:
            return False
        reason = reason_of(error)
        self._tries_left -= 1
        if SLOW_START not in reason or not self._tries_left:
            raise ConnectorError(f"{self._declaration.name}: {reason}")
        self.query = _started(self._spark, self._declaration, is_once=self._is_once)
        return True


def _started(spark: "SparkSession", declaration: Declaration, *, is_once: bool) -> "StreamingQuery":
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        return start(spark, declaration, is_once=is_once)
    except ConnectorError as error:
        said = str(error)
        raise ConnectorError(
            said if said.startswith(declaration.place) else f"{declaration.place}: {said}"
        ) from error
    except PySparkException as error:
        raise ConnectorError(f"{declaration.place}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return the sentence with the reason from one of Spark's reports."""
    said = str(error)
    for pattern in _REASONS:
        found = pattern.findall(said)
        if found:
            return str(found[-1]).strip()
    return next((line.strip() for line in said.splitlines() if line.strip()), type(error).__name__)
