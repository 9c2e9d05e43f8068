"""The common core of both consumers: the state, the buffer, and the fetcher that fills it.

`take` and `take_arrow` return buffered records in the calling thread. All blocking work runs in
coroutines on the event loop.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from operator import index
from threading import Event, get_ident
from typing import Any, Final, TypeVar

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.fetching.fetch_buffer import FetchBuffer
from ottla.clients.consumer.fetching.fetch_responses import FetchResponses
from ottla.clients.consumer.fetching.partition_leaders import Leaders
from ottla.clients.consumer.fetching.positions import PositionFinder
from ottla.clients.consumer.fetching.prefetcher import Prefetcher
from ottla.clients.consumer.group.membership import GroupMembership
from ottla.clients.consumer.state.errors import ConsumerError, WakeupError
from ottla.clients.consumer.state.offsets import OffsetAndMetadata, offset_of, to_commit
from ottla.clients.consumer.state.reset_policy import parse_reset_policy
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import SubscriptionState
from ottla.clients.errors import ClientClosedError, NoResponseError
from ottla.clients.records.interceptors import Interceptors
from ottla.clients.records.serializers import bind_deserializer
from ottla.environment.clock import Clock
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.consumer_record import ConsumerRecord

T = TypeVar("T")
NO_GROUP: Final = "this consumer has no group.id: it cannot subscribe, nor commit"
THREAD_WAIT_SECONDS_MAX: Final = 1.0
"""How long a thread waits by itself before the event loop checks for due work."""


class PollNotifier:
    """Wakes a waiting poll, in a task or a thread; notified in the event loop's thread.

    A woken poll checks again for records.
    """

    def __init__(self) -> None:
        self._for_tasks = asyncio.Event()
        self._for_threads = Event()

    def notify(self) -> None:
        """Wake all current waiters."""
        self._for_tasks.set()
        self._for_threads.set()

    async def wait(self, deadline: float | None) -> bool:
        """Wait for a notification in a task; False if the deadline, on the loop's clock, passes."""
        self._for_tasks.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._for_tasks.wait()
        except TimeoutError:
            return False
        return True

    def wait_in_thread(self, is_needless: Callable[[], bool], seconds: float | None) -> None:
        """Wait in another thread, at most one at a time; for a limited time.

        `is_needless` is called between clearing the event and waiting, so that no notification is
        lost.
        """
        limit = (
            THREAD_WAIT_SECONDS_MAX if seconds is None else min(seconds, THREAD_WAIT_SECONDS_MAX)
        )
        self._for_threads.clear()
        if not is_needless():
            self._for_threads.wait(limit)


