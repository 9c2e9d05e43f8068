"""Invariants of a log that was opened after a crash: D1 to D9."""

from collections.abc import Sequence

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.indexes.time_index import TimestampOffset
from ottla.storage.log.leader_epochs import EpochStart, LeaderEpochs
from ottla.storage.log.log import PartitionLog
from ottla.storage.producers.producer_snapshot import ProducerEntry
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments.segment import Segment
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.record import records_of
from tests.log_building import batches_of


def as_batch(raw: bytes) -> RecordBatch:
    return RecordBatch(memoryview(raw))


def end_of(raws: Sequence[bytes]) -> int:
    return as_batch(raws[-1]).end_offset if raws else 0


def common_prefix(one: Sequence[bytes], other: Sequence[bytes]) -> list[bytes]:
    equal = [a for a, b in zip(one, other, strict=False) if a == b]
    assert equal == list(one[: len(equal)]), "logs part only once"
    return equal


def check_prefix(found: list[bytes], past: Sequence[bytes], start: int, floor: int) -> str | None:
    """D1 and D2: return a complaint unless this is a prefix of the past that reaches the floor."""
    expected = [raw for raw in past if as_batch(raw).end_offset > start]
    if found != expected[: len(found)]:
        return "not a prefix of the log before the crash"
    if max(end_of(found), start) < min(floor, end_of(expected)):
        return f"ends at {end_of(found)}, and {floor} was promised"
    return None


# -- D4: all derived state equals a recomputation from the log ------------------------------------


def recomputed_epochs(log: PartitionLog) -> tuple[EpochStart, ...]:
    """Compute the epochs from all batches, including those before the log start offset."""
    epochs = LeaderEpochs(SimulatedDisk(), "/epochs")
    for segment in log.segments:
        for batch in segment.batches(0):
            if batch.partition_leader_epoch != epochs.latest_epoch:
                epochs.assign(batch.partition_leader_epoch, batch.base_offset)
    return epochs.entries


def replayed(past: Sequence[bytes]) -> tuple[ProducerStates, list[AbortedTransaction]]:
    """Compute the expected producer state and aborted transactions from all batches."""
    disk = SimulatedDisk()
    states = ProducerStates(disk, "/")
    aborted = []
    for raw in past:
        completed = states.apply(as_batch(raw))
        if completed is not None and completed.is_aborted:
            stable = states.last_stable_offset_before(completed)
            aborted.append(AbortedTransaction(*completed[:3], stable))
    return states, aborted


def check_epochs(log: PartitionLog) -> None:
    """Check the epochs, except entries at either end of the log, which may have no records.

    The last epoch may have had all of its records refused or truncated. The first epoch may have
    extended to the first segment's base offset or beyond it.
    """
    found = [entry for entry in log.epochs.entries if entry.start_offset < log.end_offset]
    expected = list(recomputed_epochs(log))
    if found and found[0].start_offset == log.segments.base_offset:
        if found[0].epoch == expected[0].epoch:
            expected[0] = found[0]
        elif expected[0].start_offset > log.segments.base_offset:
            del found[0]
    assert found == expected, "epoch cache"


def check_producers(log: PartitionLog, past: Sequence[bytes]) -> None:
    """Check against all batches ever in the log; state of deleted batches is optional."""
    states, aborted = replayed([raw for raw in past if as_batch(raw).end_offset <= log.end_offset])
    known = {entry.producer_id: entry for entry in log.producers.producers()}
    for entry in states.producers():
        if _is_in(log, entry):
            assert known.pop(entry.producer_id) == entry, "producer state"
        else:
            known.pop(entry.producer_id, None)
    assert not known, "producers that never wrote"
    assert log.producers.first_unstable_offset is None or _open(log) == _open_in(states)
    base_offset = log.segments.base_offset
    kept = [one for one in aborted if one.last_offset >= base_offset]
    assert log.aborted_transactions(base_offset, log.end_offset) == kept, "aborted transactions"


def _is_in(log: PartitionLog, entry: ProducerEntry) -> bool:
    return max(entry.last_offset, entry.transaction_first_offset) >= log.log_start_offset


def _open(log: PartitionLog) -> list[tuple[int, int]]:
    return _open_in(log.producers)


def _open_in(states: ProducerStates) -> list[tuple[int, int]]:
    """Return the open transactions: their first offsets and producer ids."""
    return sorted(
        (entry.transaction_first_offset, entry.producer_id)
        for entry in states.producers()
        if entry.transaction_first_offset >= 0
    )


def check_indexes(log: PartitionLog) -> None:
    for segment in log.segments:
        _check_offset_index(segment)
        _check_time_index(segment)
    check_search(log)


def _check_offset_index(segment: Segment) -> None:
    position_by_last = {place.last_offset: place.position for place in segment.places(0)}
    for entry in segment.offset_index.entries():
        assert position_by_last.get(entry.offset) == entry.position, f"{segment.path}: {entry}"


def _check_time_index(segment: Segment) -> None:
    greatest_by_last: dict[int, int] = {}
    greatest_ms = -1
    for batch in segment.batches(0):
        greatest_ms = max(greatest_ms, batch.max_timestamp_ms)
        greatest_by_last[batch.last_offset] = greatest_ms
    for entry in segment.time_index.entries():
        assert greatest_by_last.get(entry.offset) == entry.timestamp_ms, f"{segment.path}: {entry}"
    assert segment.greatest_timestamp.timestamp_ms == greatest_ms, segment.path


def check_search(log: PartitionLog) -> None:
    """Find every offset and every timestamp."""
    found = list(batches_of(log))
    start, end = log.log_start_offset, log.end_offset
    records = [r for batch in found for r in records_of(batch) if r.offset >= start]
    for offset in range(start, end):
        holder = next(batch for batch in found if batch.end_offset > offset)
        assert log.read(offset, end, holder.size_bytes).read() == holder.raw
    for timestamp_ms in {record.timestamp_ms for record in records}:
        first = next(r for r in records if r.timestamp_ms >= timestamp_ms)
        answer = log.offset_for_timestamp(timestamp_ms, end)
        assert answer == TimestampOffset(first.timestamp_ms, first.offset)


def check_derived(log: PartitionLog, past: Sequence[bytes]) -> None:
    """D4, all of it."""
    check_epochs(log)
    check_producers(log, past)
    check_indexes(log)


def knowledge(log: PartitionLog) -> object:
    """Return all state of a log, to be compared with the state after another opening."""
    return (
        [bytes(batch.raw) for batch in batches_of(log)],
        (log.log_start_offset, log.end_offset),
        log.epochs.entries,
        log.producers.producers(),
        log.aborted_transactions(log.segments.base_offset, log.end_offset),
        [(s.base_offset, list(s.offset_index.entries())) for s in log.segments],
        [s.greatest_timestamp for s in log.segments],
    )
