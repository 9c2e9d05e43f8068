"""A follower truncates its log to agree with the leader's, without unnecessary loss."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.follower import (
    NextFetch,
    beginning_before,
    next_fetch,
    truncation_offset,
)
from ottla.storage.log.leader_epochs import EpochEnd
from ottla.storage.log.log import PartitionLog
from tests.log_building import NOW_MS, batch, batches_of, new_log

READ_BYTES = 1 << 20
NEW_EPOCH = 99


def log_of(*epochs: int) -> PartitionLog:
    """Return a log with one record at each offset, written in these epochs."""
    log = new_log()
    for epoch in epochs:
        log.append_as_leader(batch(value=b"%d" % epoch), epoch, NOW_MS)
    return log


def catch_up(follower: PartitionLog, leader: PartitionLog) -> int:
    """Let a follower fetch until it is caught up; return the number of truncations."""
    leader.epochs.assign(NEW_EPOCH, leader.end_offset)  # as a new leader does
    cuts = 0
    while True:
        wanted = next_fetch(follower)
        end = leader.epochs.end_offset_for(wanted.last_fetched_epoch, leader.end_offset)
        is_unknown = wanted.last_fetched_epoch < 0
        if not is_unknown and (
            end.epoch != wanted.last_fetched_epoch or end.end_offset < wanted.offset
        ):
            follower.truncate_to(truncation_offset(follower, end))
            cuts += 1
            assert cuts < 100, "it must come to an end"
            continue
        if wanted.offset == leader.end_offset:
            return cuts
        found = leader.read(wanted.offset, leader.end_offset, READ_BYTES)
        follower.append_as_follower(memoryview(bytearray(found.read())), NOW_MS)


def epochs_of(log: PartitionLog) -> list[int]:
    return [one.partition_leader_epoch for one in batches_of(log)]


def test_an_empty_log_asks_from_the_start_and_knows_no_epoch() -> None:
    assert next_fetch(new_log()) == NextFetch(0, -1)


def test_a_log_names_the_epoch_of_its_last_record() -> None:
    assert next_fetch(log_of(1, 1, 4)) == NextFetch(3, 4)


def test_the_records_that_only_the_follower_has_are_cut() -> None:
    assert truncation_offset(log_of(1, 1, 1), EpochEnd(1, 2)) == 2


def test_more_records_of_the_leader_in_an_epoch_change_nothing() -> None:
    assert truncation_offset(log_of(1, 1), EpochEnd(1, 7)) == 2


def test_an_epoch_that_the_follower_does_not_know_sends_it_back_to_the_one_before() -> None:
    assert truncation_offset(log_of(1, 1, 4), EpochEnd(3, 9)) == 2


def test_back_to_back_leaders_are_told_apart() -> None:
    """Two fast leader changes: the case of KIP-279."""
    follower, leader = log_of(0, 1, 1, 1), log_of(0, 2, 2)
    assert catch_up(follower, leader) >= 1
    assert epochs_of(follower) == [0, 2, 2]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Return two logs with a common prefix; each then has records that the other lacks."""
    shared = sorted(draw(st.lists(st.integers(0, 4), max_size=6)))
    later = draw(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=8))
    logs: tuple[list[int], list[int]] = ([*shared], [*shared])
    for epoch, (is_first, count) in enumerate(later, start=5):
        logs[0 if is_first else 1].extend([epoch] * count)
    return logs


@settings(deadline=None)
@given(histories())
def test_any_follower_ends_with_its_leaders_log(logs: tuple[list[int], list[int]]) -> None:
    follower, leader = log_of(*logs[0]), log_of(*logs[1])
    catch_up(follower, leader)
    assert epochs_of(follower) == logs[1]
    assert follower.epochs.entries == leader.epochs.entries[:-1]


@settings(deadline=None)
@given(histories())
def test_nothing_that_both_have_is_ever_cut(logs: tuple[list[int], list[int]]) -> None:
    follower, leader = log_of(*logs[0]), log_of(*logs[1])
    agreed = 0
    while agreed < min(map(len, logs)) and logs[0][agreed] == logs[1][agreed]:
        agreed += 1
    wanted = next_fetch(follower)
    if wanted.last_fetched_epoch >= 0:
        end = leader.epochs.end_offset_for(wanted.last_fetched_epoch, leader.end_offset)
        if end.epoch >= 0:
            assert truncation_offset(follower, end) >= agreed


def test_a_log_that_would_begin_inside_a_batch_begins_with_it() -> None:
    leader, follower = (new_log(segment_bytes=1 << 20) for _ in range(2))
    for _ in range(2):
        leader.append_as_leader(batch(10), 0, NOW_MS)
    leader.advance_log_start(5)
    follower.restart_at(5)
    sent = memoryview(bytearray(leader.read(5, 20, READ_BYTES).read()))
    assert beginning_before(follower, sent) == 0
    follower.restart_at(0)
    follower.append_as_follower(sent, NOW_MS)
    assert follower.end_offset == 20
    assert beginning_before(follower, sent) is None, "it has what is there"
    follower.restart_at(10)
    after = memoryview(bytearray(leader.read(10, 20, READ_BYTES).read()))
    assert beginning_before(follower, after) is None, "nor where a batch begins"
