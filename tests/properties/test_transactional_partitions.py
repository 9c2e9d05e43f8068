"""Transactions in a partition with two replicas, compared with a plain list of the leader's writes.

Producers, markers, fail-overs, power cuts and truncations come in any order. After each step the
producer state of every replica must equal a replay of its log, and a read_committed consumer must
get the committed entries of the list: all of them, in order, and no others (T2, T3, T6, T7, T8).
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.replication.follower import next_fetch
from ottla.replication.in_sync import Assignment, Follower
from ottla.replication.partition import Partition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import Keep
from ottla.storage.log.admission import Origin
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.transaction_terms import VERIFIED_ONLY, TransactionTerms
from ottla.wire.records.batch import RecordBatch, batches
from ottla.wire.records.control import ControlType, end_txn_marker, end_txn_marker_of
from ottla.wire.records.record import records_of
from tests.examples import examples
from tests.log_building import NOW_MS, PARTITION, LogFolder, batch, batches_of, tiny

STEPS = 40
PRODUCERS = range(1, 4)
NO_PRODUCER = -1
producers = st.sampled_from(PRODUCERS)
keeps: st.SearchStrategy[Keep] = st.sampled_from(["lose_all", "keep_all", "random"])


class Entry(NamedTuple):
    """A batch in the model: one record with this value, or a marker."""

    value: bytes
    producer: int = NO_PRODUCER
    epoch: int = 0
    kind: ControlType | None = None


class Decision(NamedTuple):
    """A decision of the coordinator, which it sends until it is acknowledged."""

    kind: ControlType
    epoch: int
    version: int


class Replica:
    """A log on its own disk, with a partition over it."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.dice = Random(broker_id)
        self.disk = SimulatedDisk(self.dice)
        self.folder = LogFolder(self.disk, tiny(segment_bytes=600))
        self.open(0)

    def open(self, high_watermark: int) -> None:
        log = self.folder.start()
        self.partition = Partition(
            PARTITION, bytes(16), log, lambda _: None, high_watermark=high_watermark
        )


