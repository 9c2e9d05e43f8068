"""T2: with any damage to the snapshots, the producer state equals a replay of the log."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import Keep
from ottla.storage.producers.producer_state import ProducerStates
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import ControlType, end_txn_marker
from tests.examples import examples

DIRECTORY = "/log"
producer_ids = st.integers(1, 3)
steps = st.integers(0, 9).map(lambda number: number == 0)  # of epochs: in one of ten cases
keeps: st.SearchStrategy[Keep] = st.sampled_from(["lose_all", "keep_all", "random"])


class LogWithProducers(RuleBasedStateMachine):
    """A log in memory, with producer snapshots on a failing disk and the state from both."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Random(0))
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory("/")
        self.states = ProducerStates(self.disk, DIRECTORY)
        self.log: list[RecordBatch] = []
        self.epochs = dict.fromkeys(range(1, 4), 0)
        self.replayed_from = 0
        self.high_watermark = 0

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    def append(self, batch: RecordBatch, *, from_client: bool) -> None:
        batch.restamp(self.end_offset, 0)
        try:
            known = self.states.check(batch, from_client=from_client)
        except ApiError:
            return
        if known is None:
            self.log.append(batch)
            self.states.apply(batch)

    @rule(
        producer_id=producer_ids,
        records=st.integers(1, 3),
        is_transactional=st.booleans(),
        is_next_epoch=steps,
        back=st.integers(0, 7),
        timestamp_ms=st.integers(0, 1000),
    )
    def produce(
        self,
        producer_id: int,
        records: int,
        is_transactional: bool,
        is_next_epoch: bool,
        back: int,
        timestamp_ms: int,
    ) -> None:
        """Append the next batch, a duplicate, or a batch out of order."""
        self.epochs[producer_id] += is_next_epoch
        builder = BatchBuilder(
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            base_sequence=max(self.next_sequence(producer_id) - back // 2, 0),
            is_transactional=is_transactional,
        )
        builder.extend(timestamp_ms, [b"value"] * records)
        self.append(RecordBatch(memoryview(builder.build())), from_client=True)

    def next_sequence(self, producer_id: int) -> int:
        for batch in reversed(self.log):
            if batch.producer_id == producer_id and not batch.is_control:
                is_same = batch.producer_epoch == self.epochs[producer_id]
                return batch.last_sequence + 1 if is_same else 0
        return 0

    @rule(
        producer_id=producer_ids,
        kind=st.sampled_from([ControlType.COMMIT, ControlType.ABORT]),
        coordinator_epoch=st.integers(0, 2),
        is_next_epoch=steps,
    )
    def end_transaction(
        self, producer_id: int, kind: ControlType, coordinator_epoch: int, is_next_epoch: bool
    ) -> None:
        self.epochs[producer_id] += is_next_epoch
        epoch = self.epochs[producer_id]
        raw = end_txn_marker(kind, coordinator_epoch, producer_id, epoch, 2000)
        self.append(RecordBatch(memoryview(raw)), from_client=False)

    @rule()
    def produce_without_an_id(self) -> None:
        builder = BatchBuilder()
        builder.append(0, None, b"value")
        self.append(RecordBatch(memoryview(builder.build())), from_client=True)

    @rule(missing=st.integers(0, 4))
    def replicate(self, missing: int) -> None:
        self.high_watermark = max(self.high_watermark, self.end_offset - missing)
        self.states.acknowledge(self.high_watermark)

    @rule(sync=st.booleans())
    def take_snapshot(self, sync: bool) -> None:
        self.states.take_snapshot(self.end_offset, sync=sync)

    @precondition(lambda self: self.states.snapshots.offsets())
    @rule(data=st.data())
    def damage_a_snapshot(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.states.snapshots.offsets()))
        file = self.disk.open_file(self.states.snapshots.path(offset))
        if file.size_bytes() == 0:  # a power cut has damaged it already
            return
        position = data.draw(st.integers(0, file.size_bytes() - 1))
        file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 0x10]))

    @rule(lost=st.integers(0, 5))
    def truncate(self, lost: int) -> None:
        del self.log[len(self.log) - min(lost, len(self.log)) :]
        self.replay()

    @rule(lost=st.integers(0, 5), keep=keeps)
    def cut_the_power(self, lost: int, keep: Keep) -> None:
        self.disk.crash(keep)
        self.states = ProducerStates(self.disk, DIRECTORY)
        self.high_watermark = 0
        self.truncate(lost)

    def replay(self) -> None:
        self.replayed_from, _ = self.states.reload(0, self.end_offset)
        self.high_watermark = min(self.high_watermark, self.end_offset)
        for batch in self.log:
            if batch.base_offset >= self.replayed_from:
                self.states.apply(batch)

    def recomputed(self) -> ProducerStates:
        states = ProducerStates(self.disk, DIRECTORY)
        for batch in self.log:
            states.apply(batch)
        return states

    @invariant()
    def the_state_is_the_one_that_the_log_says(self) -> None:
        recomputed = self.recomputed()
        assert self.states.producers() == recomputed.producers()
        recomputed.acknowledge(max(self.high_watermark, self.replayed_from))
        assert self.states.first_unstable_offset == recomputed.first_unstable_offset

    @invariant()
    def what_is_in_the_log_is_known_again_or_refused(self) -> None:
        recomputed = self.recomputed()
        for batch in self.log:
            if batch.has_producer_id and not batch.is_control:
                full = _answer(recomputed, batch)
                ours = _answer(self.states, batch)
                is_forgotten = batch.base_offset < self.replayed_from
                assert ours == full or (is_forgotten and ours == _REFUSED), batch


_REFUSED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _answer(states: ProducerStates, batch: RecordBatch) -> tuple[int, int] | ErrorCode | None:
    try:
        known = states.check(batch, from_client=True)
    except ApiError as error:
        return error.code
    return known and (known.base_offset, known.last_offset)


TestLogWithProducers = LogWithProducers.TestCase
TestLogWithProducers.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
