"""What groups have decided, as batches in a partition of `__consumer_offsets`, and back."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Final

from ottla.broker.turns import Turns
from ottla.environment.clock import Clock
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.machine import GroupMachine
from ottla.replication.partition import Partition
from ottla.storage.admission import Origin
from ottla.storage.log_slice import LogSlice
from ottla.wire.coordinator_records.codec import CONSUMER_OFFSETS, RecordCodec
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import batches
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression import Compression
from ottla.wire.records.record import records_of

LOAD_BYTES: Final = 256 << 10
"""How much is read at a time while loading."""
BATCH_BYTES: Final = 256 << 10
"""From which size on a decision goes on in another batch."""
_RECORDS_PER_LOOK: Final = 16
_CODEC: Final = RecordCodec(CONSUMER_OFFSETS)
_log = logging.getLogger(__name__)


class GroupLog:
    """Writes and loads the records of groups."""

    def __init__(self, clock: Clock, threads: Executor, compression: Compression) -> None:
        self._clock = clock
        self._threads = threads
        self._compression = compression

    def append(self, partition: Partition, records: Sequence[GroupRecord]) -> None:
        """Append the records of one decision in their order. ApiError if that is not possible."""
        now_ms = self._clock.now_ms()
        for batch in self._built(records, now_ms):
            partition.append_as_leader(memoryview(batch), now_ms, origin=Origin.COORDINATOR)

    async def load(self, partition: Partition, machine: GroupMachine) -> None:
        """Replay the whole log, turn by turn. ApiError or OSError if it cannot be read.

        Nobody may append to it meanwhile. What is no record of ours is passed over, and told.
        """
        turns = Turns(self._clock)
        value_by_key = await self._last_values(partition)
        for number, (key, value) in enumerate(value_by_key.items()):
            _replay(partition, machine, key, value)
            if number % _RECORDS_PER_LOOK == 0 and turns.is_over:
                await turns.next()

    async def _last_values(self, partition: Partition) -> dict[bytes, bytes | None]:
        """Return the last value of every key, as compaction would leave it: far fewer to decode."""
        log = partition.log
        loop = asyncio.get_running_loop()
        value_by_key: dict[bytes, bytes | None] = {}
        offset = log.log_start_offset
        while offset < log.end_offset:
            part = log.read(offset, log.end_offset, LOAD_BYTES)
            if not part:  # compaction has left nothing from here on
                break
            offset = await loop.run_in_executor(self._threads, _collect, part, value_by_key)
        return value_by_key

    def _built(self, records: Sequence[GroupRecord], now_ms: int) -> Iterator[bytearray]:
        builder = BatchBuilder(compression=self._compression)
        for key, value, version in records:
            encoded = None if value is None else _CODEC.encode_value(value, version)
            builder.append(now_ms, _CODEC.encode_key(key), encoded)
            if builder.size_bytes >= BATCH_BYTES:
                yield builder.build()
                builder = BatchBuilder(compression=self._compression)
        if builder.record_count:
            yield builder.build()


def _collect(part: LogSlice, value_by_key: dict[bytes, bytes | None]) -> int:
    """Put values in place of earlier ones, in the order of the log; return where the part ends."""
    end_offset = -1
    for batch in batches(part.read()):
        end_offset = batch.end_offset
        if batch.is_control:
            continue
        for record in records_of(batch):
            if record.key is not None:
                value_by_key.pop(record.key, None)
                value_by_key[record.key] = record.value
    assert end_offset >= 0, "a part of a log without a whole batch"
    return end_offset


def _replay(partition: Partition, machine: GroupMachine, key: bytes, value: bytes | None) -> None:
    try:
        decoded = _CODEC.decode(key, value)
    except ProtocolError as error:
        _log.warning("%s: a record is passed over: %s", partition.name, error)
        return
    machine.replay(*decoded)
