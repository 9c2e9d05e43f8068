"""Listeners of streaming queries that the JVM calls directly.

PySpark's own listeners turn each event into Python objects, call by call. This was measured as
40 ms of CPU in Python and 140 ms in the JVM for one micro-batch, which may itself take less. Here
an event is a single string.
"""

from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener


class JvmListener:
    """Pass it to `listen`. Overridden methods run in threads of py4j, and must not block."""

    class Java:
        """The attribute that py4j looks for: the implemented interface."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    _wrapped: Any = None

    @property
    def _jlistener(self) -> Any:
        """The object that PySpark registers in the JVM, and later removes."""
        from pyspark import SparkContext  # noqa: PLC0415

        if self._wrapped is None:
            jvm: Any = SparkContext._jvm  # noqa: SLF001
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(self)
        return self._wrapped

    def started(self, query_id: Any, run_id: str) -> None:
        """Handle the start of a query, before it does anything; its id is the JVM's object."""

    def progressed(self, progress_json: str) -> None:
        """Handle the end of a micro-batch."""

    def ended(self, run_id: str) -> None:
        """Handle the end of a query, for any reason."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Java's names
        """Receive the event from the JVM."""
        self.started(event.id(), event.runId().toString())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Receive the event from the JVM."""
        self.progressed(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Ignore the event."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Receive the event from the JVM."""
        self.ended(event.runId().toString())


def listen(spark: "SparkSession", listener: JvmListener) -> None:
    """Register a listener for all queries of a session with a local JVM."""
    spark.streams.addListener(cast("StreamingQueryListener", listener))
