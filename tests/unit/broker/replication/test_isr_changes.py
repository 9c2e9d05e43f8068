"""Leaders propose ISR changes, and apply none before the controller has confirmed it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.broker.replication.isr_changes import IsrChanges
from ottla.concurrency.notifier import Notifier
from ottla.machines.controller.machine import Controller
from ottla.model.identifiers import TopicPartition
from ottla.replication.in_sync import Assignment, Follower, InSync
from ottla.replication.partition import Partition
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tests.log_building import NOW_MS, batch, new_log
from tests.metadata_building import run
from tests.unit.machines.controller import cluster

LAG_MS = 1_000
LEADER = 0


class Channel:
    """A lossy path to a real controller machine."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.requests: list[AlterPartitionRequest] = []
        self.losses: list[str] = []
        """For each of the next requests, the lost message: "question" or "answer"."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        lost = self.losses.pop(0) if self.losses else ""
        if lost == "question":
            raise ConnectionError("nobody is there")
        response = run(self.controller, self.controller.alter_partition(request))
        if lost == "answer":
            raise TimeoutError("nobody answers")
        return response


class Leader:
    """One broker that leads a partition of three replicas."""

    def __init__(self, machine: Machine, **configs: str) -> None:
        self.machine = machine
        self.controller = cluster.cluster(0, 1, 2, **configs)
        self.channel = Channel(self.controller)
        self.changes = IsrChanges(
            LEADER,
            lambda: self.controller.image.brokers[LEADER].broker_epoch,
            lambda: self.controller.image,
            self.channel.alter_partition,
            Notifier(machine.clock),
            machine.clock,
            LAG_MS,
        )
        self.partition = Partition(
            TopicPartition("a", 0),
            cluster.TOPIC_ID,
            new_log(),
            lambda _: None,
            self.changes.on_candidate,
        )
        self.follow_image()

    @property
    def in_sync(self) -> InSync:
        assert self.partition.in_sync is not None
        return self.partition.in_sync

    def follow_image(self) -> None:
        state = cluster.partition(self.controller)
        here = Assignment(LEADER, state.replicas, state.isr, state.partition_epoch)
        self.partition.lead(state.leader_epoch, here, self.machine.clock.monotonic_ms())

    def fetched_by(self, broker_id: int, offset: int | None = None) -> None:
        epoch = self.controller.image.brokers[broker_id].broker_epoch
        self.partition.read_as_follower(
            Follower(broker_id, epoch),
            self.partition.log.end_offset if offset is None else offset,
            1000,
            leader_epoch=self.partition.leader_epoch,
            asked_ms=self.machine.clock.monotonic_ms(),
        )

    async def pass_ms(self, time_ms: int) -> None:
        await self.machine.loop.elapse(time_ms / 1000)


def tell(story: Callable[[Leader], Coroutine[Any, Any, None]], **configs: str) -> None:
    """Run a scenario on one machine of a world."""
    world = World(1)

    async def program(machine: Machine) -> None:
        leader = Leader(machine, **configs)
        await story(leader)
        await leader.changes.stop()

    async def whole() -> None:
        await world.machine("leader").start(program)

    world.run(whole())


async def let_fall_behind(leader: Leader, *members: int) -> None:
    """Let these followers lag too far behind, while the others fetch."""
    leader.partition.append_as_leader(batch(), NOW_MS)
    await leader.pass_ms(LAG_MS + 100)
    for one in {1, 2} - set(members):
        leader.fetched_by(one)
    leader.changes.check(leader.partition)


def test_a_replica_that_does_not_fetch_leaves_the_isr() -> None:
    async def story(leader: Leader) -> None:
        await let_fall_behind(leader, 2)
        assert leader.in_sync.maximal == (0, 1, 2)
        assert leader.partition.high_watermark == 0
        await leader.pass_ms(10)
        assert leader.in_sync.isr == cluster.partition(leader.controller).isr == (0, 1)
        assert leader.partition.high_watermark == 1
        assert (leader.changes.shrink_count, leader.changes.expand_count) == (1, 0)

    tell(story)


def test_a_leader_with_a_failed_disk_removes_no_replica() -> None:
    async def story(leader: Leader) -> None:
        leader.partition.append_as_leader(batch(), NOW_MS)
        leader.partition.log.take_offline(OSError("gone"))
        await leader.pass_ms(LAG_MS + 100)
        leader.changes.check(leader.partition)
        await leader.pass_ms(10)
        assert leader.channel.requests == []
        assert leader.in_sync.isr == (0, 1, 2)

    tell(story)


def test_a_replica_that_has_caught_up_joins_the_isr() -> None:
    async def story(leader: Leader) -> None:
        await let_fall_behind(leader, 2)
        await leader.pass_ms(10)
        leader.fetched_by(2, 0)
        assert leader.in_sync.proposed is None, "it does not have everything yet"
        leader.fetched_by(2)
        assert leader.in_sync.proposed == (0, 1, 2)
        await leader.pass_ms(10)
        assert leader.in_sync.isr == (0, 1, 2)
        assert (leader.changes.shrink_count, leader.changes.expand_count) == (1, 1)

    tell(story)


def test_only_the_life_that_is_registered_may_come_back() -> None:
    async def story(leader: Leader) -> None:
        await let_fall_behind(leader, 2)
        await leader.pass_ms(10)
        run(leader.controller, leader.controller.fence_broker(2))
        leader.fetched_by(2)
        assert leader.in_sync.proposed is None
        assert not leader.in_sync.awaited

    tell(story)


def test_no_change_waits_for_a_broker_that_was_fenced_again() -> None:
    async def story(leader: Leader) -> None:
        await let_fall_behind(leader, 2)
        await leader.pass_ms(10)
        leader.in_sync.propose((0, 1))  # a pending change blocks another proposal
        leader.fetched_by(2)
        run(leader.controller, leader.controller.fence_broker(2))
        leader.partition.append_as_leader(batch(), NOW_MS)
        leader.fetched_by(1)
        assert (leader.in_sync.awaited, leader.partition.high_watermark) == ({2}, 1)
        leader.changes.check(leader.partition)
        assert (leader.in_sync.awaited, leader.partition.high_watermark) == (set(), 2)

    tell(story)


def test_a_question_without_an_answer_is_asked_until_there_is_one() -> None:
    async def story(leader: Leader) -> None:
        leader.channel.losses = ["question", "question"]
        await let_fall_behind(leader, 2)
        await leader.pass_ms(150)
        assert leader.in_sync.maximal == (0, 1, 2)
        assert leader.partition.high_watermark == 0
        await leader.pass_ms(500)
        assert leader.in_sync.isr == (0, 1)
        assert len(leader.channel.requests) == 3

    tell(story)


def test_a_lost_answer_leaves_both_in_force_until_the_image_tells() -> None:
    async def story(leader: Leader) -> None:
        leader.channel.losses = ["answer"]
        await let_fall_behind(leader, 2)
        await leader.pass_ms(1_000)
        assert cluster.partition(leader.controller).isr == (0, 1)
        assert leader.in_sync.maximal == (0, 1, 2), "asked again it is only told that it is late"
        leader.follow_image()
        assert leader.in_sync.maximal == (0, 1)
        assert leader.partition.high_watermark == 1

    tell(story)


def test_a_refusal_is_believed_if_nothing_else_can_be_on_its_way() -> None:
    async def story(leader: Leader) -> None:
        await let_fall_behind(leader, 2)
        await leader.pass_ms(10)
        leader.fetched_by(2)
        run(leader.controller, leader.controller.fence_broker(2))
        await leader.pass_ms(10)
        assert (leader.in_sync.proposed, leader.in_sync.isr) == (None, (0, 1))
        assert not leader.in_sync.awaited

    tell(story)


def test_after_a_lost_answer_a_refusal_is_not_believed_at_once() -> None:
    async def story(leader: Leader) -> None:
        await let_fall_behind(leader, 2)
        await leader.pass_ms(10)
        leader.channel.losses = ["question"]
        leader.fetched_by(2)
        await leader.pass_ms(1)
        run(leader.controller, leader.controller.fence_broker(2))
        await leader.pass_ms(LAG_MS // 2)
        assert leader.in_sync.maximal == (0, 1, 2)
        await leader.pass_ms(LAG_MS)
        assert leader.in_sync.maximal == (0, 1)

    tell(story)


def test_all_that_is_to_be_asked_is_asked_at_once() -> None:
    async def story(leader: Leader) -> None:
        await let_fall_behind(leader, 1, 2)
        await leader.pass_ms(10)
        assert len(leader.channel.requests) == 1
        assert leader.in_sync.isr == (0,)
        await asyncio.wait([asyncio.create_task(leader.changes.stop())])

    tell(story)
