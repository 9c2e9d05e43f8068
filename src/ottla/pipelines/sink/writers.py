"""The writers that Spark asks for: `write` runs in its tasks, `commit` and `abort` in its driver.

At least once is what Spark's own Kafka sink does, and the default: a task that is tried again
writes its rows again. Exactly once is told in `two_phases`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from time import sleep
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.state.settings import read_producer_settings
from ottla.pipelines.sink.commit_decision import older_checkpoint
from ottla.pipelines.sink.exactly_once import (
    AttemptName,
    DecisionError,
    Decisions,
    OpenTransaction,
    open_producer,
    prepare,
)
from ottla.pipelines.sink.options import SinkOptions, read_options
from ottla.pipelines.sink.rows_by_topic import rows_by_topic
from ottla.pipelines.spark.gc_freeze import spare_what_is_there
from ottla.runtime import event_loop

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Local properties of Spark's, in every task of a streaming query."""
DYING_SECONDS: Final = 2.5
"""How long tasks may go on after their job has failed: spark.python.task.killTimeout is 2 s. Nobody
comes after a job to abort what they have left, as the next run of a query does."""
KEPT_MAX: Final = 4
"""For how many queries a process keeps its connections."""
STARTED_MAX: Final = 100
"""How many runs of queries a process remembers. A run that is forgotten costs one more look."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task has written."""

    row_count: int
    query: str = ""
    transaction: OpenTransaction | None = None
    attempt: int = 0
    is_skipped: bool = False
    """Its batch was decided before: it has written nothing."""


class _Closeable(Protocol):
    def close(self) -> None: ...


_K = TypeVar("_K")
_V = TypeVar("_V", bound=_Closeable)


class _Kept(Generic[_K, _V]):
    """Things that a process keeps for the next batch, the last few of them."""

    def __init__(self) -> None:
        self._things: dict[_K, _V] = {}

    def get(self, key: _K, make: Callable[[], _V]) -> _V:
        thing = self._things.pop(key, None) or make()
        self._things[key] = thing
        while len(self._things) > KEPT_MAX:
            self._things.pop(next(iter(self._things))).close()
        return thing

    def drop(self, key: _K) -> None:
        thing = self._things.pop(key, None)
        if thing is not None:
            thing.close()


_producers: Final[_Kept[tuple[tuple[str, str], ...], Producer]] = _Kept()
_decisions: Final[_Kept[str, Decisions]] = _Kept()
_started: Final[deque[tuple[str, str]]] = deque(maxlen=STARTED_MAX)
"""The last runs of queries that have got beyond what was decided before them."""


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: Mapping[str, Any], schema: Any) -> None:
        self._options = read_options(options, schema)
        meet_brokers(self._options)
        self._job = uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task."""
        if not self._options.is_exactly_once:
            return write_at_least_once(self._options, iterator)
        name = attempt_name(self._query, self._job[:12])
        return write_in_transaction(self._options, iterator, name, self._options.app_version)

    def commit(self, messages: Sequence[Any]) -> None:
        """Make everything visible that the tasks have written."""
        if not self._options.is_exactly_once or not messages:
            return
        if self._options.app_id is not None:
            _commit(self._options, messages, self._options.app_version)
            return
        with Decisions(self._options.settings, messages[0].query) as decisions:
            decisions.commit_once(_transactions(messages))

    def abort(self, messages: Sequence[Any]) -> None:
        """Abort what tasks have written; Spark does not name all of them."""
        if self._options.is_exactly_once:
            _abort(self._options, self._query, messages)
            sleep(DYING_SECONDS)
            _abort(self._options, self._query, [])

    @property
    def _query(self) -> str:
        return f"{self._options.prefix}-{self._options.app_id or self._job}"


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, options: Mapping[str, Any], schema: Any) -> None:
        self._options = read_options(options, schema)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task of a micro-batch."""
        if not self._options.is_exactly_once:
            return write_at_least_once(self._options, iterator)
        context = TaskContext.get()
        assert context is not None
        query_id, batch_id, run_id = map(context.getLocalProperty, (QUERY_ID, BATCH_ID, RUN_ID))
        if not (query_id and batch_id and run_id):
            raise DecisionError("exactlyOnce needs to know the query, which Spark does not tell")
        name = attempt_name(f"{self._options.prefix}-{query_id}", run_part(run_id))
        return write_in_transaction(self._options, iterator, name, int(batch_id))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make a micro-batch visible, once."""
        if self._options.is_exactly_once and messages:
            _commit(self._options, messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort what tasks have written that did not fail."""
        del batchId
        queries = {message.query for message in messages if message is not None}
        if self._options.is_exactly_once and queries:
            _abort(self._options, queries.pop(), messages)


# -- in tasks -------------------------------------------------------------------------------------


