"""A batch and the deliveries of its records: the plain Python fallback of _accumulator.pyx."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.clients.producer.batching.delivery_wait import call_safely, wait_in_loop, wait_in_thread
from ottla.clients.producer.state.record_metadata import UNKNOWN_OFFSET, RecordMetadata
from ottla.wire.records._writing_python import RecordAccumulator

if TYPE_CHECKING:
    from ottla.clients.producer.batching._accumulator_python import Accumulator

OnDelivery = Callable[[BaseException | None, RecordMetadata | None], Any]


class Delivery:
    """The future result of one record. Any thread can wait for it; any event loop can await it.

    Waiting makes the record due at once, without lingering.
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: "Batch", index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The record's partition."""
        return self._batch.partition

    def done(self) -> bool:
        """Whether the record was written or has failed."""
        return self._batch.is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait up to the timeout in seconds, or without limit, and return the record's metadata.

        Raises the record's error, or TimeoutError if there is no result in time.
        """
        wait_in_thread(self._batch, timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does, and return the record's error, or None."""
        wait_in_thread(self._batch, timeout)
        return self._batch.error_of(self._index)

    def add_done_callback(self, call: Callable[["Delivery"], Any]) -> None:
        """Call this with the delivery when it is done, in the client's thread; at once if it is."""
        self._batch.when_done(lambda: call_safely(call, self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.is_done:
            yield from wait_in_loop(self._batch)
        return self._outcome()

    def _outcome(self) -> RecordMetadata:
        error = self._batch.error_of(self._index)
        if error is not None:
            raise error
        return self._batch.metadata_of(self._index, self._timestamp_ms)


class Batch:
    """Records for one partition, from the first append to the broker's result."""

    __slots__ = (
        "_accumulator",
        "_base_offset",
        "_callbacks",
        "_error",
        "_error_by_index",
        "_log_append_time_ms",
        "_parts",
        "_waiters",
        "charged_bytes",
        "created_ms",
        "is_done",
        "is_due",
        "partition",
        "records",
        "topic",
    )

    def __init__(
        self,
        accumulator: "Accumulator",
        topic: str,
        partition: int,
        records: RecordAccumulator,
        created_ms: int,
    ) -> None:
        self._accumulator = accumulator
        self.topic = topic
        self.partition = partition
        self.records = records
        self.created_ms = created_ms
        """The creation time, on the monotonic clock."""
        self.charged_bytes = 0
        """The batch's share of buffer.memory until it is done."""
        self.is_due = False
        """Whether a caller waits, so that the batch must not linger."""
        self.is_done = False
        self._base_offset = UNKNOWN_OFFSET
        self._log_append_time_ms = -1
        self._error: BaseException | None = None
        self._error_by_index: dict[int, BaseException] | None = None
        self._parts: list[tuple[int, Batch]] | None = None
        self._callbacks: list[tuple[int, int, OnDelivery]] = []
        self._waiters: list[Callable[[], None]] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that completes the batch."""
        return self._accumulator.loop

    @property
    def record_count(self) -> int:
        """The number of records so far."""
        return self.records.record_count

    def delivery(self, index: int, timestamp_ms: int = -1) -> Delivery:
        """Return the delivery of one record."""
        return Delivery(self, index, timestamp_ms)

    def hurry(self) -> None:
        """Send the batch without lingering, because a caller waits."""
        if not self.is_due:
            self.is_due = True
            self._accumulator.hurry(self)

    def take_answer(self, seconds_max: float) -> bool:  # noqa: ARG002 - of the compiled version
        """Wait for the response if this thread can read it; return whether the batch is done.

        It cannot: only the compiled version sends from the caller's thread.
        """
        return self.is_done

    def when_done(self, call: Callable[[], None]) -> None:
        """Call this when the batch is done, or at once if it is. It must not raise."""
        with self._accumulator.lock:
            if not self.is_done:
                self._waiters.append(call)
                return
        call()

    def call_back(self, index: int, timestamp_ms: int, on_delivery: OnDelivery) -> None:
        """Register a delivery callback; callbacks run before waiting callers are woken."""
        self._callbacks.append((index, timestamp_ms, on_delivery))

    def complete(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        """Record the batch's offset. Records without callbacks cost nothing here."""
        if self.is_done:
            return
        self._base_offset = base_offset
        self._log_append_time_ms = log_append_time_ms
        self._finish()

    def fail(
        self, error: BaseException, error_by_index: dict[int, BaseException] | None = None
    ) -> None:
        """Fail the batch, unless it is done already."""
        if not self.is_done:
            self._error = error
            self._error_by_index = error_by_index
            self._finish()

    def split(self, counts: Sequence[int], records: Sequence[RecordAccumulator]) -> "list[Batch]":
        """Split the batch into batches with these numbers of records.

        This batch is done when all of them are.
        """
        parts: list[tuple[int, Batch]] = []
        first = 0
        for count, part in zip(counts, records, strict=True):
            batch = Batch(self._accumulator, self.topic, self.partition, part, self.created_ms)
            parts.append((first, batch))
            first += count
        self._parts = parts
        for _, batch in parts:
            batch.when_done(self._finish_if_parts_are)
        return [batch for _, batch in parts]

    def error_of(self, index: int) -> BaseException | None:
        """Return the error of a record, once the batch is done."""
        if self._parts is not None:
            part, first = self._part_of(index)
            return part.error_of(index - first)
        if self._error is None or self._error_by_index is None:
            return self._error
        return self._error_by_index.get(index, self._error)

    def first_error(self) -> BaseException | None:
        """Return the first error of any record, once the batch is done; None without errors."""
        if self._parts is None:
            return next(iter((self._error_by_index or {}).values()), self._error)
        errors = (part.first_error() for _, part in self._parts)
        return next((error for error in errors if error is not None), None)

    def metadata_of(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Return the metadata of a record, once the batch is done."""
        if self._parts is not None:
            part, first = self._part_of(index)
            return part.metadata_of(index - first, timestamp_ms)
        offset = UNKNOWN_OFFSET if self._base_offset < 0 else self._base_offset + index
        if self._log_append_time_ms >= 0:
            timestamp_ms = self._log_append_time_ms
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms)

    def _part_of(self, index: int) -> "tuple[Batch, int]":
        assert self._parts is not None
        first, part = next(entry for entry in reversed(self._parts) if entry[0] <= index)
        return part, first

    def _finish_if_parts_are(self) -> None:
        assert self._parts is not None
        if all(part.is_done for _, part in self._parts):
            self._finish()

    def _finish(self) -> None:
        with self._accumulator.lock:
            self.is_done = True
            waiters, self._waiters = self._waiters, []
            callbacks, self._callbacks = self._callbacks, []
        try:
            for index, timestamp_ms, on_delivery in callbacks:
                error = self.error_of(index)
                metadata = None if error is not None else self.metadata_of(index, timestamp_ms)
                call_safely(on_delivery, error, metadata)
        finally:
            for call in waiters:
                call()
