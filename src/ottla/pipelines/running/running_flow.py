"""A flow with a running query, and the detection of its failures."""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError, Py4JNetworkError

from ottla.pipelines.running.failures import sentence_of
from ottla.pipelines.running.registry import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

UP_SECONDS_MAX: Final = 30
LOOK_SECONDS: Final = 0.02
COMING_UP: Final = "Initializing sources"
"""Spark's status message of a query while its Python process starts."""
STARTS_MAX: Final = 5
"""How often a query is started if its Python process was too slow to start."""
SLOW_PYTHON: Final = "Python worker failed to connect back"
"""Spark's message if a Python process takes more than ten seconds to start. The limit cannot be
set, and a busy machine exceeds it."""


@dataclass(slots=True)
class RunningFlow:
    """A flow, or a query that was started manually."""

    name: str
    query: "StreamingQuery"
    start: "Callable[[], StreamingQuery] | None" = None
    """Restarts the query from its checkpoint."""
    starts: int = 1
    at_end: "Callable[[], None] | None" = None
    """Called when the query has been stopped."""

    def wait_until_up(self) -> None:
        """Wait until the query has initialized its sources, or has ended.

        Queries that start at the same time slow each other down, and may exceed Spark's timeout.
        """
        deadline = time.monotonic() + UP_SECONDS_MAX
        while (
            self.query.isActive
            and self.query.status["message"] == COMING_UP
            and time.monotonic() < deadline
        ):
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Stop the query, if it still runs."""
        with suppress(Py4JError, OSError):
            self.query.stop()
        if self.at_end is not None:
            self.at_end()

    def goes_on(self) -> bool:
        """Whether the query continues. PipelineError has the reason of a failure."""
        try:
            return self._goes_on()
        except (Py4JNetworkError, OSError) as error:
            raise PipelineError(f"flow {self.name}: Spark's JVM has gone ({error})") from error

    def _goes_on(self) -> bool:
        if self.query.isActive:
            return True
        error = self.query.exception()
        if error is None:
            return False
        if self.start is None or SLOW_PYTHON not in str(error) or self.starts == STARTS_MAX:
            raise PipelineError(f"flow {self.name}: {sentence_of(error)}") from error
        self.starts += 1
        self.query = self.start()
        return True
