"""The progress of a partition when its records end in any order."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.consumer.state.partition_progress import PartitionProgress
from ottla.clients.consumer.state.subscription import Position
from ottla.wire.records.consumer_record import ConsumerRecord


def record(offset: int, leader_epoch: int = 0) -> ConsumerRecord:
    return ConsumerRecord("letters", 0, offset, 0, 0, None, None, (), leader_epoch)


def progress_of(*offsets: int) -> PartitionProgress:
    progress = PartitionProgress()
    for offset in offsets:
        progress.take(record(offset), now=float(offset))
    return progress


def test_what_is_done_after_a_gap_counts_once_the_gap_is_closed() -> None:
    progress = progress_of(5, 6, 9)
    progress.finish(6)
    progress.finish(9)
    assert progress.first == Position(5)
    assert (progress.unfinished_count, progress.span, progress.oldest_at) == (1, 3, 5.0)
    progress.finish(5)
    assert (progress.first, progress.oldest_at) == (None, None)
    assert (progress.unfinished_count, progress.span) == (0, 0)


def test_offsets_that_no_record_has_are_no_gap() -> None:
    progress = progress_of(5, 9, 40)
    progress.finish(5)
    progress.finish(9)
    assert progress.first == Position(40, 0)


def test_the_epoch_is_that_of_the_last_record_before() -> None:
    progress = PartitionProgress()
    for offset, epoch in ((1, 3), (2, 4), (3, 7)):
        progress.take(record(offset, epoch), now=0)
    progress.finish(1)
    assert progress.first == Position(2, 3)
    progress.finish(2)
    assert progress.first == Position(3, 4)


@given(
    offsets=st.lists(st.integers(0, 1000), min_size=1, max_size=60, unique=True).map(sorted),
    data=st.data(),
)
def test_nothing_unfinished_is_ever_passed(offsets: list[int], data: st.DataObject) -> None:
    progress = PartitionProgress()
    waiting, unfinished = list(offsets), set[int]()
    while waiting or unfinished:
        if waiting and (not unfinished or data.draw(st.booleans())):
            offset = waiting.pop(0)
            progress.take(record(offset), now=0)
            unfinished.add(offset)
        else:
            offset = data.draw(st.sampled_from(sorted(unfinished)))
            progress.finish(offset)
            unfinished.remove(offset)
        first = None if progress.first is None else progress.first.offset
        assert first == min(unfinished, default=None)
        assert progress.unfinished_count == len(unfinished)
