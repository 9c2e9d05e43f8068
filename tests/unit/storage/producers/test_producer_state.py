import tracemalloc

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.producers.producer import AppendedBatch
from ottla.storage.producers.producer_snapshot import ProducerEntry
from ottla.storage.producers.producer_state import CompletedTransaction, ProducerStates
from ottla.storage.producers.transaction_terms import TransactionTerms
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch, write_crc
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import ControlType, end_txn_marker

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SEQUENCE_MAX = 2**31 - 1
COMMIT = ControlType.COMMIT
ABORT = ControlType.ABORT


def batch_at(
    offset: int,
    sequence: int = 0,
    *,
    records: int = 1,
    producer: int = 1,
    epoch: int = 0,
    transactional: bool = False,
    timestamp_ms: int = NOW_MS,
) -> RecordBatch:
    builder = BatchBuilder(
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        base_offset=offset,
    )
    builder.extend(timestamp_ms, [b"value"] * records)
    return RecordBatch(memoryview(builder.build()))


def marker_at(
    offset: int,
    kind: ControlType = COMMIT,
    *,
    producer: int = 1,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp_ms: int = NOW_MS,
) -> RecordBatch:
    raw = end_txn_marker(kind, coordinator_epoch, producer, epoch, timestamp_ms)
    marker = RecordBatch(memoryview(raw))
    marker.restamp(offset, 0)
    return marker


def new_states(producers_max: int = 100) -> ProducerStates:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    return ProducerStates(disk, "/log", producers_max=producers_max)


def states_after(*batches: RecordBatch) -> ProducerStates:
    states = new_states()
    for batch in batches:
        states.apply(batch)
    return states


def answer(
    states: ProducerStates,
    batch: RecordBatch,
    *,
    from_client: bool = True,
    transaction_version: int = 0,
) -> AppendedBatch | ErrorCode | None:
    try:
        return states.check(
            batch, from_client=from_client, terms=TransactionTerms(transaction_version)
        )
    except ApiError as error:
        return error.code


# Sequences


