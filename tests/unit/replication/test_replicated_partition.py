"""A partition with three replicas: reads from the leader, and fetches of its followers."""

from typing import TYPE_CHECKING

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.replication.follower import next_fetch
from ottla.replication.in_sync import NO_LEADER, Assignment, Follower, committed_key, log_end_key
from ottla.replication.partition import Partition
from ottla.storage.log.leader_epochs import EpochEnd
from ottla.wire.records.batch import batch_at
from tests.log_building import NOW_MS, PARTITION, batch, new_log, refusal

if TYPE_CHECKING:
    from collections.abc import Hashable

ALL = (0, 1, 2)
LAG_MS = 1_000


class Replica:
    """One replica, with its recorded notifications and ISR candidates."""

    def __init__(self, broker_id: int, **settings: object) -> None:
        self.broker_id = broker_id
        self.notified: list[Hashable] = []
        self.candidates: list[int] = []
        self.partition = Partition(
            PARTITION,
            bytes(16),
            new_log(**settings),
            self.notified.append,
            lambda _, broker_id, now_ms: self.candidates.append(broker_id),
        )

    def lead(self, epoch: int, isr: tuple[int, ...] = ALL, partition_epoch: int = 0) -> None:
        here = Assignment(self.broker_id, ALL, isr, partition_epoch)
        self.partition.lead(epoch, here)

    def write(self, count: int = 1) -> int:
        """Append a batch; return its end offset."""
        return self.partition.append_as_leader(batch(count), NOW_MS).last_offset + 1

    def fetch(self, leader: "Replica", now_ms: int = 0) -> None:
        """Follow the leader for one fetch, as the fetcher does."""
        partition = self.partition
        offset, epoch = next_fetch(partition.log)
        found = leader.partition.read_as_follower(
            Follower(self.broker_id, 7),
            offset,
            1 << 20,
            leader_epoch=partition.leader_epoch,
            last_fetched_epoch=epoch,
            asked_ms=now_ms,
        )
        if found.diverging is not None:
            partition.truncate(found.diverging)
            return
        if len(found.records):
            partition.append_as_follower(memoryview(bytearray(found.records.read())), NOW_MS)
        partition.follow_offsets(found.high_watermark, found.log_start_offset)


def cluster(epoch: int = 0, **settings: object) -> tuple[Replica, Replica, Replica]:
    """Return three replicas; the first replica leads."""
    first, second, third = (Replica(number, **settings) for number in ALL)
    first.lead(epoch)
    for follower in (second, third):
        follower.partition.follow(0, epoch)
    return first, second, third


def test_readers_see_records_of_every_in_sync_replica() -> None:
    leader, second, third = cluster()
    leader.write(3)
    assert leader.partition.high_watermark == 0
    assert len(leader.partition.read(0, 1000).records) == 0
    for follower in (second, third):
        follower.fetch(leader)
    assert leader.partition.high_watermark == 0
    second.fetch(leader)
    assert leader.partition.high_watermark == 0
    third.fetch(leader)
    assert leader.partition.high_watermark == 3
    assert len(leader.partition.read(0, 1000).records) > 0
    assert second.partition.high_watermark == 0
    second.fetch(leader)
    assert second.partition.high_watermark == 3


def test_followers_are_woken_by_an_append_and_readers_by_a_commit() -> None:
    leader, second, third = cluster()
    leader.notified.clear()
    leader.write()
    assert leader.notified == [log_end_key(1), log_end_key(2)]
    for follower in (second, third) * 2:
        follower.fetch(leader)
    assert leader.notified[2:] == [PARTITION, committed_key(1), committed_key(2)]


def test_a_replica_that_has_lost_its_place_or_its_leader_is_woken_to_learn_of_it() -> None:
    leader, _, _ = cluster()
    leader.notified.clear()
    leader.partition.lead(0, Assignment(0, (0, 1, 3), (0, 1), 1))
    assert leader.notified == [PARTITION, log_end_key(1), log_end_key(2), log_end_key(3)]
    leader.notified.clear()
    leader.partition.follow(1, 1)
    assert leader.notified == [PARTITION, log_end_key(1), log_end_key(3)]


def test_a_follower_has_the_bytes_of_its_leader() -> None:
    leader, second, _ = cluster()
    for count in (1, 5, 2):
        leader.write(count)
    second.fetch(leader)
    logs = [replica.partition.log for replica in (leader, second)]
    assert logs[0].read(0, 8, 1 << 20).read() == logs[1].read(0, 8, 1 << 20).read()
    assert logs[0].epochs.entries == logs[1].epochs.entries


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    leader, second, _ = cluster(min_insync_replicas=2)
    leader.lead(0, isr=(0,), partition_epoch=1)
    assert refusal(leader.partition.check_enough_in_sync) is ErrorCode.NOT_ENOUGH_REPLICAS
    end_offset = leader.write()
    assert leader.partition.high_watermark == 0
    leader.lead(0, isr=(0, 1), partition_epoch=2)
    leader.partition.check_enough_in_sync()
    second.fetch(leader)
    second.fetch(leader)
    assert leader.partition.high_watermark == end_offset


