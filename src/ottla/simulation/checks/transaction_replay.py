"""The state of transactions, replayed from all logs.

Nothing here comes from the memory of brokers: their state is compared with it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple

from ottla.machines.transactions.records import transaction_of
from ottla.machines.transactions.transaction import PREPARED, Transaction
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.replica_model import Batch
from ottla.wire.coordinator_records.codec import TRANSACTION_STATE, RecordCodec
from ottla.wire.coordinator_records.transaction_state import TransactionLogKey, TransactionLogValue
from ottla.wire.records.batch import NO_SEQUENCE, batches
from ottla.wire.records.control import ControlType
from ottla.wire.records.record import records_of

NOT_OPEN: Final = -1
NO_EPOCH: Final = -1
CONTENTS_MAX: Final = 1000
_SEQUENCES: Final = 1 << 31
_CODEC: Final = RecordCodec(TRANSACTION_STATE)


class Ended(NamedTuple):
    """A transaction of a partition; its marker is at `last_offset`."""

    producer_id: int
    marker_epoch: int
    is_commit: bool
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Told:
    """One producer's state in a log."""

    epoch: int = NO_EPOCH
    last_sequence: int = NO_SEQUENCE
    first_offset: int = NOT_OPEN


@dataclass(slots=True)
class ProducerReplay:
    """The producers of one log, batch by batch; `wrong` collects impossible states."""

    told: dict[int, Told] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    """Where those have begun that have not ended, by producer id."""
    ended: list[Ended] = field(default_factory=list)
    ends: Counter[tuple[int, int, bool]] = field(default_factory=Counter)
    """How many have ended, by producer id, epoch of the marker, and how."""
    wrong: list[str] = field(default_factory=list)

    def take(self, one: Batch) -> None:
        """Take over the next batch."""
        if one.producer_id < 0:
            return
        is_new = one.producer_id not in self.told
        told = self.told.setdefault(one.producer_id, Told())
        if one.producer_epoch < told.epoch:
            self.wrong.append(f"T3 {one} comes after epoch {told.epoch}")
        is_first = one.producer_epoch != told.epoch
        if is_first:
            told.epoch, told.last_sequence = one.producer_epoch, NO_SEQUENCE
        if one.marker is not None:
            self._end(one, told)
            return
        if one.base_sequence != NO_SEQUENCE and not is_new:
            expected = (told.last_sequence + 1) % _SEQUENCES
            if one.base_sequence != expected:
                self.wrong.append(f"T1 {one} comes where sequence {expected} is next")
        told.last_sequence = one.last_sequence
        if one.is_transactional and told.first_offset == NOT_OPEN:
            told.first_offset = self.open[one.producer_id] = one.base_offset

    def _end(self, one: Batch, told: Told) -> None:
        assert one.marker is not None
        if told.first_offset == NOT_OPEN:
            return
        ended = Ended(
            one.producer_id,
            one.producer_epoch,
            one.marker.kind is ControlType.COMMIT,
            told.first_offset,
            one.base_offset,
        )
        told.first_offset = NOT_OPEN
        del self.open[one.producer_id]
        self.ended.append(ended)
        self.ends[ended[:3]] += 1

    def stable_offsets(self, high_watermark: int) -> tuple[int, int]:
        """Return the bounds of the last stable offset.

        It is before all open transactions. A transaction whose marker is not replicated may hold it
        back, too; not if its marker was found at a start of the broker.
        """
        last = min([high_watermark, *self.open.values()])
        unreplicated = takewhile(
            lambda one: one.last_offset >= high_watermark, reversed(self.ended)
        )
        return min([last, *(one.first_offset for one in unreplicated)]), last


class Decision(NamedTuple):
    """The durable decision to end a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    version: int


def decision_of(found: Transaction, coordinator_epoch: int) -> Decision | None:
    """Return the decision in a record, if there is one."""
    if found.state not in PREPARED:
        return None
    return Decision(
        found.transactional_id,
        *found.producer,
        found.is_commit,
        found.partitions,
        coordinator_epoch,
        found.client_version,
    )


def transactions_in(new: Sequence[Batch]) -> Iterator[tuple[Batch, str, Transaction | None]]:
    """Decode batches of a coordinator's log, record by record."""
    for one in new:
        for transactional_id, found in _transactions_of(one.content):
            yield one, transactional_id, found


@lru_cache(maxsize=CONTENTS_MAX)
def _transactions_of(content: bytes) -> list[tuple[str, Transaction | None]]:
    """Read a batch: once, however many replicas have it, and whenever it is committed."""
    (batch,) = batches(content)
    read = []
    for record in records_of(batch):
        assert record.key is not None
        key, value = _CODEC.decode(record.key, record.value)
        assert isinstance(key, TransactionLogKey)
        found = None
        if isinstance(value, TransactionLogValue):
            found = transaction_of(key.transactional_id, value)
        read.append((key.transactional_id, found))
    return read
