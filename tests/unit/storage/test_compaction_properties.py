"""C1 to C5, T2 and T8, for any writes to a log and any number of compactions."""

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.log import PartitionLog
from ottla.storage.producers.producer_snapshot import ProducerEntry
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery.log_recovery import open_log
from ottla.storage.segments.segment import Segment
from ottla.wire.records.compression.codecs import Compression
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
    state_of,
)

PLAIN, IDEMPOTENT, FIRST, SECOND = -1, 1, 2, 3
TRANSACTIONAL = (FIRST, SECOND)

keys = st.integers(0, 9).map(lambda number: b"key-%d" % number)
values = st.none() | st.binary(max_size=20)


class Put(NamedTuple):
    pairs: list[tuple[bytes, bytes | None]]
    producer_id: int
    codec: Compression


class End(NamedTuple):
    producer_id: int
    kind: ControlType
    is_epoch_bumped: bool


class Roll(NamedTuple):
    pass


class Compact(NamedTuple):
    hours: int
    entries: int


class Forget(NamedTuple):
    """All producers without an open transaction expire."""


Step = Put | End | Roll | Compact | Forget
puts = st.builds(
    Put,
    st.lists(st.tuples(keys, values), min_size=1, max_size=5),
    st.sampled_from([PLAIN, IDEMPOTENT, *TRANSACTIONAL]),
    st.sampled_from(Compression),
)
steps = st.lists(
    st.one_of(
        puts,
        puts,
        st.builds(
            End,
            st.sampled_from(TRANSACTIONAL),
            st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
            st.booleans(),
        ),
        st.builds(Roll),
        st.builds(Compact, st.integers(0, 30), st.sampled_from([3, 6, 1000])),
        st.builds(Forget),
    ),
    min_size=5,
    max_size=60,
)


