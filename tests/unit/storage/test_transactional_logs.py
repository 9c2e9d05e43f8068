"""Cleaning never removes an open transaction, and never reopens an ended transaction.

A log with transactions goes through compaction, retention, DeleteRecords, the expiry of producers
and restarts, next to a model that keeps everything: C1, C3, C4, T2, T7 and T8.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.topic_config import CleanupPolicy
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.compaction.compaction_plan import first_dirty_offset
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.retention import apply_retention
from ottla.storage.recovery.log_recovery import open_log
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.control import ControlType
from ottla.wire.records.record import Record
from tests.examples import examples
from tests.unit.storage.compacted_logs import (
    DAY_MS,
    DIRECTORY,
    START_MS,
    Writer,
    batches_of,
    committed,
    compact,
    compacted,
    data_batches,
    last_stable_offset,
    opened,
    records_in,
)

HOUR_MS = DAY_MS // 24
PLAIN = -1
producers = st.integers(1, 3)
keys = st.integers(0, 4).map(lambda number: b"key-%d" % number)
pairs = st.lists(st.tuples(keys, st.none() | st.just(b"value")), min_size=1, max_size=3)


@dataclass
class Transaction:
    """One transaction in the model."""

    producer_id: int
    offsets: list[int] = field(default_factory=list)
    kind: ControlType | None = None
    marker_offset: int = -1
    gone_ms: int | None = None
    """The time since which only its marker has been in the log."""


class LogWithTransactions(RuleBasedStateMachine):
    """A log of small segments with both compaction and retention."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Random(0))
        self.config = compacted(
            cleanup_policy=frozenset(CleanupPolicy), segment_bytes=400, retention_ms=4 * DAY_MS
        )
        self.log = opened(self.disk, self.config)
        self.writer = Writer(self.log)
        self.now_ms = START_MS
        self.first_dirty_offset = 0
        self.written: dict[int, Record] = {}
        self.plain: set[int] = set()
        self.open: dict[int, Transaction] = {}
        self.ended: list[Transaction] = []

    # -- operations -----------------------------------------------------------------------------

    @rule(pairs=pairs)
    def write(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        self.plain.update(record.offset for record in self.put(pairs, PLAIN))

    @rule(pairs=pairs, producer_id=producers)
    def write_in_a_transaction(
        self, pairs: list[tuple[bytes, bytes | None]], producer_id: int
    ) -> None:
        offsets = [record.offset for record in self.put(pairs, producer_id)]
        self.open.setdefault(producer_id, Transaction(producer_id)).offsets.extend(offsets)

    def put(self, pairs: list[tuple[bytes, bytes | None]], producer_id: int) -> list[Record]:
        self.writer.put(
            *pairs,
            producer_id=producer_id,
            is_transactional=producer_id != PLAIN,
            timestamp_ms=self.now_ms,
        )
        added = records_in([data_batches(self.log)[-1]])
        self.written.update({record.offset: record for record in added})
        return added

    @precondition(lambda self: self.open)
    @rule(
        data=st.data(),
        kind=st.sampled_from([ControlType.COMMIT, ControlType.ABORT]),
        is_epoch_bumped=st.booleans(),
    )
    def end(self, data: st.DataObject, kind: ControlType, is_epoch_bumped: bool) -> None:
        ended = self.open.pop(data.draw(st.sampled_from(sorted(self.open))))
        ended.kind = kind
        ended.marker_offset = self.writer.end(
            ended.producer_id, kind, self.now_ms, is_epoch_bumped=is_epoch_bumped
        )
        self.ended.append(ended)

    @rule()
    def roll(self) -> None:
        self.writer.roll(self.now_ms)

    @rule(hours=st.integers(0, 30), entries=st.sampled_from([3, 1000]))
    def compact(self, hours: int, entries: int) -> None:
        self.now_ms += hours * HOUR_MS
        first = first_dirty_offset(self.log, self.first_dirty_offset)
        stable = last_stable_offset(self.log)
        self.first_dirty_offset = compact(self.disk, self.log, first, self.now_ms, 24 * entries)
        assert self.first_dirty_offset <= max(stable, first)  # C4

    @rule(hours=st.integers(0, 60))
    def apply_retention(self, hours: int) -> None:
        self.now_ms += hours * HOUR_MS
        apply_retention(self.log, self.now_ms, self.log.end_offset)

    @rule(part=st.integers(1, 4))
    def delete_records(self, part: int) -> None:
        start_offset = self.log.log_start_offset
        self.log.advance_log_start(start_offset + (self.log.end_offset - start_offset) // part)

    @rule()
    def expire_producers(self) -> None:
        self.log.producers.expire(self.now_ms + 100 * DAY_MS)
        for producer_id in self.writer.sequence_by_producer.keys() - self.open:
            del self.writer.sequence_by_producer[producer_id]

    @rule(is_clean=st.booleans(), has_snapshots=st.booleans())
    def restart(self, is_clean: bool, has_snapshots: bool) -> None:
        if not has_snapshots:
            self.log.producers.snapshots.remove_all()
        if is_clean:
            self.log.close(self.now_ms)
        else:
            self.log.flush(self.now_ms)
        self.log = open_log(
            OpenFiles(self.disk),
            DIRECTORY,
            self.config,
            self.now_ms,
            is_clean=is_clean,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.log.log_start_offset,
        ).log
        self.writer.log = self.log
        # The state of a producer without batches in the log, or after its expiry, is optional.
        sequence_by_producer = self.writer.sequence_by_producer
        sequence_by_producer.clear()
        for entry in self.log.producers.producers():
            if entry.producer_epoch == self.writer.epoch_by_producer.get(entry.producer_id, 0):
                sequence_by_producer[entry.producer_id] = entry.last_sequence + 1

    # -- invariants -----------------------------------------------------------------------------

    @invariant()
    def readers_wait_for_what_is_open_and_for_nothing_else(self) -> None:
        stable = last_stable_offset(self.log)
        if not self.open:
            assert stable == self.log.end_offset  # T7: nothing hangs
        else:
            assert min(one.offsets[0] for one in self.open.values()) <= stable
        for one in self.open.values():
            assert stable <= min(self.kept(one.offsets), default=self.log.end_offset)

    @invariant()
    def an_open_transaction_keeps_every_record(self) -> None:
        there = {record.offset: record for record in records_in(data_batches(self.log))}
        for one in self.open.values():
            for offset in self.kept(one.offsets):
                assert there[offset] == self.written[offset]

    @invariant()
    def what_an_open_transaction_wrote_is_not_written_twice(self) -> None:
        """The log keeps the producer's state, however old its last write is."""
        for batch in data_batches(self.log):
            one = self.open.get(batch.producer_id)
            if one and batch.base_offset in self.kept(one.offsets):
                assert self.is_known(batch), batch

    def is_known(self, batch: RecordBatch) -> bool:
        try:
            return self.log.producers.check(batch, from_client=True) is not None
        except ApiError as error:
            return error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @invariant()
    def readers_get_what_was_committed(self) -> None:
        stable = last_stable_offset(self.log)
        decided = self.plain.union(
            *(one.offsets for one in self.ended if one.kind is ControlType.COMMIT)
        )
        start_offset = self.log.log_start_offset
        found = {one.offset: one for one in committed(self.log) if one.offset >= start_offset}
        assert found.keys() <= decided  # T8
        assert all(self.written[offset] == record for offset, record in found.items())
        last = {self.written[o].key: o for o in sorted(decided) if o < stable}
        for offset in self.kept(last.values()):
            if self.written[offset].value is not None:
                assert offset in found  # C1

    @invariant()
    def a_marker_stays_as_long_as_its_transaction_and_then_for_a_day(self) -> None:
        batches = batches_of(self.log)
        markers = {batch.base_offset for batch in batches if batch.is_control}
        for one in self.ended:
            is_left = any(
                batch.producer_id == one.producer_id
                and not batch.is_control
                and one.offsets[0] <= batch.base_offset < one.marker_offset
                for batch in batches
            )
            if is_left:
                assert one.marker_offset in markers  # C4
                continue
            if one.gone_ms is None:
                one.gone_ms = self.now_ms
            if self.now_ms < one.gone_ms + DAY_MS:
                assert one.marker_offset in markers or not self.kept([one.marker_offset])

    def kept(self, offsets: Iterable[int]) -> list[int]:
        """Return the offsets from the log start offset on."""
        return [offset for offset in offsets if offset >= self.log.log_start_offset]


TestLogWithTransactions = LogWithTransactions.TestCase
TestLogWithTransactions.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None
)
