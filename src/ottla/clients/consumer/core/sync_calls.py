"""The non-blocking calls of a consumer: the same in the synchronous and the asyncio consumer."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clients.consumer.core.core import ConsumerCore, metrics_of, named
from ottla.clients.consumer.fetching.fetch_buffer import lag_of
from ottla.clients.consumer.state.errors import ConsumerError
from ottla.clients.consumer.state.offsets import OffsetAndMetadata, offset_of
from ottla.clients.consumer.state.subscription import (
    Choice,
    Position,
    RebalanceListener,
    SubscriptionState,
)
from ottla.clients.errors import ClientClosedError
from ottla.clients.threads.not_picklable import NotPicklable
from ottla.environment.randomness import Randomness
from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.runtime.randomness import SystemRandomness
from ottla.wire.messages.metadata import MetadataResponseTopic

if TYPE_CHECKING:
    from ottla.clients.consumer.workers.ordered_workers import OrderedWorkers

Listener = Callable[[list[TopicPartition]], object]
POLL_SECONDS: Final = 1.0
"""The default timeout of poll."""


class PartitionReplicas(NamedTuple):
    """A partition of a topic: its leader and its replicas."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int


class ConsumerCalls(NotPicklable):
    """Non-blocking calls. Partitions are TopicPartition, or pairs of topic and number."""

    _core: ConsumerCore
    _alone: AbstractContextManager[object] = nullcontext()
    """Held during a call, if only one thread may use the consumer."""
    _randomness: Randomness = SystemRandomness()
    _workers: "OrderedWorkers | None" = None
    """The workers of the current or last `run`."""
    _is_running = False
    _is_stop_wanted = False

    @property
    def core(self) -> ConsumerCore:
        """The consumer's core."""
        return self._core

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; partitions that stay keep their position.

        An empty list ends the assignment. A subscribed consumer must `unsubscribe` first, which
        blocks.
        """
        with self._changing() as state:
            state.assign_by_hand(named(partitions))

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._core.state.assigned)

    def subscription(self) -> set[str]:
        """Return the subscribed topics, including matches of the pattern."""
        return set(self._core.state.topics)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until they are resumed; they stay assigned."""
        with self._changing() as state:
            state.pause(named(partitions))

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Resume paused partitions."""
        with self._changing() as state:
            state.resume(named(partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {name for name, row in self._core.state.assigned.items() if row.is_paused}

    def seek(
        self, partition: tuple[str, int], offset: int | OffsetAndMetadata, leader_epoch: int = -1
    ) -> None:
        """Continue at this offset. Prefetched records are dropped.

        If the epoch of the preceding record is given, the leader's log is validated first.
        """
        place = offset_of(offset)
        epoch = place.leader_epoch if place is offset else leader_epoch
        position = Position(place.offset, epoch)
        with self._changing() as state:
            state.seek(TopicPartition(*partition), position)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue with the first available record; without arguments, in all partitions."""
        with self._changing() as state:
            state.reset(named(partitions) or self.assignment(), EARLIEST)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue with the next new record; without arguments, in all partitions."""
        with self._changing() as state:
            state.reset(named(partitions) or self.assignment(), LATEST)

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Return the application's lag in offsets, None before the first fetch."""
        return self._lag().get(TopicPartition(*partition))

    def metrics(self) -> dict[str, float]:
        """Return the counts of read records and the lag, under Kafka's names.

        After the first `run`, also the counts of processed and running records.
        """
        worked = {} if self._workers is None else self._workers.metrics()
        return metrics_of(self._core, self._lag().values()) | worked

    def group_metadata(self) -> Any:
        """Return the argument for a producer's send_offsets_to_transaction."""
        return self._core.needed_group().group_metadata()

    def wakeup(self) -> None:
        """Make a blocked poll, `position` or `commit`, or the next call, raise WakeupError.

        It may be called from any thread. It does not interrupt `close`.
        """
        self._core.wakeup()

    def stop(self) -> None:
        """End the current, or else the next `run` in an orderly way; from any thread."""
        self._is_stop_wanted = True
        if self._is_running and self._workers is not None:
            self._workers.stop()

    @contextmanager
    def _running(self, workers: "OrderedWorkers") -> Iterator[None]:
        """Register workers for `stop`."""
        if self._is_running:
            raise ConsumerError("this consumer runs already: stop() ends that")
        self._workers, self._is_running = workers, True
        if self._is_stop_wanted:
            workers.stop()
        try:
            yield
        finally:
            self._is_running = self._is_stop_wanted = False

    @contextmanager
    def _changing(self) -> Iterator[SubscriptionState]:
        """Yield the subscription to a call that changes it; ClientClosedError after close."""
        with self._alone:
            if self._core.is_closed:
                raise ClientClosedError("the consumer is closed")
            yield self._core.state

    def _lag(self) -> dict[TopicPartition, int]:
        return lag_of(self._core.state, is_committed_only=self._core.is_committed_only)

    def _subscribe(
        self,
        topics: Collection[str] | None,
        pattern: str | re.Pattern[str] | None,
        listener: RebalanceListener,
    ) -> bool:
        """Subscribe; False for an empty list, so that the caller must unsubscribe instead."""
        self._core.needed_group()
        if isinstance(topics, str):
            raise TypeError(f"subscribe([{topics!r}]): topics come as a list")
        if not all(isinstance(topic, str) for topic in topics or ()):
            raise TypeError(f"subscribe({topics!r}): the name of a topic is text")
        if (topics and pattern is not None) or (topics is None and pattern is None):
            raise ValueError("give topics or a pattern, not both")
        if topics:
            self._core.state.subscribe(topics, listener)
        elif pattern is not None:
            self._core.state.subscribe_pattern(re.compile(pattern), listener)
        return bool(topics) or pattern is not None

    def _check_polling(self, max_records: int | None) -> int:
        if max_records is not None and not isinstance(max_records, int):
            raise TypeError(f"max_records is {max_records!r}: for a time, poll(timeout=...)")
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is {max_records}: at least 1")
        return max_records or self._core.settings.max_poll_records

    @property
    def _is_in_group(self) -> bool:
        is_shared = self._core.state.choice in {Choice.TOPICS, Choice.PATTERN}
        return self._core.group is not None and is_shared


def partition_replicas(topic: MetadataResponseTopic) -> list[PartitionReplicas]:
    """Return the partitions of a topic from a broker's metadata."""
    rows = sorted(topic.partitions, key=lambda row: row.partition_index)
    return [
        PartitionReplicas(
            topic.name or "",
            row.partition_index,
            row.leader_id,
            tuple(row.replica_nodes),
            tuple(row.isr_nodes),
        )
        for row in rows
    ]
