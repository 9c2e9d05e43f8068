"""The consumer for asyncio: `async for record in consumer`, `await consumer.poll()`."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ottla.clients.admin.admin_offsets import FoundOffset, OffsetAdmin
from ottla.clients.admin.per_item_results import in_time
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.cluster.unclosed_warnings import watch
from ottla.clients.consumer.core.core import ConsumerCore, named, open_schemas, typed_polls
from ottla.clients.consumer.core.sync_calls import (
    POLL_SECONDS,
    ConsumerCalls,
    Listener,
    OffsetAndTimestamp,
    PartitionReplicas,
    partition_replicas,
)
from ottla.clients.consumer.state.errors import ConsumerError, SchemaNeededError
from ottla.clients.consumer.state.offsets import OffsetAndMetadata
from ottla.clients.consumer.state.settings import ConsumerSettings, read_consumer_settings
from ottla.clients.consumer.state.subscription import RebalanceListener
from ottla.clients.consumer.workers.settings import Handler, WorkOptions, WorkSettings
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.runtime.clock import SystemClock
from ottla.wire.records.consumer_record import ConsumerRecord

if TYPE_CHECKING:
    from ottla.clients.consumer.workers.ordered_workers import OrderedWorkers

ENFORCED: Final = "the application has enforced a rebalance"


class AsyncConsumer(ConsumerCalls):
    """Reads records, alone or in a group. Use it in `async with`, in one event loop.

    Settings have Kafka's names, in a dict or as keywords with underscores. Records are prefetched
    in the background, up to fetch.max.bytes from each broker. Retriable failures are retried
    inside; other failures are raised by poll, with the partition. Timeouts are in seconds; without
    one, a call other than poll ends by default.api.timeout.ms. One task at a time polls or commits;
    `close`, `unsubscribe` and `wakeup` may be called by other tasks.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        client_settings, consumer_settings = read_consumer_settings(settings, keywords)
        consumer_settings, self._registry = open_schemas(consumer_settings, is_async=True)
        self._typed: Any = None
        view = ClusterView(client_settings, randomness=self._randomness)
        self._core = ConsumerCore(view, consumer_settings, SystemClock())
        watch(self, "aio.Consumer", view, view.abandon)

    @classmethod
    def over(
        cls,
        view: ClusterView,
        settings: ConsumerSettings,
        clock: Clock,
        randomness: Randomness | None = None,
    ) -> Self:
        """Make a consumer on an existing view; closing the consumer closes the view."""
        consumer = cls.__new__(cls)
        consumer._registry = consumer._typed = None  # noqa: SLF001 - its own
        consumer._randomness = randomness or cls._randomness  # noqa: SLF001 - its own
        core = ConsumerCore(view, settings, clock)
        consumer._core = core  # noqa: SLF001 - its own
        return consumer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout: float | None = None) -> None:
        """Commit if auto-commit is on, leave the group, and close all connections."""
        try:
            await self._core.close(timeout)
        finally:
            if self._registry is not None:
                await self._registry.close()

    # -- subscription and assignment ------------------------------------------------------------

    async def subscribe(
        self,
        topics: Collection[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Subscribe with the group to topics, or to a pattern that matches full names of topics.

        The listeners are called inside poll, and may be coroutine functions. An empty list of
        topics is the same as `unsubscribe`.
        """
        self._core.start()
        listener = RebalanceListener(on_assigned, on_revoked, on_lost)
        if not self._subscribe(topics, pattern, listener):
            await self.unsubscribe()

    async def unsubscribe(self) -> None:
        """Leave the group, and drop all partitions."""
        self._core.start()
        if self._is_in_group:
            await self._core.needed_group().unsubscribe()
        self._core.state.unsubscribe()

    async def enforce_rebalance(self, reason: str | None = None) -> None:
        """Rejoin the group with the next poll; the coordinator receives the reason.

        Does nothing during a rebalance. ConsumerError without a subscription.
        """
        self._core.start()
        group = self._core.needed_group()
        if not self._is_in_group:
            raise ConsumerError("nothing is subscribed: there is no group to join again")
        group.enforce_rebalance(reason or ENFORCED)

    # -- records --------------------------------------------------------------------------------

    async def poll(
        self, max_records: int | None = None, *, timeout: float | None = POLL_SECONDS
    ) -> list[ConsumerRecord]:
        """Return the next records, at most max.poll.records; an empty list after the timeout.

        With None as timeout it waits until there are records.
        """
        count = self._check_polling(max_records)
        return await self._taken(lambda: self._core.take(count), timeout) or []

    async def poll_arrow(
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
            return await self._poll_typed(columns, decode, timeout)
        found = await self._taken(lambda: self._core.take_arrow(columns), timeout)
        return table_of(found or [], columns)

    async def _poll_typed(
        self, columns: Collection[str] | None, decode: str, timeout: float | None
    ) -> Any:
        if self._typed is None:
            self._typed = typed_polls(self._registry, self._core.settings)
        read = self._typed.columns(decode, columns)
        await self._typed.prepare(decode, self._core.topics())
        found = self._typed.held(read)
        found = found or await self._taken(lambda: self._core.take_arrow(read), timeout)
        return await self._typed.table(decode, found or [], columns)

    async def _taken(self, take: Callable[[], Any], timeout: float | None) -> Any:
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            await self._core.prepare(deadline)
            try:
                found = take()
            except SchemaNeededError as needed:
                await needed.fetch()
                continue
            if found or self._core.is_poll_over(deadline):
                return found

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self.records()

    async def records(self, *, timeout: float | None = None) -> AsyncIterator[ConsumerRecord]:
        """Yield records one by one; end when no record arrives within the timeout in seconds.

        During the iteration commits cover exactly the yielded records.
        """
        unyielded = self._core.state.unyielded
        while True:
            while unyielded:
                yield unyielded.popleft()
            records = await self.poll(timeout=timeout)
            if not records:
                return
            unyielded.extend(records)

    async def run(self, handler: Handler, **options: Unpack[WorkOptions]) -> None:
        """Call a coroutine function with every record, in several tasks, until `stop`.

        `WorkSettings` lists the options. Records are committed when they are processed, never past
        an unprocessed record. At the end, also after a cancellation, running calls are waited for;
        the next run, or poll, continues at the first unprocessed record. Raises HandlerError,
        StuckHandlerError, and the errors of poll.
        """
        from ottla.clients.consumer.workers.factory import (  # noqa: PLC0415 - loaded only if it is used
            awaiting_listener,
            task_workers,
        )

        workers = task_workers(self._core, handler, WorkSettings(**options), self._randomness)
        listener = awaiting_listener(self._core.state.listener, workers.revoke, workers.lose)
        with self._running(workers):
            await workers.begin(listener)
            try:
                await _step_until_over(workers)
            finally:
                await workers.end()

    # -- positions ------------------------------------------------------------------------------

    async def position(self, partition: tuple[str, int], *, timeout: float | None = None) -> int:
        """Return the offset of the next record for the application, waiting until it is known."""
        name = TopicPartition(*partition)
        self._core.state.of(name)

        def find() -> int | None:
            found = self._core.state.consumed().get(name)
            return None if found is None else found.offset

        return await self._core.until(find, timeout, f"the position in {name}")

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Commit the consumed positions, or the given offsets; each is the next offset to read."""
        await self._core.commit_unless_woken(self._core.offsets_to_commit(offsets))

    async def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        on_commit: Callable[[Any, Exception | None], object] | None = None,
    ) -> None:
        """Start a commit; a later poll or close calls `on_commit(offsets, error)`."""
        self._core.commit_async(self._core.offsets_to_commit(offsets), on_commit)

    async def committed(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without a commit are left out."""
        self._core.start()
        return await self._core.needed_group().committed(named(partitions))

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record that this consumer may read."""
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, time_by_partition: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time (in ms), None where there is none."""
        times = {TopicPartition(*name): time_ms for name, time_ms in time_by_partition.items()}
        if any(time_ms < 0 for time_ms in times.values()):
            raise ValueError("a time is a number of milliseconds since 1970, not less than 0")
        found = await self._find(times)
        return {
            name: OffsetAndTimestamp(row.offset, row.timestamp_ms) if row.offset >= 0 else None
            for name, row in found.items()
        }

    async def _ends(
        self, partitions: Iterable[tuple[str, int]], time_ms: int
    ) -> dict[TopicPartition, int]:
        found = await self._find(dict.fromkeys(named(partitions), time_ms))
        return {name: row.offset for name, row in found.items()}

    async def _find(
        self, times: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, FoundOffset]:
        self._core.start()
        admin = OffsetAdmin(self._core.view)
        return await admin.find(times, is_committed_only=self._core.is_committed_only)

    # -- the cluster ----------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> list[PartitionReplicas]:
        """Return the partitions of a topic; ApiError if there is no such topic."""
        self._core.start()
        view = self._core.view
        found = await in_time(view, lambda: view.topic(topic), final=_NO_TOPIC)
        return partition_replicas(found)

    async def topics(self) -> dict[str, list[PartitionReplicas]]:
        """Return all topics, with their partitions."""
        self._core.start()
        view = self._core.view
        found = await in_time(view, lambda: view.refresh(None))
        return {topic.name: partition_replicas(topic) for topic in found if topic.name is not None}


async def _step_until_over(workers: "OrderedWorkers") -> None:
    """Step until the end; the first cancellation waits for running calls, the second does not."""
    try:
        while await workers.step():
            pass
    except asyncio.CancelledError:
        workers.stop()
        while await workers.step():
            pass
        raise


_NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
