"""Batches that are ready to be sent, and the send queue of their partition."""

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final

from ottla.clients.producer.batching.accumulator import Batch, OpenBatches
from ottla.clients.producer.state.producer_identity import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    SEQUENCE_MODULUS,
)
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    batch_at,
    write_crc,
)
from ottla.wire.records.compression.codecs import Compression, compress
from ottla.wire.records.loops import RecordAccumulator
from ottla.wire.records.record import records_of

Producer = tuple[int, int]
"""A producer id and epoch."""
NO_PRODUCER: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43


class ReadyBatch:
    """A batch with its encoded bytes, which are the same at every attempt."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "batch",
        "charged_bytes",
        "is_in_doubt",
        "is_part",
        "last_failure",
        "number",
        "payload",
        "producer",
        "queue",
        "record_count",
    )

    def __init__(
        self, queue: "PartitionQueue", batch: Batch, number: int, payload: bytearray
    ) -> None:
        self.queue = queue
        self.batch = batch
        self.number = number
        """The position in the partition's send order."""
        self.payload = payload
        self.record_count = batch.record_count
        self.charged_bytes = batch.charged_bytes
        self.producer = NO_PRODUCER
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.is_part = False
        """Whether the batch is a part of a split batch: the parts have the same number."""
        self.is_in_doubt = False
        """Whether an attempt had no response, so that the batch may be in the log."""
        self.last_failure: Exception | None = None

    def stamp(self, producer: Producer, base_sequence: int) -> None:
        """Write the producer and sequence into the header; not while the batch is in flight."""
        self.producer = producer
        self.base_sequence = base_sequence
        _PRODUCER.pack_into(self.payload, _PRODUCER_AT, *producer, base_sequence)
        write_crc(memoryview(self.payload))


class PartitionQueue:
    """The sender's state of one partition: batches to send again, and batches in flight."""

    __slots__ = (
        "acknowledged",
        "backoff_ms",
        "flying",
        "lane",
        "leader_epoch",
        "must_renumber",
        "name",
        "next_sequence",
        "number",
        "producer",
        "retry_at_ms",
        "waiting",
    )

    def __init__(self, lane: OpenBatches) -> None:
        self.lane = lane
        self.name = TopicPartition(lane.topic, lane.partition)
        self.waiting: deque[ReadyBatch] = deque()
        """Batches to send again, in order, before any new batch."""
        self.flying: list[ReadyBatch] = []
        self.number = 0
        self.acknowledged = 0
        """The `number` of the last batch that was acknowledged with sequences of this producer."""
        self.producer = NO_PRODUCER
        self.next_sequence = 0
        self.must_renumber = False
        """Whether the sequences have a gap, which requires a new epoch."""
        self.retry_at_ms = 0
        self.backoff_ms = 0
        self.leader_epoch = -1
        """The leader epoch at the last request."""

    def begin_flight(self, ready_batch: ReadyBatch) -> None:
        """Add a batch to the batches in flight, for its next attempt."""
        ready_batch.attempts += 1
        self.flying.append(ready_batch)
        # Brokers refuse the batch after a gap. A batch between two others in flight was completed
        # by another leader, or has failed and ends the transaction.
        assert all(map(_follows, self.flying[1:], self.flying)), self.name

    def queue_again(self, ready_batches: Sequence[ReadyBatch]) -> None:
        """Put consecutive batches back into the queue, in their order."""
        at = 0
        while at < len(self.waiting) and self.waiting[at].number < ready_batches[0].number:
            at += 1
        for ready_batch in reversed(ready_batches):
            self.waiting.insert(at, ready_batch)

    def assign(self, ready_batch: ReadyBatch) -> None:
        """Assign the next sequence numbers to a batch."""
        ready_batch.stamp(self.producer, self.next_sequence)
        self.next_sequence = (self.next_sequence + ready_batch.record_count) % SEQUENCE_MODULUS

    @property
    def is_first_awaited(self) -> bool:
        """Whether no broker has accepted a batch with sequences of this producer yet.

        A broker without state of the producer accepts any first sequence, so only one batch may be
        in flight until then.
        """
        return self.producer != NO_PRODUCER and self.acknowledged == 0

    def acknowledge(self, ready_batch: ReadyBatch) -> None:
        """Record that a broker has accepted a batch, at this or an earlier attempt."""
        if ready_batch.producer == self.producer != NO_PRODUCER:
            self.acknowledged = max(self.acknowledged, ready_batch.number)

    def is_surely_written(self, ready_batch: ReadyBatch) -> bool:
        """Whether a batch must be in the log: a later batch was accepted, and there are no gaps."""
        return ready_batch.producer == self.producer and ready_batch.number < self.acknowledged

    def begin_sequences(self, producer: Producer) -> None:
        """Renumber all remaining batches from 0, with this id and epoch."""
        assert not self.flying
        self.producer = producer
        self.next_sequence = 0
        self.acknowledged = 0
        self.must_renumber = False
        for ready_batch in self.waiting:
            self.assign(ready_batch)

    def next_bytes(self, lane: OpenBatches) -> int:
        """Return the size of the next batch, before compression."""
        if self.waiting:
            return len(self.waiting[0].payload)
        batch = lane.closed[0] if lane.closed else lane.open
        return 0 if batch is None else batch.charged_bytes

    def oldest(self, lane: OpenBatches) -> Batch | None:
        """Return the oldest batch without a result."""
        for ready_batch in self.flying:
            if not ready_batch.batch.is_done:
                return ready_batch.batch
        if self.waiting:
            return self.waiting[0].batch
        return lane.closed[0] if lane.closed else lane.open

    def is_first(self, ready_batch: ReadyBatch) -> bool:
        """Whether all earlier batches have a result."""
        before = [one for one in (*self.flying, *self.waiting) if one.number < ready_batch.number]
        return not before


def _follows(later: ReadyBatch, earlier: ReadyBatch) -> bool:
    """Whether two batches in flight have consecutive sequences, if no batch is between them."""
    if later.number != earlier.number + 1 or earlier.is_part or earlier.producer == NO_PRODUCER:
        return later.number > earlier.number
    end = (earlier.base_sequence + earlier.record_count) % SEQUENCE_MODULUS
    return later.producer == earlier.producer and later.base_sequence == end


def seal(
    records: RecordAccumulator,
    compression: Compression,
    level: int | None,
    *,
    is_transactional: bool,
) -> bytearray:
    """Compress, write the header without a producer, and set the checksum."""
    payload = records.take()
    if compression is not Compression.NONE:
        packed = bytearray(HEADER_BYTES)
        packed += compress(compression, memoryview(payload)[HEADER_BYTES:], level)
        payload = packed
    HEADER.pack_into(
        payload,
        0,
        0,
        len(payload) - LOG_OVERHEAD_BYTES,
        -1,
        MAGIC,
        0,
        compression | (TRANSACTIONAL_BIT if is_transactional else 0),
        records.next_offset_delta - 1,
        records.base_timestamp_ms,
        records.max_timestamp_ms,
        *NO_PRODUCER,
        NO_SEQUENCE,
        records.record_count,
    )
    return payload


def split_records(payload: bytearray) -> list[RecordAccumulator]:
    """Split the records of a sealed batch into two halves."""
    batch = batch_at(payload)
    records = list(records_of(batch))
    half = (len(records) + 1) // 2
    parts = []
    for some in (records[:half], records[half:]):
        part = RecordAccumulator()
        for record in some:
            part.append(record.timestamp_ms, record.key, record.value, record.headers)
        parts.append(part)
    return parts
