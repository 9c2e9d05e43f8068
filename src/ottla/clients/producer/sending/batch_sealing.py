"""Prepares batches for the wire: sealed, compressed, and numbered."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.producer.batching.accumulator import Accumulator, Batch, OpenBatches
from ottla.clients.producer.batching.ready_batch import (
    NO_PRODUCER,
    PartitionQueue,
    ReadyBatch,
    seal,
)
from ottla.clients.producer.sending.batch_completion import BatchCompletion
from ottla.clients.producer.state.producer_identity import PlainIdentity
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.clients.threads.loop_thread import create_background_task
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError

if TYPE_CHECKING:
    from asyncio import Task


class BatchSealer:
    """Takes the next batch of a partition; sequence numbers are assigned at the first attempt."""

    def __init__(
        self,
        view: ClusterView,
        settings: ProducerSettings,
        accumulator: Accumulator,
        completion: BatchCompletion,
        on_news: Callable[[], None],
    ) -> None:
        self._view = view
        self._settings = settings
        self._accumulator = accumulator
        self._completion = completion
        self._on_news = on_news
        self._introduction: Task[None] | None = None

    def is_stale(self, queue: PartitionQueue) -> bool:
        """Whether the partition's sequences belong to a former producer id or epoch."""
        identity = self._completion.identity
        return queue.producer != (identity.producer_id, identity.producer_epoch)

    def take(self, lane: OpenBatches, queue: PartitionQueue) -> ReadyBatch | None:
        """Take the next batch of a partition; a held partition gives no new batches.

        None while the producer has no id; `on_news` is called when the id arrives.
        """
        if not self._ensure_identified():
            return None
        if queue.must_renumber or (self.is_stale(queue) and not queue.waiting):
            in_doubt = next((one for one in queue.waiting if one.is_in_doubt), None)
            if in_doubt is not None:  # it may be in the log; only a broker knows
                queue.waiting.remove(in_doubt)
                queue.begin_flight(in_doubt)
                return in_doubt
            if not self._renumber(queue):
                return None
        if queue.waiting:
            ready_batch = queue.waiting.popleft()
        else:
            if not lane.closed:
                self._accumulator.close_open(lane)
            batch = lane.take()
            if batch is None:
                return None
            ready_batch = self._sealed(queue, batch)
        queue.begin_flight(ready_batch)
        return ready_batch

    def close(self) -> None:
        """Stop requesting a producer id."""
        if self._introduction is not None:
            self._introduction.cancel()

    def _sealed(self, queue: PartitionQueue, batch: Batch) -> ReadyBatch:
        payload = seal(
            batch.records,
            self._settings.compression_type,
            self._settings.compression_level,
            is_transactional=self._completion.identity.is_transactional,
        )
        queue.number += 1
        ready_batch = ReadyBatch(queue, batch, queue.number, payload)
        if queue.producer == NO_PRODUCER:
            ready_batch.stamp(NO_PRODUCER, ready_batch.base_sequence)
        else:
            queue.assign(ready_batch)
        return ready_batch

    def _renumber(self, queue: PartitionQueue) -> bool:
        """Restart the sequences, in a new epoch if the partition has the current epoch."""
        identity = self._completion.identity
        if queue.must_renumber and not self.is_stale(queue):
            if not isinstance(identity, PlainIdentity):
                queue.must_renumber = False
                return True
            identity.bump()
            if not self._ensure_identified():
                return False
        queue.begin_sequences((identity.producer_id, identity.producer_epoch))
        return True

    def _ensure_identified(self) -> bool:
        """Return whether there is a producer id; request one if not."""
        identity = self._completion.identity
        if not isinstance(identity, PlainIdentity) or identity.is_ready:
            return True
        if self._introduction is None or self._introduction.done():
            self._introduction = create_background_task(self._introduce(identity))
        return False

    async def _introduce(self, identity: PlainIdentity) -> None:
        backoff_ms = self._view.settings.retry_backoff_ms
        while not identity.is_ready:
            try:
                await identity.introduce()
            except (OSError, ApiError) as error:
                self._completion.last_failure = error
                await pause(backoff_ms)
                backoff_ms = min(2 * backoff_ms, self._view.settings.retry_backoff_max_ms)
        self._on_news()
