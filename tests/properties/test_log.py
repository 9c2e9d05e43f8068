"""A log compared with a plain list, through long random sequences of operations."""

from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.topic_config import CleanupPolicy, TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import Keep
from ottla.storage.log.admission import Origin
from ottla.storage.log.retention import apply_retention
from ottla.wire.records.control import ControlType
from ottla.wire.records.record import Record, records_of
from tests.crashes.invariants import as_batch, check_prefix, end_of
from tests.examples import examples
from tests.log_building import NOW_MS, LogFolder, batch, batches_of, contents, marker, stamped, tiny
from tests.properties.log_model import LogModel, check_known
from tests.unit.storage.compacted_logs import compact

counts = st.integers(1, 3)
timestamps = st.integers(0, 1000)
parts = st.floats(0, 1)
rarely = st.integers(0, 9).map(lambda number: number == 0)
keeps: st.SearchStrategy[Keep] = st.sampled_from(["lose_all", "keep_all", "random"])
PRODUCERS = range(1, 4)
TRANSACTIONAL = range(4, 6)


class LogLife(RuleBasedStateMachine):
    """Segments of three or four batches, and a disk that loses all unsynced writes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = LogModel()
        self.dice = Random(0)
        self.disk = SimulatedDisk(self.dice)
        self.leader_epoch = 0
        self.next_sequence = dict.fromkeys([*PRODUCERS, *TRANSACTIONAL], 0)
        self.sent: dict[int, list[tuple[bytes, int]]] = {producer: [] for producer in PRODUCERS}
        self.flushes: list[Any] = []
        self.now_ms = NOW_MS

    @initialize(
        segment_bytes=st.sampled_from([150, 300, 1000]), index_bytes=st.sampled_from([48, 4096])
    )
    def begin(self, segment_bytes: int, index_bytes: int) -> None:
        config = tiny(
            segment_bytes=segment_bytes,
            segment_index_bytes=index_bytes,
            segment_ms=900,
            retention_bytes=1200,
            file_delete_delay_ms=10,
        )
        self.open(config)

    def open(self, config: TopicConfig) -> None:
        self.folder = LogFolder(self.disk, config)
        self.log = self.folder.start(self.now_ms)
        self.flushes = []

    # -- appending ------------------------------------------------------------------------------

    def lead(self, data: memoryview, *, origin: Origin = Origin.CLIENT) -> int:
        appended = self.log.append_as_leader(data, self.leader_epoch, self.now_ms, origin=origin)
        assert not appended.is_duplicate
        assert appended.base_offset == self.model.end
        self.model.append(bytes(data))
        return appended.base_offset

    @rule(is_new=rarely)
    def elect(self, is_new: bool) -> None:
        self.leader_epoch += is_new

    @rule(count=counts, timestamp_ms=timestamps)
    def produce(self, count: int, timestamp_ms: int) -> None:
        self.lead(batch(count, timestamp_ms))

    @rule(producer=st.sampled_from(PRODUCERS), count=counts, timestamp_ms=timestamps)
    def produce_in_sequence(self, producer: int, count: int, timestamp_ms: int) -> None:
        data = batch(
            count, timestamp_ms, producer_id=producer, base_sequence=self.next_sequence[producer]
        )
        before = bytes(data)
        base_offset = self.lead(data)
        self.next_sequence[producer] += count
        self.sent[producer] = [*self.sent[producer], (before, base_offset)][-5:]

    @precondition(lambda self: any(self.sent.values()))
    @rule(back=st.integers(1, 5), pick=parts)
    def repeat(self, back: int, pick: float) -> None:
        """A producer misses a response and sends its batch again: it is never appended twice."""
        known = [producer for producer, sent in self.sent.items() if sent]
        producer = known[int(pick * (len(known) - 1))]
        sent = self.sent[producer]
        raw, base_offset = sent[-min(back, len(sent))]
        data = memoryview(bytearray(raw))
        is_known = self.sent[producer][-1][1] >= self.model.forgotten_to
        try:
            answer = self.log.append_as_leader(data, self.leader_epoch, self.now_ms)
        except ApiError as refusal:
            if refusal.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            answer = None
        if answer is None:
            assert back > 1 or not is_known, "the last one is known as long as it is there"
        elif answer.is_duplicate:
            assert answer.base_offset == base_offset
        else:
            assert not is_known, "of a producer that is known nothing is appended twice"
            self.model.append(bytes(data))
            self.sent[producer] = [(raw, answer.base_offset)]
            self.forget_cut()

    @rule(producer=st.sampled_from(TRANSACTIONAL), count=counts)
    def produce_in_transaction(self, producer: int, count: int) -> None:
        sequence = self.next_sequence[producer]
        data = batch(count, producer_id=producer, base_sequence=sequence, is_transactional=True)
        self.lead(data)
        self.next_sequence[producer] += count

    @rule(producer=st.sampled_from(TRANSACTIONAL), is_aborted=st.booleans())
    def end_transaction(self, producer: int, is_aborted: bool) -> None:
        kind = ControlType.ABORT if is_aborted else ControlType.COMMIT
        self.lead(marker(kind, producer), origin=Origin.COORDINATOR)
        self.forget_cut()  # the marker gives a forgotten producer an entry without batches

    @rule(
        counts=st.lists(counts, min_size=1, max_size=4),
        gap=st.integers(0, 3),
        cut=st.integers(0, 75),
    )
    def follow(self, counts: list[int], gap: int, cut: int) -> None:
        """Fetch several batches, the first after a gap, the last truncated."""
        sent, end_offset = [], self.model.end + gap
        for count in counts:
            sent.append(stamped(batch(count, 500), end_offset, self.leader_epoch))
            end_offset += count
        rest = stamped(batch(), end_offset, self.leader_epoch)[:cut]
        self.log.append_as_follower(memoryview(bytearray(b"".join([*sent, rest]))), self.now_ms)
        for raw in sent:
            self.model.append(bytes(raw))

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    # -- reading --------------------------------------------------------------------------------

    @rule(start=parts, end=parts, bytes_max=st.integers(0, 400), is_whole=st.booleans())
    def read(self, start: float, end: float, bytes_max: int, is_whole: bool) -> None:
        model = self.model
        offset = model.start + int(start * (model.end - model.start))
        end_offset = model.start + int(end * (model.end - model.start + 1))
        data = self.log.read(offset, end_offset, bytes_max, whole_batch=is_whole).read()
        expected = model.readable(offset, end_offset)
        assert b"".join(expected).startswith(data)
        if expected and (is_whole or bytes_max >= len(expected[0])):
            assert len(data) >= min(len(expected[0]), max(bytes_max, len(expected[0])))
            assert len(data) <= max(bytes_max, len(expected[0]))
        elif not is_whole:
            assert data == b""

    # -- truncation -----------------------------------------------------------------------------

    @rule(part=parts)
    def truncate(self, part: float) -> None:
        model = self.model
        offset = model.start + int(part * (model.end - model.start))
        self.log.truncate_to(offset)
        if offset < model.end:
            model.cut(offset)
        self.forget_cut()

    @rule(ahead=st.integers(0, 5), is_due=rarely)
    def begin_anew(self, ahead: int, is_due: bool) -> None:
        if is_due:
            self.log.restart_at(self.model.end + ahead, self.now_ms)
            self.model.begin_anew(self.model.end + ahead)
            self.forget_cut()

    def forget_cut(self) -> None:
        """Let producers continue from their remaining batches, or from their known state."""
        batches = [as_batch(raw) for raw in self.model.past]
        known = {entry.producer_id: entry for entry in self.log.producers.producers()}
        for producer in self.next_sequence:
            own = [b for b in batches if b.producer_id == producer and not b.is_control]
            self.next_sequence[producer] = own[-1].last_sequence + 1 if own else 0
            if producer in known:
                self.next_sequence[producer] = known[producer].last_sequence + 1
            if producer in self.sent:
                left = {b.base_offset for b in own}
                self.sent[producer] = [s for s in self.sent[producer] if s[1] in left]

    @rule(part=parts, is_due=rarely)
    def delete_records(self, part: float, is_due: bool) -> None:
        model = self.model
        if is_due:
            model.start += int(part * (model.end - model.start))
            self.folder.delete_records(model.start)

    @rule(part=parts)
    def apply_retention(self, part: float) -> None:
        model = self.model
        high_watermark = model.start + int(part * (model.end - model.start))
        apply_retention(self.log, self.now_ms, high_watermark)
        assert model.start <= self.log.log_start_offset <= max(high_watermark, model.start)
        model.start = self.log.log_start_offset
        self.log.remove_deleted(self.now_ms)

    @rule(passed_ms=st.integers(1, 50))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    # -- durability -----------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.folder.flush(self.now_ms)
        self.model.durable_end = self.model.end

    @rule()
    def begin_flush(self) -> None:
        self.flushes.append(self.log.begin_flush())

    @precondition(lambda self: self.flushes)
    @rule()
    def end_flush(self) -> None:
        flush = self.flushes.pop(0)
        flush.run()
        self.log.end_flush(flush, self.now_ms)
        self.folder.write_recovery_point(self.log.recovery_point)
        self.model.durable_end = max(self.model.durable_end, self.log.recovery_point)

    @rule()
    def restart_cleanly(self) -> None:
        self.folder.stop(self.now_ms)
        self.disk.crash("lose_all")
        self.model.durable_end = self.model.end
        self.reopen()
        assert self.folder.was_clean
        assert self.folder.findings.notes == []

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.reopen()

    @rule(keep=keeps, seed=st.integers(0, 1 << 16))
    def cut_power(self, keep: Keep, seed: int) -> None:
        self.dice.seed(seed)
        self.disk.crash(keep)
        self.open(self.folder.config)
        found = contents(self.log)
        model = self.model
        assert self.log.log_start_offset <= model.start
        complaint = check_prefix(found, model.past, self.log.log_start_offset, model.durable_end)
        assert complaint is None, complaint
        model.start = self.log.log_start_offset
        if self.log.end_offset < model.end:
            model.cut(self.log.end_offset)
        self.after_reopening()

    def reopen(self) -> None:
        self.open(self.folder.config)
        self.after_reopening()

    def after_reopening(self) -> None:
        self.model.reloaded()
        check_known(self.log, self.model)
        self.forget_cut()

    # -- invariants -----------------------------------------------------------------------------

    @invariant()
    def is_as_it_should_be(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.end_offset) == (model.start, model.end)
        assert [bytes(one.raw) for one in batches_of(log)] == model.present()
        assert end_of(model.past) <= model.end
        assert log.recovery_point <= max(model.durable_end, model.start)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            check_known(self.log, self.model)


class CompactedLogLife(LogLife):
    """The same operations with compaction, which may only remove records.

    test_compaction_properties checks which records it must keep.
    """

    @initialize(segment_bytes=st.sampled_from([150, 300, 1000]))
    def begin(self, segment_bytes: int) -> None:
        self.open(
            tiny(
                segment_bytes=segment_bytes,
                cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
                min_cleanable_dirty_ratio=0.0,
                file_delete_delay_ms=10,
            )
        )

    @rule()
    def compact(self) -> None:
        before = {record.offset: record for record in self.records()}
        compact(self.disk, self.log, now_ms=self.now_ms)
        for record in self.records():
            assert before[record.offset] == record
        self.model.past = [
            bytes(one.raw) for segment in self.log.segments for one in segment.batches(0)
        ]
        # Of a producer's old batches only the state for its next batch is left.
        self.model.forgotten_to = self.model.end
        self.model.is_compacted = True

    def records(self) -> list[Record]:
        return [
            record
            for segment in self.log.segments
            for one in segment.batches(0)
            for record in records_of(one)
        ]


SETTINGS = settings(
    max_examples=examples(375),
    stateful_step_count=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
LogLife.TestCase.settings = CompactedLogLife.TestCase.settings = SETTINGS
TestLogLife = LogLife.TestCase
TestCompactedLogLife = CompactedLogLife.TestCase