def test_a_producer_goes_on_where_it_stopped() -> None:
    states = states_after(batch_at(0, 0, records=3))
    assert answer(states, batch_at(3, 3)) is None
    for sequence in (1, 2, 4, SEQUENCE_MAX):
        assert answer(states, batch_at(3, sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_refusal_says_what_was_expected() -> None:
    with pytest.raises(ApiError, match="producer 1, epoch 0: sequence 9 comes where 3 was"):
        states_after(batch_at(0, 0, records=3)).check(batch_at(3, 9), from_client=True)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert answer(new_states(), batch_at(0, 17)) is None


def test_a_new_epoch_begins_with_sequence_0() -> None:
    states = states_after(batch_at(0, 0), batch_at(1, 1))
    assert answer(states, batch_at(2, 0, epoch=1)) is None
    for sequence in (1, 2):
        later = answer(states, batch_at(2, sequence, epoch=1))
        assert later is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_epoch_that_is_over_is_refused() -> None:
    states = states_after(batch_at(0, epoch=5))
    assert answer(states, batch_at(1, 1, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert answer(states, batch_at(1, 0, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (
        answer(states, batch_at(1, epoch=4), from_client=False) is ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_sequences_start_at_0_again_after_the_largest() -> None:
    states = states_after(batch_at(0, SEQUENCE_MAX))
    assert answer(states, batch_at(1, 0)) is None
    wrapping = batch_at(0, SEQUENCE_MAX, records=3)
    states = states_after(wrapping)
    assert answer(states, batch_at(3, 2)) is None
    assert answer(states, wrapping) == (SEQUENCE_MAX, 1, 0, 2, NOW_MS)


def test_coordinators_need_no_sequence() -> None:
    states = states_after(batch_at(0, -1, records=2), batch_at(2, -1))
    assert answer(states, batch_at(3, -1), from_client=False) is None
    assert states.producers()[0].last_sequence == -1
    states.take_snapshot(3)
    states.reload(0, 3)
    assert answer(states, batch_at(3, 0)) is None


def test_a_batch_without_a_producer_id_leaves_no_trace() -> None:
    states = states_after(batch_at(0, -1, producer=-1, epoch=-1))
    assert states.producers() == []
    assert answer(states, batch_at(1, -1, producer=-1, epoch=-1)) is None


# Repeated batches


def test_each_of_the_last_five_batches_is_known_again_where_it_is() -> None:
    batches = [batch_at(2 * n, 2 * n, records=2, timestamp_ms=NOW_MS + n) for n in range(6)]
    states = states_after(*batches)
    assert answer(states, batches[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for n in range(1, 6):
        again = batch_at(99, 2 * n, records=2)
        assert answer(states, again) == (2 * n, 2 * n + 1, 2 * n, 2 * n + 1, NOW_MS + n)


def test_a_batch_that_was_cut_differently_is_not_the_same() -> None:
    states = states_after(batch_at(0, 0, records=2), batch_at(2, 2, records=2))
    for sequence, records in ((0, 1), (1, 1), (0, 4), (2, 1)):
        again = batch_at(4, sequence, records=records)
        assert answer(states, again) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_of_another_epoch_is_not_the_same() -> None:
    states = states_after(batch_at(0, 0), batch_at(1, 1), batch_at(2, 0, epoch=1))
    assert answer(states, batch_at(3, 1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert answer(states, batch_at(3, 0, epoch=1)) == (0, 0, 2, 2, NOW_MS)


def test_producers_do_not_know_each_others_batches() -> None:
    states = states_after(batch_at(0, 0, producer=1), batch_at(1, 0, producer=2))
    assert answer(states, batch_at(2, 1, producer=1)) is None
    assert answer(states, batch_at(2, 0, producer=2)) == (0, 0, 1, 1, NOW_MS)


def test_after_a_restart_only_the_last_batch_before_the_snapshot_is_known_again() -> None:
    batches = [batch_at(n, n) for n in range(4)]
    states = states_after(*batches[:3])
    states.take_snapshot(3)
    assert states.reload(0, 4) == (3, [])
    states.apply(batches[3])
    assert [answer(states, batch) for batch in batches] == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        (2, 2, 2, 2, NOW_MS),
        (3, 3, 3, 3, NOW_MS),
    ]


def test_a_repeated_batch_that_wraps_is_known_again_after_a_restart() -> None:
    states = states_after(batch_at(5, SEQUENCE_MAX, records=3))
    states.take_snapshot(8)
    states.reload(0, 8)
    assert answer(states, batch_at(8, SEQUENCE_MAX, records=3)) == (SEQUENCE_MAX, 1, 5, 7, NOW_MS)


# Transactions


def test_a_marker_ends_the_transaction_and_says_where_it_was() -> None:
    states = states_after(batch_at(7, 0, transactional=True), batch_at(8, 1, transactional=True))
    assert states.first_unstable_offset == 7
    assert states.apply(marker_at(9, ABORT)) == CompletedTransaction(1, 7, 9, is_aborted=True)
    assert states.apply(marker_at(10, COMMIT)) is None
    states.apply(batch_at(11, 2, transactional=True))
    assert states.apply(marker_at(12, COMMIT)) == CompletedTransaction(1, 11, 12, is_aborted=False)


def test_a_transaction_stays_unstable_until_its_marker_is_replicated() -> None:
    states = states_after(batch_at(7, transactional=True), marker_at(8))
    states.acknowledge(8)
    assert states.first_unstable_offset == 7
    states.acknowledge(9)
    assert states.first_unstable_offset is None


def test_the_first_of_many_transactions_holds_readers_back() -> None:
    states = states_after(
        batch_at(0, producer=1, transactional=True),
        batch_at(1, producer=2, transactional=True),
        batch_at(2, producer=3, transactional=True),
        marker_at(3, producer=2),
        marker_at(4, producer=1),
    )
    assert states.first_unstable_offset == 0
    states.acknowledge(4)
    assert states.first_unstable_offset == 0
    states.acknowledge(5)
    assert states.first_unstable_offset == 2
    states.apply(marker_at(5, producer=3))
    assert states.first_unstable_offset == 2
    states.acknowledge(6)
    assert states.first_unstable_offset is None


def test_an_aborted_transaction_is_kept_with_the_first_one_still_open() -> None:
    states = states_after(
        batch_at(0, producer=1, transactional=True), batch_at(1, producer=2, transactional=True)
    )
    second = states.apply(marker_at(2, ABORT, producer=2))
    assert second is not None
    assert states.last_stable_offset_before(second) == 0
    first = states.apply(marker_at(3, ABORT, producer=1))
    assert first is not None
    assert states.last_stable_offset_before(first) == 4


def test_nothing_outside_the_transaction_while_it_is_open() -> None:
    states = states_after(batch_at(0, transactional=True))
    for from_client in (True, False):
        outside = answer(states, batch_at(1, 1), from_client=from_client)
        assert outside is ErrorCode.INVALID_TXN_STATE
    states.apply(marker_at(1))
    assert answer(states, batch_at(2, 1)) is None


def test_a_marker_of_an_old_producer_epoch_is_refused() -> None:
    states = states_after(batch_at(0, epoch=3, transactional=True))
    late = answer(states, marker_at(1, epoch=2), from_client=False)
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH
    assert answer(states, marker_at(1, epoch=3), from_client=False) is None


def test_a_marker_of_an_old_coordinator_is_refused() -> None:
    states = states_after(batch_at(0), marker_at(1, coordinator_epoch=5))
    zombie = answer(states, marker_at(2, coordinator_epoch=4), from_client=False)
    assert zombie is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert answer(states, marker_at(2, coordinator_epoch=5), from_client=False) is None


def test_a_producer_is_not_idle_when_its_marker_has_just_come() -> None:
    states = states_after(
        batch_at(0, transactional=True, timestamp_ms=NOW_MS - 100),
        marker_at(1, coordinator_epoch=5),
    )
    states.expire(NOW_MS + 99, 100)
    zombie = answer(states, marker_at(2, coordinator_epoch=4), from_client=False)
    assert zombie is ErrorCode.TRANSACTION_COORDINATOR_FENCED  # KAFKA-9144
    states.expire(NOW_MS + 100, 100)
    assert states.producer(1) is None


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    # Version 2: the marker of epoch 4 ended the transaction of epoch 3, and arrives again.
    states = states_after(batch_at(0, epoch=3, transactional=True), marker_at(1, epoch=4))
    marker = marker_at(3, epoch=4)
    assert answer(states, marker, from_client=False, transaction_version=2) is None
    states.apply(batch_at(2, epoch=4, transactional=True))
    late = answer(states, marker, from_client=False, transaction_version=2)
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH
    right = answer(states, marker_at(3, epoch=5), from_client=False, transaction_version=2)
    assert right is None


def test_a_marker_with_the_next_epoch_restarts_the_sequences() -> None:
    states = states_after(batch_at(0, 0, records=3, transactional=True), marker_at(3, epoch=1))
    assert answer(states, batch_at(4, 0, epoch=1)) is None
    assert answer(states, batch_at(4, 3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    same_epoch = states_after(batch_at(0, 0, records=3, transactional=True), marker_at(3))
    assert answer(same_epoch, batch_at(4, 3)) is None


def test_a_marker_that_compaction_emptied_changes_nothing() -> None:
    empty = marker_at(1)
    raw = bytearray(empty.raw[:61])
    raw[8:12] = (61 - 12).to_bytes(4, "big")
    raw[57:61] = bytes(4)
    write_crc(memoryview(raw))
    states = states_after(batch_at(0, transactional=True))
    assert states.apply(RecordBatch(memoryview(raw))) is None
    assert states.first_unstable_offset == 0


def test_a_control_batch_that_is_no_marker_is_refused_and_changes_nothing() -> None:
    builder = BatchBuilder(producer_id=1, producer_epoch=9, is_control=True)
    builder.append(NOW_MS, b"\0\0\0\2", b"leader change")
    other = RecordBatch(memoryview(builder.build()))
    states = states_after(batch_at(0))
    before = states.producers()
    for attempt in (states.apply, lambda batch: states.check(batch, from_client=False)):
        with pytest.raises(ProtocolError, match="does not end a transaction"):
            attempt(other)
    assert states.producers() == before


def test_control_batches_of_no_producer_are_nobodys() -> None:
    builder = BatchBuilder(is_control=True)
    builder.append(NOW_MS, b"\0\0\0\2", b"leader change")
    leader_change = RecordBatch(memoryview(builder.build()))
    states = states_after(leader_change)
    assert states.producers() == []
    assert answer(states, leader_change, from_client=False) is None


# Expiry


def test_idle_producers_expire_unless_a_transaction_is_open() -> None:
    states = states_after(
        batch_at(0, producer=1),
        batch_at(1, producer=2, timestamp_ms=NOW_MS + 1),
        batch_at(2, producer=3, transactional=True),
    )
    states.expire(NOW_MS + DAY_MS - 1)
    assert len(states.producers()) == 3
    states.expire(NOW_MS + DAY_MS)
    assert [entry.producer_id for entry in states.producers()] == [2, 3]
    assert answer(states, batch_at(3, 77, producer=1)) is None


def test_too_many_producers_push_out_the_longest_idle_ones() -> None:
    states = new_states(producers_max=20)
    states.apply(batch_at(0, producer=1000, transactional=True, timestamp_ms=0))
    for n in range(1, 101):
        states.apply(batch_at(n, producer=n, timestamp_ms=NOW_MS + n))
    remaining = [entry.producer_id for entry in states.producers()]
    assert len(remaining) <= 20
    assert remaining == [*range(remaining[0], 101), 1000]


def test_a_log_without_producers_costs_next_to_nothing() -> None:
    disk = SimulatedDisk()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        logs = [ProducerStates(disk, "/log") for _ in range(1000)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 250 * len(logs)


def test_logs_share_nothing() -> None:
    first, second = new_states(), new_states()
    first.apply(batch_at(0, transactional=True))
    first.apply(batch_at(1, producer=2, transactional=True))
    first.apply(marker_at(2, producer=2))
    assert second.producers() == new_states().producers() == []
    assert second.first_unstable_offset is None


def test_clearing_forgets_everything_for_good() -> None:
    states = states_after(batch_at(0, transactional=True))
    states.take_snapshot(1)
    states.clear()
    assert (states.producers(), states.first_unstable_offset) == ([], None)
    assert states.reload(0, 1) == (0, [])


def test_a_snapshot_describes_every_producer() -> None:
    states = states_after(
        batch_at(0, 0, records=10, producer=9, transactional=True),
        marker_at(10, producer=4, epoch=2, coordinator_epoch=6, timestamp_ms=NOW_MS + 1),
    )
    assert states.producers() == [
        ProducerEntry(4, 2, -1, -1, 0, NOW_MS + 1, 6, -1),
        ProducerEntry(9, 0, 9, 9, 9, NOW_MS, -1, 0),
    ]