class Run:
    """A log that takes steps, next to a model that keeps all written records."""

    def __init__(self, segment_bytes: int) -> None:
        self.disk = SimulatedDisk()
        self.config = compacted(segment_bytes=segment_bytes)
        self.log = opened(self.disk, self.config)
        self.writer = Writer(self.log)
        self.now_ms = START_MS
        self.first_dirty_offset = 0
        self.written: dict[int, Record] = {}
        self.open: dict[int, list[int]] = {}
        self.decided: set[int] = set()
        self.cleaned_ms_by_tombstone: dict[int, int] = {}

    def take(self, step: Step) -> None:
        match step:
            case Put():
                self.put(step)
            case End(producer_id, kind, is_epoch_bumped) if producer_id in self.open:
                self.writer.end(producer_id, kind, self.now_ms, is_epoch_bumped=is_epoch_bumped)
                offsets = self.open.pop(producer_id)
                if kind is ControlType.COMMIT:
                    self.decided.update(offsets)
            case Roll():
                self.writer.roll(self.now_ms)
            case Forget():
                self.log.producers.expire(self.now_ms + 100 * DAY_MS)
                for producer_id in [IDEMPOTENT, *(t for t in TRANSACTIONAL if t not in self.open)]:
                    self.writer.sequence_by_producer.pop(producer_id, None)
            case Compact():
                self.compact(step)
            case _:
                pass

    def put(self, step: Put) -> None:
        is_transactional = step.producer_id in TRANSACTIONAL
        base_offset = self.writer.put(
            *step.pairs,
            codec=step.codec,
            producer_id=step.producer_id,
            is_transactional=is_transactional,
            timestamp_ms=self.now_ms,
        )
        offsets = range(base_offset, base_offset + len(step.pairs))
        written = records_in([data_batches(self.log)[-1]])
        self.written.update(zip(offsets, written, strict=True))
        if is_transactional:
            self.open.setdefault(step.producer_id, []).extend(offsets)
        else:
            self.decided.update(offsets)

    def compact(self, step: Compact) -> None:
        self.now_ms += step.hours * DAY_MS // 24
        before = list(self.log.segments)
        stable = last_stable_offset(self.log)
        self.first_dirty_offset = compact(
            self.disk, self.log, self.first_dirty_offset, self.now_ms, 24 * step.entries
        )
        assert self.first_dirty_offset <= stable
        self.check_untouched(before)
        for offset, record in self.written.items():
            if record.value is None and offset < self.first_dirty_offset:
                self.cleaned_ms_by_tombstone.setdefault(offset, self.now_ms)
        self.check()

    def check_untouched(self, before: list[Segment]) -> None:
        """C4: active segments, and segments with undecided transactions, are never replaced."""
        assert self.log.segments.active is before[-1]
        stable = last_stable_offset(self.log)
        row = list(self.log.segments)
        for segment, following in pairwise(row):
            if following.base_offset > stable:
                assert segment in before

    def visible(self) -> dict[int, Record]:
        stable = last_stable_offset(self.log)
        return {o: self.written[o] for o in sorted(self.decided) if o < stable}

    def check(self) -> None:
        found = committed(self.log)
        offsets = [record.offset for record in records_in(batches_of(self.log))]
        assert offsets == sorted(set(offsets))  # C2
        for record in found:
            assert self.written[record.offset] == record  # C2, and T8: nothing aborted
            assert record.offset in self.decided
        model: dict[bytes, Record] = {}
        for record in self.visible().values():
            model[record.key or b""] = record
        there = {record.offset: record for record in found}
        for record in model.values():
            if record.value is not None:
                assert there[record.offset] == record  # C1
            else:
                cleaned_ms = self.cleaned_ms_by_tombstone.get(record.offset, self.now_ms)
                if self.now_ms < cleaned_ms + DAY_MS:
                    assert there[record.offset] == record  # C3
        wanted = {key: record.value for key, record in model.items() if record.value is not None}
        assert state_of(self.log) == wanted  # C1: and no deleted key is back
        self.check_clean_part()

    def check_clean_part(self) -> None:
        """The clean part has no record that a later record of the clean part replaces."""
        last: dict[bytes, int] = {}
        for record in self.visible().values():
            if record.offset < self.first_dirty_offset:
                last[record.key or b""] = record.offset
        for record in records_in(data_batches(self.log)):
            if record.offset < self.first_dirty_offset:
                assert last[record.key or b""] == record.offset

    def check_producers(self) -> None:
        """T2: replaying the log restores the state of every active producer."""
        live = _known(self.log.producers)
        state = ProducerStates(self.disk, "/elsewhere")
        for batch in batches_of(self.log):
            state.apply(batch)
        replayed = _known(state)
        assert {key: replayed[key] for key in live} == live
        state.acknowledge(self.log.end_offset)
        self.log.producers.acknowledge(self.log.end_offset)
        assert state.first_unstable_offset == self.log.producers.first_unstable_offset

    def check_segments(self) -> None:
        row = list(self.log.segments)
        for segment in row:
            segment.offset_index.check(max(segment.size_bytes, 1))
            segment.aborted_index.check()
        for batch in batches_of(self.log):
            found = self.log.segments.find(batch.base_offset)
            assert found is not None
            assert found[1].base_offset == batch.base_offset

    def reopened(self) -> PartitionLog:
        return open_log(
            OpenFiles(self.disk), DIRECTORY, self.config, self.now_ms, is_clean=False
        ).log


def _known(states: ProducerStates) -> dict[int, ProducerEntry]:
    # Without its marker an entry lacks the coordinator's epoch and the marker's timestamp; neither
    # affects the producer's own next batch.
    return {
        entry.producer_id: entry._replace(coordinator_epoch=0, timestamp_ms=0)
        for entry in states.producers()
    }


@settings(max_examples=examples(400), deadline=None)
@given(steps, st.sampled_from([400, 1000, 100_000]))
def test_a_compacted_log_has_the_same_last_values_as_the_whole_log(
    taken: list[Step], segment_bytes: int
) -> None:
    run = Run(segment_bytes)
    for step in taken:
        run.take(step)
    for _ in range(4):
        run.take(Put([(b"last", b"value")], PLAIN, Compression.NONE))
        run.take(Roll())
        run.take(Compact(25, 1000))
    run.check_producers()
    run.check_segments()
    before = committed(run.log)
    run.log.flush(run.now_ms)
    run.log = run.reopened()
    assert committed(run.log) == before