def write_at_least_once(options: SinkOptions, iterator: Iterator[Any]) -> Written:
    """Write rows, and return when the brokers have them."""
    key = tuple(sorted(options.settings.items()))
    producer = _producers.get(key, lambda: Producer(options.settings))
    try:
        count = _send(producer, options, iterator)
    except BaseException:
        _producers.drop(key)
        raise
    return Written(count)


def write_in_transaction(
    options: SinkOptions, iterator: Iterator[Any], name: AttemptName, batch_id: int
) -> Written:
    """Write rows in a transaction, and leave it open; nothing if the batch is decided already.

    DecisionError if a later batch of a stream is decided already.
    """
    run = name.query, name.run
    if batch_id >= 0 and run not in _started:
        if _is_decided(options, name.query, batch_id):
            return Written(0, name.query, attempt=name.attempt, is_skipped=True)
        _started.append(run)
    batches = (batch for batch in iterator if batch.num_rows)
    first = next(batches, None)
    if first is None:
        # Most tasks of a stateful query have no rows: they cost the brokers nothing.
        return Written(0, name.query, attempt=name.attempt)
    producer = open_producer(options.settings, name)
    try:
        count = _send(producer, options, chain([first], batches))
        transaction = prepare(producer)
    finally:
        producer.close()
    return Written(count, name.query, transaction, name.attempt)


def _send(producer: Producer, options: SinkOptions, iterator: Iterator[Any]) -> int:
    """Send everything, wait for it, and return how many rows there were."""
    spare_what_is_there(__name__)
    count = 0
    deliveries = []
    for batch in iterator:
        for topic, rows in rows_by_topic(batch, options.columns, options.topic):
            deliveries.append(producer.send_arrow(topic, rows))
            count += rows.num_rows
        while deliveries and deliveries[0].done():
            deliveries.pop(0).result()
    for delivery in deliveries:
        delivery.result()
    return count


def _is_decided(options: SinkOptions, query: str, batch_id: int) -> bool:
    """Whether a batch needs no writing, which can be so for the first one of a run only."""
    with Decisions(options.settings, query) as decisions:
        last = decisions.last_batch_id()
    if last > batch_id and _is_streamed(batch_id):
        raise older_checkpoint(last, batch_id)
    return last >= batch_id


def _is_streamed(batch_id: int) -> bool:
    """Whether this is a micro-batch, which never comes after a later one, and no version of a job.

    It is also one if `foreachBatch` gives its number as the version.
    """
    context = TaskContext.get()
    return context is not None and context.getLocalProperty(BATCH_ID) == str(batch_id)


def run_part(run_id: str) -> str:
    """Return the part of a transactional id that names a run of a query."""
    return run_id.replace("-", "")[:12]


def attempt_name(query: str, run: str) -> AttemptName:
    """Return the name of the attempt that this process works on."""
    context = TaskContext.get()
    assert context is not None
    return AttemptName(query, run, context.partitionId(), context.attemptNumber())


# -- in the driver --------------------------------------------------------------------------------


def meet_brokers(options: SinkOptions) -> None:
    """Raise what is wrong with settings, or with the way to the brokers, before tasks wait for it.

    Each of them would wait for max.block.ms, and be tried again.
    """
    client, _ = read_producer_settings(options.settings, {})

    async def ask() -> None:
        async with ClusterView(client) as view:
            await view.refresh([])

    event_loop.run(ask())


def _commit(options: SinkOptions, messages: Sequence[Written], batch_id: int) -> None:
    query = messages[0].query
    decisions = _decisions.get(query, lambda: Decisions(options.settings, query))
    try:
        commit_with(decisions, messages, batch_id)
    except BaseException:
        _decisions.drop(query)
        raise


def commit_with(decisions: Decisions, messages: Sequence[Written], batch_id: int) -> None:
    """Decide that what the tasks have written is the batch, and commit it."""
    has_lost = any(message.attempt for message in messages)
    _check_skipped(decisions, messages, batch_id)
    decisions.commit(batch_id, _transactions(messages), has_lost=has_lost)


def _check_skipped(decisions: Decisions, messages: Sequence[Written], batch_id: int) -> None:
    """Look again whether a batch is decided that tasks did not write because they saw it so."""
    if any(each.is_skipped for each in messages) and decisions.last_batch_id() < batch_id:
        raise DecisionError(f"what was decided about batch {batch_id} is gone: start again")


def _abort(options: SinkOptions, query: str, messages: Sequence[Written | None]) -> None:
    with Decisions(options.settings, query) as decisions:
        decisions.abort(_transactions([each for each in messages if each is not None]))


def _transactions(messages: Sequence[Written]) -> list[OpenTransaction]:
    return [each.transaction for each in messages if each.transaction is not None]
