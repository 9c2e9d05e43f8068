"""The transaction state that compaction tracks on its way through a log."""

import pytest

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.compaction.batch_cleaner import emptied
from ottla.storage.compaction.cleaned_transactions import (
    SeenMarker,
    TransactionTracker,
    read_aborted,
)
from ottla.storage.indexes.aborted_index import AbortedIndex, AbortedTransaction
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import ControlType, end_txn_marker

PATH = "/00000000000000000000.txnindex"
NEEDLESS = SeenMarker(is_needless=True)
NEEDED = SeenMarker(is_needless=False)


def data(offset: int, producer_id: int = 1, *, is_transactional: bool = True) -> RecordBatch:
    builder = BatchBuilder(
        base_offset=offset, producer_id=producer_id, is_transactional=is_transactional
    )
    builder.append(0, b"key", b"value")
    return RecordBatch(memoryview(builder.build()))


def marker(
    offset: int, kind: ControlType = ControlType.COMMIT, producer_id: int = 1
) -> RecordBatch:
    batch = RecordBatch(memoryview(end_txn_marker(kind, 0, producer_id, 0, 0)))
    batch.restamp(offset, 0)
    return batch


def test_a_marker_is_needed_as_long_as_a_batch_of_its_transaction_is_there() -> None:
    tracker = TransactionTracker([])
    assert not tracker.see_batch(data(0))
    assert tracker.see_marker(marker(1, producer_id=2)) == NEEDLESS
    assert tracker.see_marker(marker(2)) == NEEDED
    assert tracker.see_marker(marker(3)) == NEEDLESS


def test_a_batch_without_records_keeps_its_marker_or_its_transaction_would_never_end() -> None:
    tracker = TransactionTracker([])
    tracker.see_batch(emptied(data(0)))
    assert tracker.see_marker(marker(1)) == NEEDED


def test_only_what_is_between_its_first_record_and_its_marker_is_aborted() -> None:
    aborted = AbortedTransaction(1, 4, 8, 9)
    tracker = TransactionTracker([aborted])
    assert not tracker.see_batch(data(2))
    assert tracker.see_marker(marker(3)) == NEEDED
    assert tracker.see_batch(data(4))
    assert not tracker.see_batch(data(5, producer_id=2))
    assert not tracker.see_batch(data(6, is_transactional=False))
    assert tracker.see_batch(data(7))
    assert tracker.see_marker(marker(8, ControlType.ABORT)) == SeenMarker(
        is_needless=False, aborted=aborted
    )
    assert not tracker.see_batch(data(9))


def test_an_aborted_transaction_of_which_nothing_is_left_is_not_noted_again() -> None:
    tracker = TransactionTracker([AbortedTransaction(1, 4, 8, 9)])
    assert tracker.see_marker(marker(8, ControlType.ABORT)) == NEEDLESS


def test_a_producer_may_abort_again_and_again() -> None:
    first, second = AbortedTransaction(1, 0, 1, 2), AbortedTransaction(1, 2, 5, 6)
    tracker = TransactionTracker([second, first])
    assert tracker.see_batch(data(0))
    assert tracker.see_marker(marker(1, ControlType.ABORT)).aborted == first
    assert tracker.see_batch(data(2))
    assert tracker.see_marker(marker(5, ControlType.ABORT)).aborted == second


def test_a_transaction_whose_marker_is_nowhere_ends_there_all_the_same() -> None:
    tracker = TransactionTracker([AbortedTransaction(1, 0, 3, 4)])
    assert tracker.see_batch(data(0))
    assert not tracker.see_batch(data(4))


def test_a_control_batch_that_is_no_marker_is_never_needless() -> None:
    builder = BatchBuilder(base_offset=5, is_control=True)
    builder.append(0, b"\x00\x00\x00\x02", b"the leader has changed")
    tracker = TransactionTracker([])
    assert tracker.see_marker(RecordBatch(memoryview(builder.build()))) == NEEDED
    builder = BatchBuilder(base_offset=6, is_control=True)
    builder.append(0, b"?", b"")
    assert tracker.see_marker(RecordBatch(memoryview(builder.build()))) == NEEDED


def test_a_control_batch_that_was_emptied_is_needless() -> None:
    raw = bytearray(marker(3).raw[:61])
    raw[8:12] = (49).to_bytes(4, "big")
    raw[57:61] = bytes(4)
    assert TransactionTracker([]).see_marker(RecordBatch(memoryview(raw))) == NEEDLESS


def test_an_index_is_read_without_being_mapped() -> None:
    disk = SimulatedDisk()
    assert read_aborted(disk, PATH) == []
    index = AbortedIndex(disk, PATH, 0)
    noted = [AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 1, 5, 6)]
    for transaction in noted:
        index.append(transaction)
    assert read_aborted(disk, PATH) == noted


@pytest.mark.parametrize("damage", ["cut off", "another version"])
def test_an_index_that_is_damaged_is_not_done_without(damage: str) -> None:
    disk = SimulatedDisk()
    AbortedIndex(disk, PATH, 0).append(AbortedTransaction(1, 0, 3, 4))
    if damage == "cut off":
        disk.open_file(PATH).truncate(33)
    else:
        disk.corrupt(PATH, 1, b"\x01")
    with pytest.raises(CorruptIndexError):
        read_aborted(disk, PATH)
