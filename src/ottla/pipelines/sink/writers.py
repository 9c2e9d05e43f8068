"""Spark's writers: `write` runs in tasks, `commit` and `abort` run in the driver.

The default is at least once, as in Spark's own Kafka sink: a retried task writes its rows again.
`exactly_once` describes exactly once.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from time import sleep
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.state.settings import read_producer_settings
from ottla.pipelines.sink.commit_decision import older_checkpoint
from ottla.pipelines.sink.encoding import RowEncoder, with_registered
from ottla.pipelines.sink.exactly_once import (
    AttemptName,
    DecisionError,
    Decisions,
    OpenTransaction,
    open_producer,
    prepare,
)
from ottla.pipelines.sink.options import SinkOptions, read_options
from ottla.pipelines.spark.gc_freeze import spare_what_is_there
from ottla.runtime import event_loop

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Spark's local properties in every task of a streaming query."""
DYING_SECONDS: Final = 2.5
"""How long tasks may run on after their job has failed: spark.python.task.killTimeout is 2 s. A
streaming query aborts their transactions in its next run; a batch job has no next run."""
KEPT_MAX: Final = 4
"""The number of queries for which a process keeps connections."""
STARTED_MAX: Final = 100
"""The number of runs that a process remembers. A forgotten run costs one more request."""


def rows_by_topic(
    batch: Any, columns: Sequence[str], topic: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield the rows of each topic, in their order, with the columns to send.

    If `topic` is given, all rows go there. Otherwise, ValueError for a row without a topic.
    """
    sent = batch.select([name for name in columns if name != "topic" or topic is not None])
    if not batch.num_rows:
        return
    if topic is not None:
        yield topic, sent
        return
    names = batch.column("topic")
    if names.null_count:
        row = names.is_null().index(True).as_py()
        raise ValueError(
            f"a row has no topic (row {row} of its Arrow batch): fill the column topic, or give "
            "the option topic"
        )
    encoded = names.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], sent
        return
    yield from _parts(sent, encoded.indices, topics)


def _parts(sent: Any, indices: Any, topics: list[str]) -> Iterator[tuple[str, Any]]:
    from pyarrow import compute  # noqa: PLC0415 - not needed for a single topic

    in_order = sent.take(compute.array_sort_indices(indices))
    counts = compute.value_counts(indices)
    count_by_index = dict(
        zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    )
    start = 0
    for index, topic in enumerate(topics):
        yield topic, in_order.slice(start, count_by_index[index])
        start += count_by_index[index]


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The result of a task."""

    row_count: int
    query: str = ""
    transaction: OpenTransaction | None = None
    attempt: int = 0
    is_skipped: bool = False
    """Nothing was written, because the batch was decided before."""


class _Closeable(Protocol):
    def close(self) -> None: ...


_K = TypeVar("_K")
_V = TypeVar("_V", bound=_Closeable)


class _Kept(Generic[_K, _V]):
    """A cache of closeable objects across batches: the most recently used ones."""

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
"""The last runs that have begun a batch after the last decision before them."""


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: Mapping[str, Any], schema: Any) -> None:
        self._options = registered(read_options(options, schema))
        meet_brokers(self._options)
        self._job = uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task."""
        if not self._options.is_exactly_once:
            return write_at_least_once(self._options, iterator)
        name = attempt_name(self._query, self._job[:12])
        return write_in_transaction(self._options, iterator, name, self._options.app_version)

    def commit(self, messages: Sequence[Any]) -> None:
        """Make all rows of the tasks visible."""
        if not self._options.is_exactly_once or not messages:
            return
        if self._options.app_id is not None:
            commit_written(self._options, messages, self._options.app_version)
            return
        with Decisions(self._options.settings, messages[0].query) as decisions:
            decisions.commit_once(_transactions(messages))

    def abort(self, messages: Sequence[Any]) -> None:
        """Abort the transactions of the tasks; Spark does not pass all of their messages."""
        if self._options.is_exactly_once:
            abort_written(self._options, self._query, messages)
            sleep(DYING_SECONDS)
            abort_written(self._options, self._query, [])

    @property
    def _query(self) -> str:
        return f"{self._options.prefix}-{self._options.app_id or self._job}"


# -- in tasks -------------------------------------------------------------------------------------


def write_micro_batch(options: SinkOptions, iterator: Iterator[Any]) -> Written:
    """Write the rows of one task of a streaming query, as the options say."""
    if not options.is_exactly_once:
        return write_at_least_once(options, iterator)
    context = TaskContext.get()
    assert context is not None
    query_id, batch_id, run_id = map(context.getLocalProperty, (QUERY_ID, BATCH_ID, RUN_ID))
    if not (query_id and batch_id and run_id):
        raise DecisionError("exactlyOnce needs to know the query, which Spark does not tell")
    name = attempt_name(f"{options.prefix}-{query_id}", run_part(run_id))
    return write_in_transaction(options, iterator, name, int(batch_id))


def write_at_least_once(options: SinkOptions, iterator: Iterator[Any]) -> Written:
    """Write rows, and return when the brokers have acknowledged them."""
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
    """Write rows in a transaction, and leave it open; write none if the batch is decided already.

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
        # Most tasks of a stateful query have no rows: they send no requests.
        return Written(0, name.query, attempt=name.attempt)
    producer = open_producer(options.settings, name)
    try:
        count = _send(producer, options, chain([first], batches))
        transaction = prepare(producer)
    finally:
        producer.close()
    return Written(count, name.query, transaction, name.attempt)


