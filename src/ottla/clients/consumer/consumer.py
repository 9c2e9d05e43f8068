"""The consumer for plain, synchronous code: `for record in consumer`, `consumer.poll()`."""

import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.cluster.unclosed_warnings import watch
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.core.core import named, open_schemas, typed_polls
from ottla.clients.consumer.core.sync_calls import (
    POLL_SECONDS,
    ConsumerCalls,
    Listener,
    OffsetAndTimestamp,
    PartitionReplicas,
)
from ottla.clients.consumer.state.errors import ConcurrentUseError, SchemaNeededError
from ottla.clients.consumer.state.offsets import OffsetAndMetadata
from ottla.clients.consumer.state.settings import read_consumer_settings
from ottla.clients.consumer.workers.settings import Handler, WorkOptions, WorkSettings
from ottla.clients.records.serializers import complete
from ottla.clients.threads.loop_thread import LoopThread
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.wire.records.consumer_record import ConsumerRecord

if TYPE_CHECKING:
    from ottla.clients.consumer.workers.ordered_workers import OrderedWorkers

P = ParamSpec("P")
T = TypeVar("T")


class Consumer(ConsumerCalls):
    """Reads records, alone or in a group. Use it in `with`, in one thread.

    Settings have Kafka's names, in a dict or as keywords with underscores. The client's own thread
    prefetches records, up to fetch.max.bytes from each broker; poll decodes them in the calling
    thread. Listeners run in the calling thread, too, inside poll and close, and may use the
    consumer. Concurrent use by two threads raises ConcurrentUseError; only `wakeup` may be called
    from any thread. Timeouts are in seconds; without one, a call other than poll ends by
    default.api.timeout.ms.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        client_settings, consumer_settings = read_consumer_settings(settings, keywords)
        consumer_settings, self._registry = open_schemas(consumer_settings, is_async=False)
        self._typed: Any = None
        view = ClusterView(client_settings, randomness=self._randomness)
        self._behind = AsyncConsumer.over(view, consumer_settings, SystemClock())
        self._core = self._behind.core
        self._alone = OneThread()
        self._thread = LoopThread(f"consumer {client_settings.client_id}")
        look = watch(self, "Consumer", view, self._thread.abandon)
        self._thread.call_at_end(look, view.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        """Commit if auto-commit is on, leave the group, and close all connections."""
        if self._core.is_closed:
            return
        with self._alone:
            if self._core.is_closing:  # called by a listener inside `close`
                return
            try:
                self._thread.run(self._behind.close(timeout))
            finally:
                self._thread.close()
                if self._registry is not None:
                    self._registry.close()

    def _wait(
        self, call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **keywords: P.kwargs
    ) -> T:
        with self._alone:
            return self._thread.run(call(*args, **keywords))

    # -- subscription and assignment ------------------------------------------------------------

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; partitions that stay keep their position.

        An empty list is the same as `unsubscribe`.
        """
        names = named(partitions)
        if names:
            super().assign(names)
        else:
            self.unsubscribe()

    def subscribe(
        self,
        topics: Collection[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Subscribe with the group to topics, or to a pattern that matches full names of topics.

        The listeners are called with a list of partitions, inside poll, unsubscribe and close. An
        empty list of topics is the same as `unsubscribe`.
        """
        self._wait(
            self._behind.subscribe,
            topics,
            pattern=pattern,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
        )

    def unsubscribe(self) -> None:
        """Leave the group, and drop all partitions."""
        self._wait(self._behind.unsubscribe)

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Rejoin the group with the next poll; the coordinator receives the reason.

        Does nothing during a rebalance. ConsumerError without a subscription.
        """
        self._wait(self._behind.enforce_rebalance, reason)

    # -- records --------------------------------------------------------------------------------

    def poll(
        self, max_records: int | None = None, *, timeout: float | None = POLL_SECONDS
    ) -> list[ConsumerRecord]:
        """Return the next records, at most max.poll.records; an empty list after the timeout.

        With None as timeout it waits until there are records.
        """
        count = self._check_polling(max_records)
        return self._taken(lambda: self._core.take(count), timeout) or []

    def poll_arrow(
        self,
        columns: Collection[str] | None = None,
        *,
        decode: str | None = None,
        timeout: float | None = POLL_SECONDS,
    ) -> Any:
        """Return the buffered records as a pyarrow Table, fetch by fetch; it may be empty.

        The columns are named as in Spark's Kafka source; None selects all but headers.
        Deserializers are not used: keys and values are bytes.

        With `decode`, key or value, the table has the columns of the keys' or values' schema, then
        `_error`, which is null for decoded rows, and the record's other columns as `_offset` etc.
        """
        from ottla.wire.records.arrow import table_of  # noqa: PLC0415 - pyarrow is heavy

        if decode is not None:
            return self._poll_typed(columns, decode, timeout)
        found = self._taken(lambda: self._core.take_arrow(columns), timeout)
        return table_of(found or [], columns)

    def _poll_typed(
        self, columns: Collection[str] | None, decode: str, timeout: float | None
    ) -> Any:
        if self._typed is None:
            self._typed = typed_polls(self._registry, self._core.settings)
        read = self._typed.columns(decode, columns)
        complete(self._typed.prepare(decode, self._core.topics()))
        found = self._typed.held(read)
        found = found or self._taken(lambda: self._core.take_arrow(read), timeout)
        return complete(self._typed.table(decode, found or [], columns))

    def _taken(self, take: Callable[[], Any], timeout: float | None) -> Any:
        """Take buffered records in this thread; use the loop's thread only if none come soon."""
        with self._alone:
            deadline = None if timeout is None else self._thread.loop.time() + timeout
            if self._core.is_quick():
                if found := _with_schemas(take):
                    return found
                self._core.listen(timeout)
                if self._core.is_quick() and (found := _with_schemas(take)):
                    return found
            while True:
                self._thread.run(self._core.prepare(deadline))
                found = _with_schemas(take)
                if found or self._core.is_poll_over(deadline):
                    return found

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self.records()

    def records(self, *, timeout: float | None = None) -> Iterator[ConsumerRecord]:
        """Yield records one by one; end when no record arrives within the timeout in seconds.

        During the iteration commits cover exactly the yielded records.
        """
        unyielded = self._core.state.unyielded
        while True:
            while unyielded:
                yield unyielded.popleft()
            records = self.poll(timeout=timeout)
            if not records:
                return
            unyielded.extend(records)

    def run(self, handler: Handler, **options: Unpack[WorkOptions]) -> None:
        """Call a function with every record, in several threads, until `stop` or Ctrl-C.

        `WorkSettings` lists the options. Records are committed when they are processed, never past
        an unprocessed record. At the end running calls are waited for; the next run, or poll,
        continues at the first unprocessed record. Raises HandlerError, StuckHandlerError, and the
        errors of poll.
        """
        from ottla.clients.consumer.workers.factory import (  # noqa: PLC0415 - loaded only if it is used
            blocking_listener,
            thread_workers,
        )

        workers = thread_workers(self._core, handler, WorkSettings(**options), self._randomness)
        listener = blocking_listener(
            self._core.state.listener,
            lambda names: self._thread.run(workers.revoke(names)),
            lambda names: self._thread.run(workers.lose(names)),
        )
        with self._alone, self._running(workers):
            self._thread.run(workers.begin(listener))
            try:
                self._step_until_over(workers)
            finally:
                self._thread.run(workers.end())

    def _step_until_over(self, workers: "OrderedWorkers") -> None:
        """Step until the end; the first Ctrl-C requests a stop, a second Ctrl-C is raised."""
        is_going_on = True
        while is_going_on:
            try:
                is_going_on = self._thread.run(workers.step())
            except KeyboardInterrupt:
                if workers.is_stopping:
                    raise
                workers.stop()

    # -- positions ------------------------------------------------------------------------------

    def position(self, partition: tuple[str, int], *, timeout: float | None = None) -> int:
        """Return the offset of the next record for the application, waiting until it is known."""
        return self._wait(self._behind.position, partition, timeout=timeout)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Commit the consumed positions, or the given offsets; each is the next offset to read."""
        self._wait(self._behind.commit, offsets)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        on_commit: Callable[[Any, Exception | None], object] | None = None,
    ) -> None:
        """Start a commit; a later poll or close calls `on_commit(offsets, error)`."""
        self._wait(self._behind.commit_async, offsets, on_commit=on_commit)

    def committed(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without a commit are left out."""
        return self._wait(self._behind.committed, partitions)

    def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._wait(self._behind.beginning_offsets, partitions)

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record that this consumer may read."""
        return self._wait(self._behind.end_offsets, partitions)

    def offsets_for_times(
        self, time_by_partition: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time (in ms), None where there is none."""
        return self._wait(self._behind.offsets_for_times, time_by_partition)

    # -- the cluster ----------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> list[PartitionReplicas]:
        """Return the partitions of a topic; ApiError if there is no such topic."""
        return self._wait(self._behind.partitions_for, topic)

    def topics(self) -> dict[str, list[PartitionReplicas]]:
        """Return all topics, with their partitions."""
        return self._wait(self._behind.topics)


def _with_schemas(take: Callable[[], T]) -> T:
    """Take records; fetch missing schemas in this thread, without a lock."""
    while True:
        try:
            return take()
        except SchemaNeededError as needed:
            complete(needed.fetch())


class OneThread:
    """A lock against concurrent use, held during a call.

    It is reentrant, because listeners may call the consumer.
    """

    __slots__ = ("_depth", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner = 0
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != get_ident():
            if not self._lock.acquire(blocking=False):
                raise ConcurrentUseError(
                    f"thread {self._owner} is using this consumer, and thread {get_ident()} tries "
                    "to: give each thread its own consumer, or call wakeup() from outside"
                )
            self._owner = get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
            self._lock.release()