class TransactionLife(RuleBasedStateMachine):
    """Offsets are indexes of `entries`: each batch has one record."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.decided: dict[int, Decision] = {}
        self.epoch = dict.fromkeys(PRODUCERS, 0)
        self.last_marker: dict[int, Decision] = {}
        self.leader, self.follower = Replica(1), Replica(2)
        self.leader_epoch = -1
        self.stable = 0
        self.count = 0
        self.lead()

    def lead(self) -> None:
        self.leader_epoch += 1
        isr = (self.leader.broker_id, self.follower.broker_id)
        self.follower.partition.follow(self.leader.broker_id, self.leader_epoch)
        here = Assignment(self.leader.broker_id, isr, isr, 0)
        self.leader.partition.lead(self.leader_epoch, here)
        self.stable = 0

    # -- the model ------------------------------------------------------------------------------

    def transactions(self, end: int) -> Iterator[tuple[int, int | None, ControlType | None]]:
        """Yield transactions before `end`: first offset, marker offset and kind."""
        began: dict[int, int] = {}
        for offset, entry in enumerate(self.entries[:end]):
            if entry.kind is not None:
                if entry.producer in began:
                    yield began.pop(entry.producer), offset, entry.kind
            elif entry.producer != NO_PRODUCER:
                began.setdefault(entry.producer, offset)
        for first in began.values():
            yield first, None, None

    def is_open(self, producer: int) -> bool:
        ends = [entry.kind is not None for entry in self.entries if entry.producer == producer]
        return bool(ends) and not ends[-1]

    def next_sequence(self, producer: int) -> int:
        mine = [entry for entry in self.entries if entry.producer == producer]
        epoch = self.epoch[producer]
        return sum(entry.kind is None and entry.epoch == epoch for entry in mine)

    def committed(self, end: int) -> list[bytes]:
        aborted: set[int] = set()
        for first, last, kind in self.transactions(len(self.entries)):
            if kind is ControlType.ABORT and last is not None:
                producer = self.entries[first].producer
                span = range(first, last)
                aborted |= {o for o in span if self.entries[o].producer == producer}
        return [
            entry.value
            for offset, entry in enumerate(self.entries[:end])
            if entry.kind is None and offset not in aborted
        ]

    # -- operations -----------------------------------------------------------------------------

    @rule()
    def write_plain(self) -> None:
        self.append(Entry(self.value()))

    @precondition(lambda self: len(self.decided) < len(PRODUCERS))
    @rule(producer=producers)
    def write(self, producer: int) -> None:
        """Write as a verified producer, unless its transaction is being ended."""
        if producer in self.decided:
            return
        epoch, sequence = self.epoch[producer], self.next_sequence(producer)
        found = self.leader.partition.log.producers.verification(
            producer, epoch, sequence, is_epoch_bumped=True
        )
        terms = VERIFIED_ONLY._replace(verification=found)
        self.append(Entry(self.value(), producer, epoch), sequence, terms)

    @rule(producer=producers)
    def write_unasked(self, producer: int) -> None:
        """A late batch that the coordinator has not verified never begins a transaction."""
        if self.is_open(producer):
            return
        data = self.batch_of(Entry(b"late", producer, self.epoch[producer]), 0)
        assert self.refusal(data, Origin.CLIENT, VERIFIED_ONLY) in {
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            None,  # a duplicate
        }
        assert self.leader.partition.log.end_offset == len(self.entries)

    @rule(producer=producers)
    def write_as_zombie(self, producer: int) -> None:
        mine = [entry.epoch for entry in self.entries if entry.producer == producer]
        if mine and mine[-1] > 0:
            data = self.batch_of(Entry(b"zombie", producer, mine[-1] - 1), 0)
            refused = self.refusal(data, Origin.CLIENT, VERIFIED_ONLY)
            assert refused == ErrorCode.INVALID_PRODUCER_EPOCH

    @rule(producer=producers, is_commit=st.booleans(), version=st.sampled_from([1, 2]))
    def decide(self, producer: int, is_commit: bool, version: int) -> None:
        if producer not in self.decided and self.is_open(producer):
            kind = ControlType.COMMIT if is_commit else ControlType.ABORT
            epoch = self.epoch[producer] + (version == 2)
            self.decided[producer] = Decision(kind, epoch, version)

    @precondition(lambda self: self.decided)
    @rule(pick=st.integers(0, 2))
    def end(self, pick: int) -> None:
        producer = list(self.decided)[pick % len(self.decided)]
        decision = self.decided.pop(producer)
        data, terms = self.marker_of(producer, decision)
        self.leader.partition.append_as_leader(data, NOW_MS, origin=Origin.COORDINATOR, terms=terms)
        self.entries.append(Entry(b"", producer, decision.epoch, decision.kind))
        self.epoch[producer] = decision.epoch
        self.last_marker[producer] = decision

    @rule(producer=producers, is_commit=st.booleans())
    def transact(self, producer: int, is_commit: bool) -> None:
        """A complete version 2 transaction, and the beginning of the next."""
        if producer not in self.decided:
            self.write(producer)
            self.decide(producer, is_commit, 2)
            self.end(list(self.decided).index(producer))
            self.write(producer)
            self.end_once_more(producer)

    @rule(producer=producers)
    def end_once_more(self, producer: int) -> None:
        """A repeated marker ends no transaction that began after it (KIP-1228)."""
        last = self.last_marker.get(producer)
        if last is not None and last.version == 2 and self.is_open(producer):
            data, terms = self.marker_of(producer, last)
            refused = self.refusal(data, Origin.COORDINATOR, terms)
            assert refused == ErrorCode.INVALID_PRODUCER_EPOCH

    @rule(bytes_max=st.sampled_from([1, 200, 1 << 20]))
    def replicate(self, bytes_max: int) -> None:
        leader, follower = self.leader.partition, self.follower.partition
        offset, epoch = next_fetch(follower.log)
        found = leader.read_as_follower(
            Follower(self.follower.broker_id, 1),
            offset,
            bytes_max,
            leader_epoch=self.leader_epoch,
            last_fetched_epoch=epoch,
            asked_ms=0,
        )
        if found.diverging is not None:
            assert not follower.truncate(found.diverging), "nothing that is committed is cut"
            return
        if len(found.records):
            follower.append_as_follower(memoryview(bytearray(found.records.read())), NOW_MS)
        follower.follow_offsets(found.high_watermark, found.log_start_offset)

    @rule()
    def roll(self) -> None:
        self.leader.partition.log.roll(NOW_MS)
        self.follower.partition.log.roll(NOW_MS)

    @rule(is_leader=st.booleans())
    def flush(self, is_leader: bool) -> None:
        (self.leader if is_leader else self.follower).folder.flush()

    @rule(keep=keeps)
    def fail_over(self, keep: Keep) -> None:
        """Cut the leader's power; it comes back as the follower of the other replica."""
        high_watermark = self.leader.partition.high_watermark
        end = self.follower.partition.log.end_offset
        if end < high_watermark or not self.is_like_the_leader(self.follower.partition):
            return  # the follower had a power cut itself, and has not caught up since
        self.leader.disk.crash(keep)
        self.leader, self.follower = self.follower, self.leader
        self.follower.open(high_watermark)
        self.cut(end)
        self.lead()

    @rule()
    def stop_and_go_on(self) -> None:
        """Restart both replicas cleanly; the leader stays the same."""
        high_watermark = self.leader.partition.high_watermark
        for replica in (self.leader, self.follower):
            replica.folder.stop()
            replica.open(min(high_watermark, replica.partition.high_watermark))
        self.lead()

    def cut(self, end: int) -> None:
        """Drop the entries that the new leader lacks; their decisions will be sent again."""
        for entry in self.entries[end:]:
            if entry.kind is not None:
                self.decided[entry.producer] = self.decision_of(entry)
        del self.entries[end:]
        for producer in PRODUCERS:
            epochs = [entry.epoch for entry in self.entries if entry.producer == producer]
            if epochs:
                self.epoch[producer] = epochs[-1]
            if producer in self.decided and not self.is_open(producer):
                # None of its records are left: its marker still comes, and changes only the epoch.
                self.epoch[producer] = max(self.epoch[producer], self.decided.pop(producer).epoch)
            self.last_marker.pop(producer, None)

    def decision_of(self, entry: Entry) -> Decision:
        assert entry.kind is not None
        last = self.last_marker.get(entry.producer)
        return Decision(entry.kind, entry.epoch, last.version if last else 1)

    # -- invariants -----------------------------------------------------------------------------

    @invariant()
    def every_replica_knows_what_its_log_tells(self) -> None:
        for replica in (self.leader, self.follower):
            log = replica.partition.log
            replayed = ProducerStates(SimulatedDisk(), "/replayed")
            for one in batches_of(log):
                replayed.apply(one)
            assert log.producers.producers() == replayed.producers()

    @invariant()
    def every_replica_is_stable_up_to_the_first_open_transaction(self) -> None:
        for replica in (self.leader, self.follower):
            partition = replica.partition
            if replica is self.follower and not self.is_like_the_leader(partition):
                continue
            high_watermark, end = partition.high_watermark, partition.log.end_offset
            found = list(self.transactions(end))
            opened = [first for first, last, _ in found if last is None]
            unsure = [first for first, last, _ in found if last is None or last >= high_watermark]
            at_most = min([high_watermark, *opened])
            at_least = min([high_watermark, *unsure])
            assert at_least <= partition.last_stable_offset <= at_most
        assert self.leader.partition.last_stable_offset >= self.stable
        self.stable = self.leader.partition.last_stable_offset

    @invariant()
    def readers_see_what_is_committed_and_nothing_else(self) -> None:
        for replica in (self.leader, self.follower):
            partition = replica.partition
            has_records = partition.log.end_offset > partition.log.log_start_offset
            if replica is self.follower and has_records and not partition.is_end_confirmed:
                with pytest.raises(ApiError, match="OFFSET_NOT_AVAILABLE"):
                    partition.read(0, 1, is_leader_needed=False)
                continue
            for bytes_max in (1, 1 << 20):
                end = partition.last_stable_offset
                assert list(read_committed(partition, bytes_max)) == self.committed(end)

    def is_like_the_leader(self, partition: Partition) -> bool:
        """Return whether a log has the first entries; it may have other records of an old epoch."""
        mine = [
            (one.producer_id, one.producer_epoch, one.is_control, value_in(one))
            for one in batches_of(partition.log)
        ]
        wanted = [
            (
                entry.producer,
                entry.epoch if entry.producer != NO_PRODUCER else -1,
                entry.kind is not None,
                entry.value,
            )
            for entry in self.entries[: len(mine)]
        ]
        return mine == wanted

    # -- helpers --------------------------------------------------------------------------------

    def value(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def batch_of(self, entry: Entry, sequence: int) -> memoryview:
        return batch(
            value=entry.value,
            producer_id=entry.producer,
            producer_epoch=entry.epoch,
            base_sequence=sequence,
            is_transactional=entry.producer != NO_PRODUCER,
        )

    def marker_of(self, producer: int, decision: Decision) -> tuple[memoryview, TransactionTerms]:
        data = end_txn_marker(decision.kind, 0, producer, decision.epoch, NOW_MS)
        return memoryview(data), TransactionTerms(decision.version)

    def append(
        self, entry: Entry, sequence: int = -1, terms: TransactionTerms = VERIFIED_ONLY
    ) -> None:
        data = self.batch_of(entry, sequence)
        appended = self.leader.partition.append_as_leader(data, NOW_MS, terms=terms)
        assert appended.base_offset == len(self.entries)
        self.entries.append(entry)

    def refusal(
        self, data: memoryview, origin: Origin, terms: TransactionTerms
    ) -> ErrorCode | None:
        try:
            found = self.leader.partition.append_as_leader(data, NOW_MS, origin=origin, terms=terms)
        except ApiError as error:
            return error.code
        assert found.is_duplicate
        return None


def value_in(one: RecordBatch) -> bytes:
    """Return the value of the only record of a batch; empty for a marker."""
    if one.is_control:
        return b""
    (record,) = records_of(one)
    return record.value or b""


def read_committed(partition: Partition, bytes_max: int) -> Iterator[bytes]:
    """Read as consumers do, to the end."""
    offset = partition.log.log_start_offset
    while True:
        found = partition.read(offset, bytes_max, is_committed_only=True, is_leader_needed=False)
        data = found.records.read()
        if not data:
            return
        yield from without_aborted(data, found.aborted or [])
        *_, last = batches(data)
        offset = last.end_offset


def without_aborted(data: bytes, aborted: list[tuple[int, int]]) -> Iterator[bytes]:
    """Drop the records of aborted transactions, as a consumer does with the fetched list."""
    coming = sorted(aborted, key=lambda one: one[1])
    producers: set[int] = set()
    for one in batches(data):
        while coming and coming[0][1] <= one.last_offset:
            producers.add(coming.pop(0)[0])
        if not one.is_control:
            if not (one.is_transactional and one.producer_id in producers):
                yield from (record.value or b"" for record in records_of(one))
        elif end_txn_marker_of(one).kind is ControlType.ABORT:
            producers.discard(one.producer_id)


TestTransactionLife = TransactionLife.TestCase
TestTransactionLife.settings = settings(
    max_examples=examples(63),
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
