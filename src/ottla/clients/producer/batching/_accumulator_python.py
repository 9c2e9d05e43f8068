"""Collects records into batches, in plain Python: the fallback of _accumulator.pyx.

Callers append in their own threads, and the sender takes batches in its event loop. Here one lock
protects the shared state. The compiled version relies on the GIL, because no step of it runs Python
code halfway, and on `critical_section` without the GIL. `wake` and the callbacks are called without
the lock.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.producer.batching._delivery_python import Batch, Delivery, OnDelivery
from ottla.clients.producer.state.errors import RecordTooLargeError
from ottla.clients.records.partitioner import Partitioner, partition_for_key
from ottla.runtime.clock import SystemClock
from ottla.wire.records._writing_python import RecordAccumulator
from ottla.wire.records.batch import HEADER_BYTES, Buffer
from ottla.wire.records.builder import record_bytes_max

if TYPE_CHECKING:
    import asyncio

NEVER_MS: Final = 2**63 - 1
NO_PARTITION: Final = -1
NO_TIMESTAMP_MS: Final = -1


class OpenBatches:
    """The pending batches of one partition: full batches, and the open batch."""

    __slots__ = ("closed", "direct_send", "open", "partition", "queue", "sticky_of", "topic")

    def __init__(self, topic: str, partition: int, sticky_of: "Topic") -> None:
        self.topic = topic
        self.partition = partition
        self.sticky_of = sticky_of
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.queue: Any = None
        """The sender's PartitionQueue."""
        self.direct_send: Any = None
        """Sends an open batch of the compiled version from the caller's thread."""

    def take(self) -> Batch | None:
        """Remove and return the first full batch."""
        return self.closed.popleft() if self.closed else None


class Topic:
    """The partitions of a topic, and the current one for records without a key.

    After a topic was recreated with fewer partitions, the surplus partitions get no new records.
    """

    __slots__ = ("count", "lanes", "name", "sticky")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: list[OpenBatches] = []
        self.count = 0
        self.sticky = NO_PARTITION


