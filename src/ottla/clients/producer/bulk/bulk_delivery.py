"""The result of a bulk send."""

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from ottla.clients.producer.batching.accumulator import Batch
from ottla.clients.producer.batching.delivery_wait import call_safely, wait_in_loop, wait_in_thread
from ottla.clients.producer.bulk.bulk import Piece


class BulkDeliveryError(Exception):
    """Some rows were not delivered; the cause is the error of one of their records."""

    def __init__(self, topic: str, partition: int, rows: range, cause: BaseException) -> None:
        super().__init__(
            f"rows {rows.start} to {rows.stop - 1} have records for partition {topic}-{partition} "
            f"that were not delivered: {cause}"
        )
        self.partition = partition
        self.rows = rows
        """The range of rows with the failed records; it may include rows of other partitions."""
        self.__cause__ = cause


class PartitionOffsets(NamedTuple):
    """The offsets of the rows in one partition; other producers' records may lie between them.

    Offsets are -1 if the broker did not return them.
    """

    first_offset: int
    last_offset: int
    record_count: int


class BulkMetadata(NamedTuple):
    """The offsets of the records of a bulk send."""

    topic: str
    record_count: int
    offsets: dict[int, PartitionOffsets]
    """By partition."""


class BulkDelivery:
    """The future result of many records, for any thread and any event loop."""

    def __init__(self, topic: str, loop: asyncio.AbstractEventLoop | None) -> None:
        self.topic = topic
        self.loop = loop
        """The event loop that completes the records."""
        self.is_done = False
        self.failure: BulkDeliveryError | None = None
        """The first failure so far."""
        self._lock = Lock()  # protects the fields below between the queueing thread and the loop
        self._unknown_batches = 1  # the extra 1 stays until `close`
        self._record_count = 0
        self._offsets: dict[int, PartitionOffsets] = {}
        self._waiters: list[Callable[[], None]] = []

    def add(self, batch: Batch, piece: Piece) -> None:
        """Add a batch to wait for."""
        count = batch.record_count
        with self._lock:
            self._unknown_batches += 1
            self._record_count += count
        batch.when_done(partial(self._take, batch, count, piece.first_row, piece.last_row))

    def close(self) -> None:
        """Declare that all batches are queued."""
        self._one_less()

    def done(self) -> bool:
        """Whether all records were written or have failed."""
        return self.is_done

    def result(self, timeout: float | None = None) -> BulkMetadata:
        """Wait up to the timeout in seconds, or without limit, and return the records' offsets.

        BulkDeliveryError if some were not delivered, TimeoutError without a result in time.
        """
        wait_in_thread(self, timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> BulkDeliveryError | None:
        """Wait as `result` does, and return its error, or None."""
        wait_in_thread(self, timeout)
        return self.failure

    def add_done_callback(self, call: Callable[["BulkDelivery"], Any]) -> None:
        """Call this with the delivery when it is done, in the client's thread; at once if it is."""
        self.when_done(lambda: call_safely(call, self))

    def __await__(self) -> Generator[Any, None, BulkMetadata]:
        if not self.is_done:
            yield from wait_in_loop(self)
        return self._outcome()

    def hurry(self) -> None:
        """Do nothing: whole batches do not linger."""

    def take_answer(self, seconds_max: float) -> bool:  # noqa: ARG002 - as with a batch
        """Return whether all is done, without waiting: the sender reads these responses."""
        return self.is_done

    def when_done(self, call: Callable[[], None]) -> None:
        """Call this when all is done, or at once if it is. It must not raise."""
        with self._lock:
            if not self.is_done:
                self._waiters.append(call)
                return
        call()

    def _outcome(self) -> BulkMetadata:
        if self.failure is not None:
            raise self.failure
        return BulkMetadata(self.topic, self._record_count, dict(sorted(self._offsets.items())))

    def _take(self, batch: Batch, count: int, first_row: int, last_row: int) -> None:
        error = batch.first_error()
        if error is None:
            first = batch.metadata_of(0, -1).offset
            last = batch.metadata_of(count - 1, -1).offset
            self._add_offsets(batch.partition, PartitionOffsets(first, last, count))
        elif self.failure is None:
            rows = range(first_row, last_row + 1)
            self.failure = BulkDeliveryError(self.topic, batch.partition, rows, error)
        self._one_less()

    def _add_offsets(self, partition: int, added: PartitionOffsets) -> None:
        """Extend a partition's offsets; its batches complete in order."""
        known = self._offsets.get(partition)
        if known is not None:
            first = known.first_offset if known.first_offset >= 0 else added.first_offset
            last = added.last_offset if added.last_offset >= 0 else known.last_offset
            added = PartitionOffsets(first, last, known.record_count + added.record_count)
        self._offsets[partition] = added

    def _one_less(self) -> None:
        with self._lock:
            self._unknown_batches -= 1
            if self._unknown_batches:
                return
            self.is_done = True
            waiters, self._waiters = self._waiters, []
        for call in waiters:
            call()
