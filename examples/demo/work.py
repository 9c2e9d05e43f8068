"""The pipeline of the demo, and its current state."""

import logging
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from examples.demo.revenue import define
from ottla.pipelines.running.folders import pipeline_folder
from ottla.pipelines.running.progress import read_progress
from ottla.pipelines.running.registry import Record
from ottla.pipelines.sessions import end_session, mute_spark, spark_session
from ottla.streams import Pipeline, PipelineError, run

NAME: Final = "demo"


class Work:
    """Runs the pipeline in a thread, from the start of its JVM to its end."""

    def __init__(self, servers: str, registry: str, state: Path) -> None:
        self.failure: Exception | None = None
        self._pipeline = Pipeline(NAME, servers, registry=registry)
        self._state = state
        self._folder = pipeline_folder(state, NAME)
        self._stopping = threading.Event()
        self._is_killed = False
        self._phase = "starts its JVM"
        self._since = monotonic()
        self._thread = threading.Thread(target=self._run, name="pipeline")

    @property
    def goes_on(self) -> bool:
        """Whether it has not failed."""
        return self._thread.is_alive()

    def status(self) -> str:
        """Return Spark's current activity with its duration, or its progress."""
        flows = read_progress(self._folder.progress)
        if self._stopping.is_set() or not flows:
            return f"{self._phase}, {monotonic() - self._since:.0f} s"
        (flow,) = flows
        return (
            f"ran micro-batch {flow.batch} in {flow.batch_ms:,} ms, "
            f"{flow.rows:,} rows so far, {flow.lag or 0:,} to come"
        )

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def stop(self) -> None:
        """Start stopping the query and its JVM."""
        self._begin("stops")
        mute_spark()  # stopped tasks and workers log tracebacks
        self._stopping.set()

    def has_ended(self, seconds: float) -> bool:
        """Wait for the end until a timeout; return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def kill(self) -> None:
        """End the JVM at once, if it is up; the thread ends soon after it."""
        self._is_killed = True
        mute_spark()
        logging.disable()  # py4j logs each call that fails from now on, by the root logger
        record = Record.read(self._folder)
        if record is not None and record.jvm is not None and record.jvm.is_alive():
            with suppress(ProcessLookupError):
                os.kill(record.jvm.pid, signal.SIGKILL)

    def _begin(self, phase: str) -> None:
        self._phase, self._since = phase, monotonic()

    def _run(self) -> None:
        try:
            spark = spark_session(NAME, is_quick=True)
            try:
                if self._stopping.is_set():
                    mute_spark()
                else:
                    self._begin("starts the pipeline")
                    run(define, self._pipeline, state_dir=self._state, stopping=self._stopping)
            finally:
                end_session(spark)
        except Exception as error:
            if self._is_killed:
                return  # without its JVM any call fails, in any way
            if not isinstance(error, PipelineError | RuntimeError | OSError):
                raise
            self.failure = error