def test_never_more_replicas_are_needed_than_there_are() -> None:
    partition = Partition(PARTITION, bytes(16), new_log(min_insync_replicas=2), lambda _: None)
    partition.lead(0)
    partition.check_enough_in_sync()
    partition.append_as_leader(batch(), NOW_MS)
    assert partition.high_watermark == 1


def test_an_append_is_committed_or_never_visible() -> None:
    leader, second, third = cluster(min_insync_replicas=2)
    end_offset = leader.write()
    partition = leader.partition
    assert not partition.is_committed(end_offset, 0)
    for follower in (second, third) * 2:
        follower.fetch(leader)
    assert partition.is_committed(end_offset, 0)
    leader.lead(0, isr=(0,), partition_epoch=1)
    told = refusal(partition.is_committed, end_offset, 0)
    assert told is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert refusal(partition.is_committed, end_offset, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.follow(1, 1)
    assert refusal(partition.is_committed, end_offset, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_does_not_know_the_high_watermark_at_once() -> None:
    leader, second, third = cluster()
    leader.write(4)
    for follower in (second, third):
        follower.fetch(leader)
    second.lead(1)
    third.partition.follow(1, 1)
    assert not second.partition.is_high_watermark_known
    leader.partition.follow(1, 1)
    for follower in (leader, third):
        follower.fetch(second)
    assert second.partition.is_high_watermark_known
    assert second.partition.high_watermark == 4


def test_the_high_watermark_never_falls_in_an_epoch() -> None:
    leader, second, third = cluster()
    leader.write(2)
    for follower in (second, third) * 2:
        follower.fetch(leader)
    leader.lead(0, partition_epoch=1)
    assert leader.partition.high_watermark == 2


def test_a_former_leader_cuts_records_that_only_it_has() -> None:
    leader, second, third = cluster()
    leader.write(2)
    for follower in (second, third) * 2:
        follower.fetch(leader)
    leader.write(3)
    second.lead(1)
    third.partition.follow(1, 1)
    leader.partition.follow(1, 1)
    second.write(1)
    leader.fetch(second)
    assert leader.partition.log.end_offset == 2
    leader.fetch(second)
    assert leader.partition.log.epochs.entries == second.partition.log.epochs.entries
    assert leader.partition.log.end_offset == 3


def test_a_follower_that_cuts_committed_records_logs_it() -> None:
    leader, second, third = cluster()
    leader.write(2)
    for follower in (second, third) * 2:
        follower.fetch(leader)
    third.partition.follow(NO_LEADER, 1)
    assert not third.partition.truncate(EpochEnd(0, 2))
    second.fetch(leader)
    second.partition.follow(NO_LEADER, 1)
    assert second.partition.high_watermark == 2
    assert second.partition.truncate(EpochEnd(0, 1))
    assert second.partition.high_watermark <= 1


def test_an_epoch_without_records_is_dropped_where_logs_differ() -> None:
    leader, second, _ = cluster(epoch=1)
    second.partition.log.epochs.assign(2, 0)
    leader.write(1)
    leader.lead(3)
    second.partition.follow(0, 3)
    second.fetch(leader)
    assert second.partition.log.epochs.entries == ()
    second.fetch(leader)
    assert second.partition.log.end_offset == 1


def test_a_follower_begins_where_its_leader_does() -> None:
    leader, second, third = cluster()
    leader.write(5)
    for follower in (second, third) * 2:
        follower.fetch(leader)
    leader.partition.delete_records(3)
    second.fetch(leader)
    assert second.partition.log.log_start_offset == 3
    assert not second.partition.restart_at(9, NOW_MS)
    assert second.partition.high_watermark == second.partition.log.end_offset == 9


def test_only_followers_of_this_epoch_and_this_life_count() -> None:
    leader, second, _ = cluster(epoch=4)
    leader.write()
    read = leader.partition.read_as_follower

    def told(follower: Follower, epoch: int) -> ErrorCode | None:
        try:
            read(follower, 0, 100, leader_epoch=epoch, asked_ms=0)
        except ApiError as error:
            return error.code
        return None

    assert told(Follower(1, 7), 4) is None
    assert told(Follower(1, 6), 4) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told(Follower(1, 7), 3) is ErrorCode.FENCED_LEADER_EPOCH
    assert told(Follower(1, 7), 5) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert told(Follower(9, 7), 4) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert told(Follower(1, 7), -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        second.partition.read_as_follower(Follower(0, 7), 0, 100, leader_epoch=4)


def test_a_follower_answers_consumers_up_to_what_it_knows_to_be_committed() -> None:
    leader, second, third = cluster()
    leader.write()
    for follower in (second, third) * 2:
        follower.fetch(leader)
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        second.partition.read(0, 1000)
    assert len(second.partition.read(0, 1000, is_leader_needed=False).records) == 0
    second.fetch(leader)
    assert len(second.partition.read(0, 1000, is_leader_needed=False).records) > 0
    with pytest.raises(ApiError, match="UNKNOWN_LEADER_EPOCH"):
        second.partition.read(0, 1000, leader_epoch=1, is_leader_needed=False)
    with pytest.raises(ApiError, match="OFFSET_NOT_AVAILABLE"):
        second.partition.read(2, 1000, last_fetched_epoch=0, is_leader_needed=False)


def test_a_new_follower_lets_consumers_wait_before_its_first_fetch() -> None:
    leader, second, _ = cluster()
    leader.write()
    found = second.partition.read(0, 1000, is_leader_needed=False)
    assert (len(found.records), found.high_watermark) == (0, 0)


def test_a_follower_with_records_refuses_consumers_until_its_leader_has_confirmed_them() -> None:
    leader, second, third = cluster()
    leader.write()
    for follower in (second, third) * 2:
        follower.fetch(leader)
    second.partition.follow(leader.partition.leader_id, leader.partition.leader_epoch + 1)
    with pytest.raises(ApiError, match="OFFSET_NOT_AVAILABLE"):
        second.partition.read(0, 1000, is_leader_needed=False)


def test_replicas_out_of_sync_are_checked_once_per_fetch() -> None:
    leader, second, third = cluster()
    leader.lead(0, isr=(0, 1), partition_epoch=1)
    second.fetch(leader)
    third.fetch(leader)
    assert leader.candidates == [2]
    read = leader.partition.read_as_follower
    read(Follower(2, 7), 0, 100, leader_epoch=0)
    assert leader.candidates == [2]


def test_a_joining_replica_holds_the_high_watermark() -> None:
    leader, second, third = cluster()
    leader.lead(0, isr=(0, 1), partition_epoch=1)
    in_sync = leader.partition.in_sync
    assert in_sync is not None
    in_sync.await_if_near(2, 0, LAG_MS + 1, LAG_MS)
    assert not in_sync.awaited, "it has not been there for too long"
    third.fetch(leader)
    in_sync.await_if_near(2, 0, 0, LAG_MS)
    leader.write()
    for _ in range(2):
        second.fetch(leader)
    assert leader.partition.high_watermark == 0
    in_sync.await_if_near(2, 1, LAG_MS + 1, LAG_MS)
    assert leader.partition.raise_high_watermark()
    assert leader.partition.high_watermark == 1


def test_a_partition_comes_back_with_the_high_watermark_that_was_noted() -> None:
    log = new_log()
    for noted, shown in ((3, 3), (99, 5), (0, 0)):
        partition = Partition(PARTITION, bytes(16), log, lambda _: None, high_watermark=noted)
        if log.end_offset == 0:
            partition.lead(0)
            partition.append_as_leader(batch(5), NOW_MS)
            partition = Partition(PARTITION, bytes(16), log, lambda _: None, high_watermark=noted)
        partition.follow(1, 1)
        assert partition.high_watermark == shown


def test_a_lonely_leader_shows_everything_and_stops_when_it_gets_company() -> None:
    replica = Replica(0)
    replica.partition.lead(0, Assignment(0, (0,), (0,), 0))
    end_offset = replica.write(2)
    assert replica.partition.high_watermark == end_offset
    replica.partition.lead(0, Assignment(0, (0, 1), (0, 1), 1))
    replica.write(2)
    assert replica.partition.high_watermark == end_offset


def test_what_another_leader_wrote_where_the_slow_answer_is_read_from_is_not_taken() -> None:
    old, new, follower = cluster(epoch=5)
    old.write()
    for each in (new, follower):
        each.fetch(old)
    for _ in range(3):
        old.write()
    named = old.partition.log.read(1, 4, 1 << 20)  # a slice, read only when it is sent
    new.lead(6)
    for _ in range(3):
        new.write()
    old.partition.follow(1, 6)
    for _ in range(2):
        old.fetch(new)
    late = memoryview(bytearray(named.read()))
    assert batch_at(late).partition_leader_epoch == 6
    assert follower.partition.append_as_follower(late, NOW_MS) is None
    assert follower.partition.log.end_offset == 1
