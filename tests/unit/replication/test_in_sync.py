"""The replicas in sync with a leader, and the high watermark."""

from ottla.replication.in_sync import InSync, ReplicaProgress

LAG_MS = 30_000


def in_sync(*isr: int, start: int = 0, now_ms: int = 0) -> InSync:
    """Return leader 0's initial state of replicas 0, 1 and 2."""
    return InSync(0, [0, 1, 2], isr, partition_epoch=5, epoch_start_offset=start, now_ms=now_ms)


def fetched(known: InSync, broker_id: int, offset: int, end: int, now_ms: int = 0) -> None:
    known.followers[broker_id].fetched(offset, end, broker_epoch=7, now_ms=now_ms)


def test_records_of_every_in_sync_replica_are_committed() -> None:
    known = in_sync(0, 1, 2)
    fetched(known, 1, 10, 12)
    fetched(known, 2, 8, 12)
    assert known.committed_to(12, min_isr=1) == 8


def test_a_replica_that_has_not_fetched_in_this_epoch_has_nothing_for_sure() -> None:
    known = in_sync(0, 1)
    assert known.committed_to(12, min_isr=1) == -1


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    known = in_sync(0, 1)
    fetched(known, 1, 12, 12)
    assert known.committed_to(12, min_isr=2) == 12
    assert known.committed_to(12, min_isr=3) is None


def test_joining_replicas_count_before_the_response_and_leaving_replicas_until_it() -> None:
    known = in_sync(0, 1)
    fetched(known, 1, 3, 12)
    fetched(known, 2, 9, 12)
    known.propose((0, 2))
    assert known.committed_to(12, min_isr=1) == 3
    assert known.decided((0, 2), 6)
    assert known.committed_to(12, min_isr=1) == 9


def test_a_refusal_leaves_everything_as_it_was() -> None:
    known = in_sync(0, 1)
    known.propose((0, 1, 2))
    assert known.maximal == (0, 1, 2)
    known.refused()
    assert (known.maximal, known.partition_epoch) == ((0, 1), 5)


def test_old_news_is_none() -> None:
    known = in_sync(0, 1)
    assert not known.decided((0,), 5)
    assert known.isr == (0, 1)


def test_a_follower_joins_with_all_that_is_committed_and_all_from_before_this_leader() -> None:
    known = in_sync(0, start=10)
    fetched(known, 1, 8, 20)
    assert not known.may_join(1, high_watermark=5)
    fetched(known, 1, 10, 20)
    assert known.may_join(1, high_watermark=5)
    assert not known.may_join(1, high_watermark=11)


def test_no_in_sync_replica_joins_again_and_none_while_a_response_is_missing() -> None:
    known = in_sync(0, 1)
    fetched(known, 1, 10, 10)
    fetched(known, 2, 10, 10)
    assert not known.may_join(1, high_watermark=0)
    known.propose((0,))
    assert not known.may_join(2, high_watermark=0)
    assert known.fell_behind(99, 10 * LAG_MS, LAG_MS) == []


def test_a_replica_at_the_end_within_the_time_has_not_fallen_behind() -> None:
    known = in_sync(0, 1, 2)
    fetched(known, 1, 10, 10, now_ms=LAG_MS)
    assert known.fell_behind(50, 2 * LAG_MS, LAG_MS) == [2]
    assert known.fell_behind(50, 2 * LAG_MS + 1, LAG_MS) == [1, 2]


def test_a_new_leader_gives_every_replica_the_whole_time() -> None:
    known = in_sync(0, 1, now_ms=1_000_000)
    assert known.fell_behind(50, 1_000_000 + LAG_MS, LAG_MS) == []
    assert known.fell_behind(50, 1_000_001 + LAG_MS, LAG_MS) == [1]


def test_a_follower_of_a_busy_leader_keeps_up_without_ever_reaching_the_end() -> None:
    progress = ReplicaProgress(1)
    for step in range(1, 100):
        # Each fetch reaches the end offset of the previous one, and the log has grown meanwhile.
        progress.fetched(100 * (step - 1), 100 * step, broker_epoch=7, now_ms=1_000 * step)
    assert progress.is_caught_up(10_000, 100_000, 2_000)
    assert not progress.is_caught_up(10_000, 101_000, 1_000)


def test_replicas_that_come_and_go_leave_the_progress_of_the_others() -> None:
    known = in_sync(0, 1, 2)
    fetched(known, 1, 10, 10)
    known.set_replicas([0, 1, 3])
    assert known.followers[1].end_offset == 10
    assert set(known.followers) == {1, 3}


def test_a_follower_that_asks_again_and_again_for_what_it_was_sent_is_stuck() -> None:
    known = in_sync(0, 1, 2)
    for number in range(3):
        fetched(known, 1, 4, 12)
        fetched(known, 2, 4 + number, 12)
        assert known.stuck_offsets() == []
    fetched(known, 1, 4, 12)
    assert known.stuck_offsets() == [4]
    fetched(known, 1, 5, 12)
    assert known.stuck_offsets() == []


def test_a_follower_that_waits_at_the_end_is_not_stuck() -> None:
    known = in_sync(0, 1)
    for _ in range(9):
        fetched(known, 1, 12, 12)
    fetched(known, 1, 12, 13)
    assert known.stuck_offsets() == []
