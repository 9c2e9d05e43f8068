"""Shows each streaming query as a group, with committed offsets and lag, to any Kafka tool.

The position of a query is in its checkpoint. The offsets committed here are for monitoring only:
nothing reads them, and a failed commit is only logged. The group is kafka.group.id, or else
groupIdPrefix and the name of the query, or its id if it has no name.
"""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from ottla.clients.tables.topic_cluster import kept_cluster
from ottla.pipelines.source.offset_resolution import offsets_of
from ottla.pipelines.source.options import SourceOptions, read_options
from ottla.pipelines.spark.jvm_listener import JvmListener, listen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT_MS_MAX: Final = 5_000
"""The time limit of a commit; only the next commit waits for it."""
FORMAT: Final = "ottla"
_STREAMING_LEAF: Final = "StreamingDataSourceV2ScanRelation"
"""The class of a plan's leaf that reads a stream by Spark's second data source API."""
_log = logging.getLogger(__name__)
_watched: Final["WeakSet[SparkSession]"] = WeakSet()


def watch(spark: "SparkSession") -> None:
    """Show all queries that Spark starts from now on; later calls have no effect.

    Does nothing for a Spark Connect session, which has no JVM at hand.
    """
    if spark not in _watched and hasattr(spark, "_jsparkSession"):
        listen(spark, QueryGroups(spark))
        _watched.add(spark)


def group_of(options: SourceOptions, name: str | None, query_id: str) -> str:
    """Return the group under which a query is shown."""
    return options.group_id or f"{options.group_id_prefix}-{name or query_id}"


@dataclass(slots=True)
class _Run:
    """One run of a query: the JVM's query object, and the options of its sources."""

    query: Any
    """The JVM's object."""
    sources: dict[str, SourceOptions] | None = None
    """By the descriptions of the sources in Spark's progress; None until looked up."""
    committed: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_complained_about: bool = False


class QueryGroups(JvmListener):
    """Commits the offsets of queries in a separate thread, so that Spark never waits."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._runs: dict[str, _Run] = {}
        self._worker = ThreadPoolExecutor(1, "ottla-query-groups")

    def started(self, query_id: Any, run_id: str) -> None:
        """Keep the query: it may have ended before its first progress report is handled."""
        streams: Any = self._spark._jsparkSession.streams()  # noqa: SLF001
        query = streams.get(query_id)
        if query is not None:
            self._runs[run_id] = _Run(query)

    def progressed(self, progress_json: str) -> None:
        """Commit the end offsets of the completed micro-batch."""
        self._worker.submit(self._show, progress_json)

    def ended(self, run_id: str) -> None:
        """Forget the query once all of its commits are done."""
        self._worker.submit(self._runs.pop, run_id, None)

    def _show(self, progress_json: str) -> None:
        progress = json.loads(progress_json)
        run = self._runs.get(progress["runId"])
        if run is not None:
            _show(run, progress)


def _show(run: _Run, progress: dict[str, Any]) -> None:
    name, query_id = progress.get("name"), progress["id"]
    try:
        if run.sources is None:
            run.sources = _sources(run.query)
        for source in progress["sources"]:
            description, end = source["description"], source["endOffset"]
            options = run.sources.get(description)
            if options is not None and end and run.committed.get(description) != end:
                _commit(options, group_of(options, name, query_id), end)
                run.committed[description] = end
    except Exception as error:  # noqa: BLE001 - a query must not suffer from being shown
        if not run.is_complained_about:
            # An error of the JVM has its whole stack in its text.
            reason = str(error).strip().partition("\n")[0]
            _log.warning("query %s is not shown as a group: %s", name or query_id, reason)
        run.is_complained_about = True


def _commit(options: SourceOptions, group_id: str, end: dict[str, Any]) -> None:
    ends = offsets_of(end).offset_by_partition
    client = replace(options.client, timeout_ms=COMMIT_MS_MAX)
    kept_cluster(client).commit(group_id, ends)


def _sources(query: Any) -> dict[str, SourceOptions]:
    """Look up the options of a query's sources, which only Spark's plan has.

    A join with a table adds leaves that are read as batches, and other connectors add their own.
    Neither has a `stream`. Calling a missing method is no test: py4j pretends that each exists.
    """
    found = {}
    leaves = query.streamingQuery().logicalPlan().collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.getClass().getSimpleName() != _STREAMING_LEAF:
            continue
        relation = leaf.relation()
        if relation.table().name() == FORMAT:
            options = dict(relation.options().asCaseSensitiveMap())
            found[leaf.stream().toString()] = read_options(options, is_streaming=True)
    return found
