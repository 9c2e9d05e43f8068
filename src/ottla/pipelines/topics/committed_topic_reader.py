"""Reads the committed records of a topic, without waiting for other open transactions.

A read_committed consumer waits for the oldest open transaction of any producer. A recovering
process must know immediately which of its own records are committed, while other transactions are
open. So all records are read, and the markers decide.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.clients.admin.admin_offsets import OffsetAdmin, OffsetSpec, are_local
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import READ_UNCOMMITTED
from ottla.pipelines.topics.batch_fetcher import BatchFetcher
from ottla.wire.records.batch import RecordBatch, batches
from ottla.wire.records.control import ControlType, control_type_of
from ottla.wire.records.record import Record, records_of

Take = Callable[[Record], None]


@dataclass(slots=True)
class CommittedTopicReader:
    """The read position, and the undecided records. It outlives connections."""

    topic: str
    offset: int = 0
    _undecided: dict[int, list[Record]] = field(default_factory=dict)

    @property
    def name(self) -> TopicPartition:
        """The only partition of the topic."""
        return TopicPartition(self.topic, 0)

    async def read_on(self, view: ClusterView, take: Take) -> None:
        """Call `take` for all records committed since the last call, in order of the commits."""
        await view.retried(lambda: self._read_to_end(view, take))

    async def _read_to_end(self, view: ClusterView, take: Take) -> None:
        # The end that the leader returns remains valid after a change of leaders (KIP-207).
        ends = await OffsetAdmin(view).find({self.name: OffsetSpec.LATEST})
        end = ends[self.name].offset
        if self.offset >= end:
            return
        async with BatchFetcher(view, self.name, READ_UNCOMMITTED) as fetcher:
            while self.offset < end:
                fetched = await fetcher.fetch(self.offset)
                before = self.offset
                for batch in batches(fetched.data):
                    self._take(batch, take)
                is_over = self.offset == before and fetched.high_watermark >= end
                if is_over and await are_local(view, self.name, before):
                    return  # compaction has removed everything up to the end

    def _take(self, batch: RecordBatch, take: Take) -> None:
        if batch.end_offset <= self.offset:
            return
        self.offset = batch.end_offset
        if batch.is_control:
            records = self._undecided.pop(batch.producer_id, [])
            if control_type_of(batch) is not ControlType.COMMIT:
                return
        elif batch.is_transactional:
            self._undecided.setdefault(batch.producer_id, []).extend(records_of(batch))
            return
        else:
            records = records_of(batch)
        for record in records:
            take(record)