class Accumulator:
    """All unconfirmed records of one producer.

    `append` and `add_batch` return None if the topic or the partition is unknown
    (`set_partition_count`), or buffer.memory is full.
    """

    def __init__(  # noqa: PLR0913 - settings, and the world outside
        self,
        *,
        batch_bytes_max: int,
        request_bytes_max: int,
        memory_bytes_max: int,
        linger_ms: float,
        now_ms: Callable[[], int] | None,
        monotonic_ms: Callable[[], int],
        pick: Callable[[str, int], int],
        partitioner: Partitioner | None,
        wake: Callable[[], Any],
    ) -> None:
        """`pick` chooses a partition for the next records without a key.

        `wake` is called, in any thread, when the sender should look. None for `now_ms` is the
        machine's clock, which the compiled version reads without a Python call.
        """
        self.batch_bytes_max = batch_bytes_max
        self.request_bytes_max = request_bytes_max
        self.memory_bytes_max = memory_bytes_max
        self.linger_ms = linger_ms
        self.lock = Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.active: dict[OpenBatches, None] = {}
        """The partitions with pending records."""
        self.used_bytes = 0
        self.failure: BaseException | None = None
        """The exception of every later append: the producer is closed or has failed."""
        self.next_look_ms = NEVER_MS
        """When the sender looks next; an earlier deadline wakes it."""
        self.is_rung = False
        """Whether the sender was woken and has not looked yet."""
        self._topics: dict[str, Topic] = {}
        self._now_ms = now_ms or SystemClock().now_ms
        self._monotonic_ms = monotonic_ms
        self._pick = pick
        self._partitioner = partitioner
        self._wake = wake

    def append(
        self,
        topic: str,
        value: Buffer | str | None,
        key: Buffer | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery | None:
        """Put a record into the open batch of its partition, or return None.

        Raises RecordTooLargeError for a record that fits into no request.
        """
        self._check_taking()
        key_bytes, value_bytes = _bytes(key), _bytes(value)
        needed = record_bytes_max(key_bytes, value_bytes, headers)
        if HEADER_BYTES + needed > min(self.request_bytes_max, self.memory_bytes_max):
            raise self._too_large(topic, HEADER_BYTES + needed)
        lane = self._lane(topic, partition, key_bytes)
        if lane is None or self.used_bytes + HEADER_BYTES + needed > self.memory_bytes_max:
            return None
        timestamp_ms = self._now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        with self.lock:
            self._check_taking()
            batch, rings = self._batch_with_room(lane, needed)
            records = batch.records
            before = batch.charged_bytes
            records.append(timestamp_ms, key_bytes, value_bytes, headers)
            batch.charged_bytes = records.size_bytes
            self.used_bytes += batch.charged_bytes - before
            index = records.record_count - 1
            if on_delivery is not None:
                batch.call_back(index, timestamp_ms, on_delivery)
        if rings:
            self.ring()
        return Delivery(batch, index, timestamp_ms)

    def add_batch(self, topic: str, partition: int, records: RecordAccumulator) -> Batch | None:
        """Queue encoded records as a batch of their own, or return None.

        The batch follows the records appended before, and is sent without lingering.
        """
        self._check_taking()
        size = records.size_bytes
        if size > min(self.request_bytes_max, self.memory_bytes_max):
            raise self._too_large(topic, size)
        lane = self._lane(topic, partition, None)
        if lane is None or self.used_bytes + size > self.memory_bytes_max:
            return None
        batch = Batch(self, topic, partition, records, self._monotonic_ms())
        with self.lock:
            self._check_taking()
            batch.charged_bytes = size
            self.used_bytes += size
            self._close(lane)
            lane.closed.append(batch)
            self.active[lane] = None
        self.ring()
        return batch

    def choose_partition(self, topic: str, key: bytes | None = None) -> int | None:
        """Return the partition for a record with this key, or None."""
        lane = self._lane(topic, None, key)
        return None if lane is None else lane.partition

    def set_partition_count(self, topic: str, count: int) -> None:
        """Set the number of a topic's partitions."""
        with self.lock:
            known = self._topics.setdefault(topic, Topic(topic))
            for partition in range(len(known.lanes), count):
                known.lanes.append(OpenBatches(topic, partition, known))
            known.count = count
            if known.sticky >= count:
                known.sticky = NO_PARTITION

    def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions, 0 if it is unknown."""
        known = self._topics.get(topic)
        return 0 if known is None else known.count

    def lanes(self) -> Iterator[OpenBatches]:
        """Iterate over all partitions, including those without pending records."""
        for topic in list(self._topics.values()):
            yield from list(topic.lanes)

    def close_open(self, lane: OpenBatches) -> None:
        """Close the open batch of a partition, and queue it."""
        with self.lock:
            self._close(lane)

    def hurry(self, batch: Batch) -> None:
        """Make an open batch due; a closed batch is sent soon in any case."""
        if self._topics[batch.topic].lanes[batch.partition].open is batch:
            self.ring()

    def retire(self, lane: OpenBatches) -> None:
        """Remove a partition from the active ones if it has no pending records."""
        with self.lock:
            if lane.open is None and not lane.closed:
                self.active.pop(lane, None)

    def release(self, size_bytes: int) -> None:
        """Return a batch's bytes to buffer.memory."""
        with self.lock:
            self.used_bytes -= size_bytes

    def ring(self) -> None:
        """Wake the sender, if it was not woken already."""
        if not self.is_rung:
            self.is_rung = True
            try:
                self._wake()
            except BaseException:  # for example Ctrl-C, before the sender was woken
                self._wake()
                raise

    def _lane(self, topic: str, partition: int | None, key: bytes | None) -> OpenBatches | None:
        known = self._topics.get(topic)
        if known is None:
            return None
        count = known.count
        if partition is None:
            partition = self._partition_for(known, key, count)
        return known.lanes[partition] if 0 <= partition < count else None

    def _partition_for(self, topic: Topic, key: bytes | None, count: int) -> int:
        chosen = None
        if self._partitioner is not None:
            chosen = self._partitioner(topic.name, key, count)
        elif key is not None:
            chosen = partition_for_key(key, count)
        if chosen is not None:
            return chosen
        if topic.sticky == NO_PARTITION:
            topic.sticky = self._pick(topic.name, count)
        return topic.sticky

    def _batch_with_room(self, lane: OpenBatches, needed: int) -> tuple[Batch, bool]:
        batch = lane.open
        if batch is not None and batch.records.size_bytes + needed <= self.batch_bytes_max:
            return batch, False
        was_full = batch is not None
        self._close(lane)
        created_ms = self._monotonic_ms()
        lane.open = Batch(self, lane.topic, lane.partition, RecordAccumulator(), created_ms)
        self.active[lane] = None
        return lane.open, was_full or created_ms + self.linger_ms < self.next_look_ms

    def _check_taking(self) -> None:
        """Raise if appends are refused; a partitioner may have let other threads run meanwhile."""
        if self.failure is not None:
            raise self.failure

    def _close(self, lane: OpenBatches) -> None:
        if lane.open is not None:
            lane.closed.append(lane.open)
            lane.open = None
            if lane.sticky_of.sticky == lane.partition:
                lane.sticky_of.sticky = NO_PARTITION

    def _too_large(self, topic: str, size: int) -> RecordTooLargeError:
        return too_large(topic, size, self.request_bytes_max, self.memory_bytes_max)


def _bytes(given: Buffer | str | None) -> bytes | None:
    if given is None or type(given) is bytes:
        return given
    return given.encode() if isinstance(given, str) else bytes(memoryview(given))


def checked_timestamp(given: int) -> int:
    """Return milliseconds, -1 for none; fractional seconds raise TypeError."""
    try:
        timestamp_ms = operator.index(given)
    except TypeError:
        raise TypeError(f"timestamp is {given!r}: it is a whole number of milliseconds") from None
    if timestamp_ms < NO_TIMESTAMP_MS:
        raise ValueError(f"timestamp is {given}: it counts milliseconds since 1970")
    return timestamp_ms


def too_large(
    topic: str, size: int, request_bytes_max: int, memory_bytes_max: int
) -> RecordTooLargeError:
    """Return an error that names the setting that the record exceeds."""
    name, limit = "max.request.size", request_bytes_max
    if size <= request_bytes_max:
        name, limit = "buffer.memory", memory_bytes_max
    return RecordTooLargeError(
        f"a record for topic {topic!r} would take {size} bytes in its batch, and {name} is {limit}"
    )
