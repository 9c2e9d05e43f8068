"""Writes a coordinator's decisions as batches in a partition of its topic, and loads them."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.broker.coordinators.compacted_view import CompactedView
from ottla.concurrency.yield_budget import YieldBudget
from ottla.environment.clock import Clock
from ottla.model.identifiers import NO_OFFSET, Offset, ProducerId
from ottla.replication.partition import Partition
from ottla.storage.files.log_slice import LogSlice
from ottla.storage.log.admission import Origin
from ottla.storage.producers.transaction_terms import ANY_TRANSACTION, TransactionTerms
from ottla.wire.coordinator_records.codec import RecordCodec
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import NO_PRODUCER_ID, batches
from ottla.wire.records.builder import BatchBuilder, record_bytes_max
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.schema import Message

LOAD_BYTES: Final = 256 << 10
"""How much is read at a time while loading."""
BATCH_BYTES_MAX: Final = 256 << 10
"""The maximum batch size of a decision, if topics allow it; the rest goes to further batches."""
_RECORDS_PER_LOOK: Final = 16
_log = logging.getLogger(__name__)

Replay: TypeAlias = Callable[[Message, Message | None, ProducerId], None]
"""Applies a key, its value, and the producer id of the open transaction that it is in."""


class CoordinatorRecord(Protocol):
    """A record to append: its value is written in this version, and None is a tombstone."""

    @property
    def key(self) -> Message: ...  # noqa: D102
    @property
    def value(self) -> Message | None: ...  # noqa: D102
    @property
    def version(self) -> int: ...  # noqa: D102


class OffsetsTransaction(NamedTuple):
    """The transaction in which offsets are committed."""

    producer_id: ProducerId
    producer_epoch: int
    terms: TransactionTerms = ANY_TRANSACTION


NO_TRANSACTION: Final = OffsetsTransaction(NO_PRODUCER_ID, -1)


class CoordinatorLog:
    """Writes and loads the records of one kind of coordinator."""

    def __init__(
        self, codec: RecordCodec, clock: Clock, threads: Executor, compression: Compression
    ) -> None:
        self._codec = codec
        self._clock = clock
        self._threads = threads
        self._compression = compression

    def append(
        self,
        partition: Partition,
        records: Sequence[CoordinatorRecord],
        transaction: OffsetsTransaction = NO_TRANSACTION,
    ) -> None:
        """Append the records of one decision in their order. ApiError if that is not possible."""
        now_ms = self._clock.now_ms()
        bytes_max = min(BATCH_BYTES_MAX, partition.log.config.max_message_bytes)
        for batch in self._built(records, bytes_max, now_ms, transaction):
            partition.append_as_leader(
                memoryview(batch), now_ms, origin=Origin.COORDINATOR, terms=transaction.terms
            )

    async def load(self, partition: Partition, replay: Replay) -> None:
        """Replay the whole log, in time slices. ApiError or OSError if it cannot be read.

        No append may happen meanwhile. Records of other kinds are skipped, and logged.
        """
        budget = YieldBudget(self._clock)
        values = await self._last_values(partition)
        for number, (key, value, producer_id) in enumerate(values.in_order()):
            try:
                decoded = self._codec.decode(key, value)
            except ProtocolError as error:
                _log.warning("%s: skipped a record: %s", partition.name, error)
            else:
                replay(*decoded, producer_id)
            if number % _RECORDS_PER_LOOK == 0 and budget.is_spent:
                await budget.yield_now()

    async def _last_values(self, partition: Partition) -> CompactedView:
        """Return the last value of every key, as compaction would leave it: far fewer to decode."""
        log = partition.log
        loop = asyncio.get_running_loop()
        values = CompactedView()
        offset = log.log_start_offset
        while offset < log.end_offset:
            part = log.read(offset, log.end_offset, LOAD_BYTES)
            if not part:  # compaction has left nothing from here on
                break
            offset = await loop.run_in_executor(self._threads, _collect, part, values)
        return values

    def _built(
        self,
        records: Sequence[CoordinatorRecord],
        bytes_max: int,
        now_ms: int,
        transaction: OffsetsTransaction,
    ) -> Iterator[bytearray]:
        builder = self._builder(transaction)
        for record in records:
            value = record.value
            encoded = None if value is None else self._codec.encode_value(value, record.version)
            encoded_key = self._codec.encode_key(record.key)
            if (
                builder.record_count
                and builder.size_bytes + record_bytes_max(encoded_key, encoded) > bytes_max
            ):
                yield builder.build()
                builder = self._builder(transaction)
            builder.append(now_ms, encoded_key, encoded)
        if builder.record_count:
            yield builder.build()

    def _builder(self, transaction: OffsetsTransaction) -> BatchBuilder:
        if transaction is NO_TRANSACTION:
            return BatchBuilder(compression=self._compression)
        return BatchBuilder(
            compression=self._compression,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            is_transactional=True,
        )


def _collect(part: LogSlice, values: CompactedView) -> Offset:
    """Apply a part of the log; return where it ends."""
    end_offset = NO_OFFSET
    for batch in batches(part.read()):
        end_offset = batch.end_offset
        values.add(batch)
    assert end_offset >= 0, "a part of a log without a whole batch"
    return end_offset