def _send(producer: Producer, options: SinkOptions, iterator: Iterator[Any]) -> int:
    """Send all rows, wait for their acknowledgement, and return their number."""
    spare_what_is_there(__name__)
    count = 0
    deliveries = []
    encoder = None if options.encoding is None else RowEncoder(options.encoding)
    for batch in iterator:
        for topic, plain in rows_by_topic(batch, options.columns, options.topic):
            rows = plain if encoder is None else encoder.encoded(topic, plain)
            deliveries.append(producer.send_arrow(topic, rows))
            count += rows.num_rows
        while deliveries and deliveries[0].done():
            deliveries.pop(0).result()
    for delivery in deliveries:
        delivery.result()
    return count


def _is_decided(options: SinkOptions, query: str, batch_id: int) -> bool:
    """Whether a batch is decided already; possible only for the first batch of a run."""
    with Decisions(options.settings, query) as decisions:
        last = decisions.last_batch_id()
    if last > batch_id and _is_streamed(batch_id):
        raise older_checkpoint(last, batch_id)
    return last >= batch_id


def _is_streamed(batch_id: int) -> bool:
    """Whether this is a micro-batch's number, which never decreases, and no version of a job.

    A write in `foreachBatch` with the micro-batch's number as its version counts as one.
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


def registered(options: SinkOptions) -> SinkOptions:
    """Register the schemas of a typed sink once, before tasks start."""
    if options.encoding is None:
        return options
    return replace(options, encoding=with_registered(options.encoding, options.topic))


def meet_brokers(options: SinkOptions) -> None:
    """Connect once, to raise errors of settings or the network before tasks start.

    Each task would wait for max.block.ms, and be retried.
    """
    client, _ = read_producer_settings(options.settings, {})

    async def ask() -> None:
        async with ClusterView(client) as view:
            await view.refresh([])

    event_loop.run(ask())


def commit_written(options: SinkOptions, messages: Sequence[Written], batch_id: int) -> None:
    """Decide on a batch of a query, over connections that this process keeps."""
    query = messages[0].query
    decisions = _decisions.get(query, lambda: Decisions(options.settings, query))
    try:
        commit_with(decisions, messages, batch_id)
    except BaseException:
        _decisions.drop(query)
        raise


def commit_with(decisions: Decisions, messages: Sequence[Written], batch_id: int) -> None:
    """Decide that the batch consists of the tasks' transactions, and commit it."""
    has_lost = any(message.attempt for message in messages)
    _check_skipped(decisions, messages, batch_id)
    decisions.commit(batch_id, _transactions(messages), has_lost=has_lost)


def _check_skipped(decisions: Decisions, messages: Sequence[Written], batch_id: int) -> None:
    """Raise DecisionError if tasks skipped the batch as decided, and its decision is gone."""
    if any(each.is_skipped for each in messages) and decisions.last_batch_id() < batch_id:
        raise DecisionError(f"the commit decision for batch {batch_id} is gone: start again")


def abort_written(options: SinkOptions, query: str, messages: Sequence[Written | None]) -> None:
    """Abort the transactions of tasks; None stands for a failed one."""
    with Decisions(options.settings, query) as decisions:
        decisions.abort(_transactions([each for each in messages if each is not None]))


def _transactions(messages: Sequence[Written]) -> list[OpenTransaction]:
    return [each.transaction for each in messages if each.transaction is not None]
