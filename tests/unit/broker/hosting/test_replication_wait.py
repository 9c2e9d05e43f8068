"""acks=all: no success before the commit, and none once the broker may have lost leadership."""

import asyncio
from collections.abc import Callable

from ottla.broker.hosting.replication_wait import LEASE_IN_DOUBT, PendingReplication, committed
from ottla.concurrency.notifier import Notifier
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.in_sync import Assignment, Follower
from ottla.replication.partition import Partition
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from tests.log_building import NOW_MS, batch, new_log

TIMEOUT_MS = 1_000
EPOCH = 3


class Stage:
    """Two partitions led by this broker and followed by others, with a batch in each."""

    def __init__(self, machine: Machine) -> None:
        self.notifier = Notifier(machine.clock)
        self.deadline_ms = machine.clock.monotonic_ms() + TIMEOUT_MS
        self.partitions = [self._led(number) for number in range(2)]
        self.is_sure = True

    def _led(self, number: int) -> Partition:
        log = new_log(min_insync_replicas=2)
        partition = Partition(TopicPartition("a", number), bytes(16), log, self.notifier.notify)
        partition.lead(EPOCH, Assignment(0, (0, 1), (0, 1), 0))
        partition.append_as_leader(batch(), NOW_MS)
        return partition

    def fetch(self, number: int) -> None:
        partition = self.partitions[number]
        partition.read_as_follower(Follower(1, 1), 1, 100, leader_epoch=EPOCH, asked_ms=0)

    def shrink(self, number: int) -> None:
        self.partitions[number].lead(EPOCH, Assignment(0, (0, 1), (0,), 1))

    def doubt(self) -> None:
        self.is_sure = False
        self.notifier.notify(LEASE_IN_DOUBT)


def outcomes(*acts: Callable[[Stage], None]) -> list[ErrorCode | None]:
    """Wait for both partitions while events happen, a tenth of a second apart."""
    world = World(1)

    async def program(machine: Machine) -> list[ErrorCode | None]:
        stage = Stage(machine)
        awaited = [PendingReplication(one, 1, EPOCH) for one in stage.partitions]
        waiting = asyncio.create_task(
            committed(stage.notifier, awaited, stage.deadline_ms, lambda: stage.is_sure)
        )
        for act in acts:
            await machine.loop.elapse(0.1)
            assert not waiting.done()
            act(stage)
        return [None if error is None else error.code for error in await waiting]

    async def whole() -> list[ErrorCode | None]:
        return list(await world.machine("leader").start(program))

    return world.run(whole())


def test_the_answer_comes_when_every_partition_is_committed() -> None:
    assert outcomes(lambda s: s.fetch(1), lambda s: s.fetch(0)) == [None, None]


def test_what_is_not_committed_in_time_is_of_unknown_end() -> None:
    assert outcomes(lambda s: s.fetch(1)) == [ErrorCode.REQUEST_TIMED_OUT, None]


def test_who_is_overruled_does_not_know_either() -> None:
    told = outcomes(lambda s: s.fetch(1), lambda s: s.partitions[0].follow(1, EPOCH + 1))
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER, None]


def test_who_leads_again_in_another_epoch_does_not_know_either() -> None:
    again = Assignment(0, (0, 1), (0, 1), 1)
    told = outcomes(lambda s: s.fetch(1), lambda s: s.partitions[0].lead(EPOCH + 1, again))
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER, None]


def test_committed_and_then_too_few_is_no_promise() -> None:
    def commit_and_shrink(stage: Stage) -> None:
        stage.fetch(0)
        stage.shrink(0)

    told = outcomes(lambda s: s.fetch(1), commit_and_shrink)
    assert told == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None]


def test_who_may_be_overruled_by_now_does_not_know_either() -> None:
    told = outcomes(lambda s: s.fetch(1), lambda s: s.doubt())
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER, None]


def test_a_committed_record_is_committed_under_any_leader() -> None:
    def doubt_and_fetch(stage: Stage) -> None:
        stage.doubt()
        stage.fetch(0)

    assert outcomes(lambda s: s.fetch(1), doubt_and_fetch) == [None, None]


def test_a_broker_that_stops_does_not_keep_its_clients_waiting() -> None:
    told = outcomes(lambda stage: stage.notifier.close())
    assert told == [ErrorCode.REQUEST_TIMED_OUT] * 2
