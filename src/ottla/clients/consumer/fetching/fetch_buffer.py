"""Fetched records that the application has not consumed yet."""

from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.consumer.fetching.fetched_batches import FetchedPartition
from ottla.clients.consumer.state.errors import RecordError
from ottla.clients.consumer.state.subscription import SubscriptionState
from ottla.clients.records.serializers import Deserialize
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.consumer_record import ConsumerRecord

ARROW_ROWS_MAX: Final = 1 << 20
"""The row limit of a call that returns Arrow; the fetch that reaches it is returned whole."""


@dataclass(slots=True)
class ReadingCounts:
    """Counts of read records since the consumer was made."""

    records: int = 0
    bytes: int = 0
    """The size of fully consumed fetches, as received from the broker."""


class FetchBuffer:
    """A queue from the fetcher to the application, safe to use from two threads.

    The subscription's lock covers the queue, because its content and the positions belong together.
    """

    def __init__(
        self,
        state: SubscriptionState,
        key_deserializer: Deserialize | None,
        value_deserializer: Deserialize | None,
    ) -> None:
        self._state = state
        self.readers = (key_deserializer, value_deserializer)
        """The deserializers of keys and values, for batches that are opened from now on."""
        self._queue: deque[FetchedPartition] = deque()
        self._must_tell_fetcher = False  # used by the consuming thread only
        self.counts = ReadingCounts()

    def put(self, fetched: FetchedPartition) -> None:
        """Add the result of a fetch, in the order of offsets within each partition."""
        with self._state.lock:
            fetched.partition.buffered_bytes += fetched.size_bytes
            self._queue.append(fetched)

    @property
    def has_records(self) -> bool:
        """Whether `take` would return or raise something."""
        with self._state.lock:
            return self._next() is not None

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return the next records, at most this many; RecordError if the very next is bad."""
        records: list[ConsumerRecord] = []
        with self._state.lock, _after(records):
            while len(records) < count and (fetched := self._next()) is not None:
                records += fetched.read(count - len(records), self.readers)
                self._drop_if_over(fetched)
        self.counts.records += len(records)
        self._tell_fetcher()
        return records

    def take_arrow(self, columns: Collection[str] | None) -> list[Any]:
        """Return buffered records as pyarrow's RecordBatch, up to about ARROW_ROWS_MAX rows."""
        found: list[Any] = []
        rows = 0
        with _after(found):
            while rows < ARROW_ROWS_MAX and (added := self._take_next_arrow(columns)) is not None:
                self._tell_fetcher()
                found += added
                rows += sum(batch.num_rows for batch in added)
        self.counts.records += rows
        return found

    def _take_next_arrow(self, columns: Collection[str] | None) -> list[Any] | None:
        with self._state.lock:
            fetched = self._next()
            if fetched is None:
                return None
            start_offset = fetched.next_offset
        # Without the lock, so that the fetcher can append the next response meanwhile.
        added = fetched.as_arrow(start_offset, columns)
        with self._state.lock:
            if self._next() is not fetched:
                return []  # the partition was revoked, or its position has jumped
            fetched.finish(added)
            self._drop_if_over(fetched)
        return added.batches

    def _next(self) -> FetchedPartition | None:
        """Find the next partition to read; outdated entries are dropped."""
        at = 0
        while at < len(self._queue):
            fetched = self._queue[at]
            partition = fetched.partition
            if not fetched.is_current or self._state.assigned.get(partition.name) is not partition:
                del self._queue[at]
            elif partition.is_paused or partition.is_being_revoked:
                at += 1
            else:
                return fetched
        return None

    def _drop_if_over(self, fetched: FetchedPartition) -> None:
        if fetched.is_over:
            fetched.partition.buffered_bytes -= fetched.size_bytes
            self.counts.bytes += fetched.size_bytes
            self._queue.remove(fetched)
            self._must_tell_fetcher |= self._state.is_room_awaited
            self._state.is_room_awaited = False

    def _tell_fetcher(self) -> None:
        """Notify the fetcher if it waits for buffer space and some was freed."""
        if self._must_tell_fetcher:
            self._must_tell_fetcher = False
            self._state.on_change()


@contextmanager
def _after(found: list[Any]) -> Iterator[None]:
    """Suppress an error if records were found before it; the next call raises it."""
    try:
        yield
    except RecordError:
        if not found:
            raise


def lag_of(state: SubscriptionState, *, is_committed_only: bool) -> dict[TopicPartition, int]:
    """Return the lag of each partition whose end offset is known."""
    with state.lock:
        consumed = state.consumed()
        ends = {
            name: state.assigned[name].last_stable_offset
            if is_committed_only
            else state.assigned[name].high_watermark
            for name in consumed
        }
    return {name: max(end - consumed[name].offset, 0) for name, end in ends.items() if end >= 0}