class ConsumerCore:
    """One consumer. It may be made in any thread; all coroutines run in one event loop."""

    def __init__(
        self,
        view: ClusterView,
        settings: ConsumerSettings,
        clock: Clock,
    ) -> None:
        self.view = view
        self.settings = settings
        self.clock = clock
        self.is_committed_only = settings.isolation_level == "read_committed"
        self.state = SubscriptionState(on_change=self._on_change)
        self.interceptors = Interceptors(settings.interceptors)
        self.buffer = FetchBuffer(
            self.state,
            bind_deserializer(settings.key_deserializer),
            bind_deserializer(settings.value_deserializer),
        )
        policy = parse_reset_policy(settings.auto_offset_reset)
        self._leaders = leaders = Leaders(view, self.state, settings, policy)
        self._answers = FetchResponses(view, self.state, settings, leaders, self.buffer, policy)
        self._answers.on_progress = self.wake_poll
        self._positions = PositionFinder(
            view, self.state, settings, leaders, policy, clock, self._answers.back_off
        )
        self._notifier = PollNotifier()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._prefetcher: Prefetcher | None = None
        self._is_woken_up = False
        self.is_closing = self.is_closed = False
        self.group: GroupMembership | None = None
        if settings.group_id is not None:
            self.group = self._positions.group = GroupMembership(
                view, settings, self.state, self.wake_poll, self.interceptors.committed
            )

    def start(self) -> None:
        """Start fetching in the running loop, unless started before."""
        self._check_open()
        if self._prefetcher is None:
            self._loop, self._thread_id = asyncio.get_running_loop(), get_ident()
            self._prefetcher = Prefetcher(
                self.view,
                self.state,
                self.settings,
                self._leaders,
                self._positions,
                self._answers,
            )

    async def close(self, timeout: float | None) -> None:
        """Leave the group, stop fetching, and close all connections."""
        if self.is_closing:
            return
        self.is_closing = True
        loop = asyncio.get_running_loop()
        seconds = self.view.settings.timeout_ms / 1000 if timeout is None else timeout
        try:
            if self.group is not None:
                await self.group.close(loop.time() + seconds)
        finally:
            self.is_closed = True
            self.wake_poll()
            if self._prefetcher is not None:
                await self._prefetcher.close()
            self.view.close()
            self.interceptors.close()

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClientClosedError("the consumer is closed")

    # -- giving out -----------------------------------------------------------------------------

    def is_quick(self) -> bool:
        """Whether `take` may be called right away, without `prepare`; from any thread."""
        is_idle = not (self.is_closed or self._is_woken_up or self.state.must_tell)
        return is_idle and (self.group is None or not self.group.is_due())

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return buffered records, at most this many."""
        unyielded = self.state.unyielded
        if unyielded:
            return [unyielded.popleft() for _ in range(min(count, len(unyielded)))]
        records = self.buffer.take(count)
        if self.interceptors.on_consume and records:
            return list(self.interceptors.consumed(records))
        return records

    def topics(self) -> set[str]:
        """Return the topics that are assigned, or else subscribed."""
        assigned = {name.topic for name in self.state.assigned}
        return assigned or set(self.state.topics or ())

    def take_arrow(self, columns: Collection[str] | None) -> list[Any]:
        """Return the buffered records as Arrow batches; an iterator's records are refetched."""
        self.state.give_back()
        return self.buffer.take_arrow(columns)

    async def prepare(
        self, deadline: float | None, is_enough: Callable[[], bool] | None = None
    ) -> None:
        """Do the work that is due before records are returned, and wait until there are some.

        It returns earlier when the group has work again, or when `is_enough`, which is called after
        each `wake_poll`, returns True. A partition's error is raised once all of its buffered
        records have been returned.
        """
        self.start()
        assert self._loop is not None
        if self.state.is_idle():
            raise ConsumerError("nothing is subscribed, nothing assigned: there is nothing to poll")
        self._check_wakeup()
        if self.group is not None and self.group.is_due():
            await self.group.before_poll()
        self._raise_failure()
        while not (self.state.unyielded or self.buffer.has_records):
            self._check_open()
            self._check_wakeup()
            self._raise_failure()
            if self.state.is_idle():  # a listener has unsubscribed
                return
            if self.group is not None and self.group.is_due():
                return
            if is_enough is not None and is_enough():
                return
            if not await self._notifier.wait(deadline):
                return

    def is_poll_over(self, deadline: float | None) -> bool:
        """Whether poll must return: the deadline has passed, or a listener has unsubscribed."""
        assert self._loop is not None
        is_late = deadline is not None and self._loop.time() >= deadline
        return is_late or self.state.is_idle()

    def listen(self, seconds: float | None) -> None:
        """Wait in another thread for records, or until `prepare` is necessary; for a limited time.

        It needs no iteration of the event loop, and works only once the loop is fetching.
        """
        if self._prefetcher is not None:
            self._notifier.wait_in_thread(self._has_news, seconds)

    def _has_news(self) -> bool:
        if self.buffer.has_records or not self.is_quick():
            return True
        with self.state.lock:
            return any(partition.must_tell for partition in self.state.assigned.values())

    async def until(self, find: Callable[[], T | None], timeout: float | None, what: str) -> T:
        """Wait for a result of `find`; raises a partition's error, or NoResponseError."""
        self.start()
        assert self._loop is not None
        seconds = self.view.settings.timeout_ms / 1000 if timeout is None else timeout
        deadline = self._loop.time() + seconds
        while (found := find()) is None:
            self._check_wakeup()
            self._raise_failure()
            if not await self._notifier.wait(deadline):
                raise NoResponseError(f"{what}: nothing within {seconds:g} s")
        return found

    def _raise_failure(self) -> None:
        """Raise a partition's error once; fetching from it continues afterwards."""
        with self.state.lock:
            for partition in self.state.assigned.values():
                if partition.must_tell:
                    failure, partition.failure = partition.failure, None
                    break
            else:
                return
            self.state.must_tell = False
        self._on_change()
        assert failure is not None
        raise failure

    # -- waking ---------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the current or the next blocking call raise WakeupError; from any thread."""
        self._is_woken_up = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended: no call waits
                self._loop.call_soon_threadsafe(self._notifier.notify)

    def _check_wakeup(self) -> None:
        if self._is_woken_up and not self.is_closing:
            self._is_woken_up = False
            raise WakeupError("wakeup() was called")

    def wake_poll(self) -> None:
        """Make `prepare` check again for due work."""
        self._notifier.notify()

    def _on_change(self) -> None:
        if self._prefetcher is None or self._loop is None or self.is_closed:
            return
        if get_ident() == self._thread_id:
            self._look_again()
        else:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._look_again)

    def _look_again(self) -> None:
        assert self._prefetcher is not None
        self._prefetcher.wake()
        self._notifier.notify()

    # -- the group ------------------------------------------------------------------------------

    def needed_group(self) -> GroupMembership:
        """Return the group; ConsumerError if there is none."""
        if self.group is None:
            raise ConsumerError(NO_GROUP)
        return self.group

    def offsets_to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit: the given ones, or the consumed positions."""
        if offsets is None:
            return to_commit(self.state.consumed())
        return dict(zip(named(offsets), map(offset_of, offsets.values()), strict=True))

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit, and wait for the result; `wakeup` does not interrupt it."""
        self.start()
        await self.needed_group().commit(offsets)

    async def commit_unless_woken(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit, and wait for the result; after a WakeupError the result is unknown."""
        self.start()
        committing = asyncio.ensure_future(self.commit(offsets))
        committing.add_done_callback(lambda _: self.wake_poll())
        try:
            while not committing.done():
                self._check_wakeup()
                await self._notifier.wait(None)
        finally:
            committing.cancel()
        committing.result()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_commit: Callable[[Any, Exception | None], object] | None,
    ) -> None:
        """Start a commit; a later poll, or close, calls the callback."""
        self.start()
        self.needed_group().commit_async(offsets, on_commit)


def typed_polls(registry: Any, settings: ConsumerSettings) -> Any:
    """Return the decoder of polled values into columns; ConsumerError without a registry."""
    if settings.schemas is None:
        raise ConsumerError("poll_arrow(decode=...) needs the setting schema.registry.url")
    from ottla.clients.schemas.typed_polls import TypedPolls  # noqa: PLC0415 - pyarrow is heavy

    return TypedPolls(registry, settings.schemas)


def open_schemas(settings: ConsumerSettings, *, is_async: bool) -> tuple[ConsumerSettings, Any]:
    """Return the settings with deserializers for `key` and `value`, and their registry client.

    The client is None without schemas; otherwise the consumer closes it.
    """
    if settings.schemas is None:
        return settings, None
    from ottla.clients.schemas import client_schemas  # noqa: PLC0415 - imports the languages

    registry = client_schemas.registry_client(settings.schemas, is_async=is_async)
    return client_schemas.with_deserializers(settings, settings.schemas, registry), registry


def named(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Convert pairs of topic and number to TopicPartition."""
    return [_partition(name) for name in partitions]


def _partition(name: Any) -> TopicPartition:
    with suppress(TypeError, ValueError):
        topic, number = name
        if isinstance(topic, str) and index(number) >= 0:
            return TopicPartition(topic, index(number))
    raise TypeError(f"{name!r} is no partition: give a TopicPartition(topic, number)")


def metrics_of(core: ConsumerCore, lag: Collection[int]) -> dict[str, float]:
    """Return the counts of read records, the lag, and more, under Kafka's names."""
    counts = core.buffer.counts
    network = core.view.counts
    return {
        **network.by_name(),
        **network.of_group_by_name(),
        "records-consumed-total": counts.records,
        "bytes-consumed-total": counts.bytes,
        "rebalance-total": 0 if core.group is None else core.group.rebalance_count,
        "records-lag-max": max(lag, default=0),
        "assigned-partitions": len(core.state.assigned),
    }
