"""Group coordination while replicas or the cluster are unavailable."""

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from ottla.broker.coordinators.consumer_offsets_topic import ConsumerOffsetsTopic
from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.coordinator_runtime import CoordinatorWorld
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.handlers.heartbeat import HeartbeatHandler
from ottla.broker.handlers.join_group import JoinGroupHandler
from ottla.broker.handlers.leave_group import LeaveGroupHandler
from ottla.broker.handlers.sync_group import SyncGroupHandler
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.notifier import Notifier
from ottla.machines.groups.classic_group import GroupState
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.replication.in_sync import Assignment
from ottla.replication.partition import Partition
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.wire.coordinator_records.codec import CONSUMER_OFFSETS, RecordCodec
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.records.compression.codecs import Compression
from tests.log_building import new_log
from tests.metadata_building import (
    CountingRandomness,
    InlineExecutor,
    add_topics,
    controller_of,
    new_topic,
    one_broker,
)

GROUP = "readers"
SESSION_MS = 10_000
COMMIT_MS = 200
CONTEXT = RequestContext("", "client", "10.0.0.1", "", 9, 0)


class Readers:
    """A coordinator over one partition with two replicas, of which the follower does not fetch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.is_sure = True
        clock, self.notifier = machine.clock, Notifier(machine.clock)
        log = new_log(segment_bytes=1 << 20, min_insync_replicas=2)
        name = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
        self.partition = Partition(name, bytes(16), log, self.notifier.notify)
        self.set_isr(0, 1, epoch=0)
        partitions = HostedPartitions()
        partitions.add(self.partition)
        controller = controller_of(one_broker())
        add_topics(controller, new_topic(CONSUMER_OFFSETS_TOPIC))
        threads = InlineExecutor()
        creation: Any = SimpleNamespace(store=SimpleNamespace(image=controller.image))
        flushing = LogFlusher(threads, clock)
        world = CoordinatorWorld(
            partitions, creation, self.notifier, clock, flushing, lambda: self.is_sure
        )
        self.coordinator = GroupCoordinator(
            world,
            GroupSettings(offsets_commit_timeout_ms=COMMIT_MS, group_initial_rebalance_delay_ms=10),
            ConsumerOffsetsTopic(1, 1 << 20),
            CoordinatorLog(RecordCodec(CONSUMER_OFFSETS), clock, threads, Compression.NONE),
            GroupMemory(128 << 20),
        )
        self.coordinator.open_if_there()

    def set_isr(self, *isr: int, epoch: int) -> None:
        """Set the ISR; writes need both replicas in it."""
        now_ms = self.machine.clock.monotonic_ms()
        self.partition.lead(1, Assignment(0, (0, 1), isr, epoch), now_ms)

    async def join(self, member_id: str = "", instance: str | None = None) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="tests",
            protocols=[JoinGroupRequestProtocol(name="range")],
        )
        return await JoinGroupHandler(self.coordinator, CountingRandomness()).handle(
            CONTEXT, request
        )

    async def sync(self, joined: JoinGroupResponse) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=GROUP, member_id=joined.member_id, generation_id=joined.generation_id
        )
        return await SyncGroupHandler(self.coordinator).handle(CONTEXT, request)

    async def leave(self, member_id: str) -> int:
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)])
        context = CONTEXT._replace(api_version=5)
        return (await LeaveGroupHandler(self.coordinator).handle(context, request)).error_code

    async def beat(self, joined: JoinGroupResponse) -> int:
        request = HeartbeatRequest(
            group_id=GROUP, member_id=joined.member_id, generation_id=joined.generation_id
        )
        return (await HeartbeatHandler(self.coordinator).handle(CONTEXT, request)).error_code

    @property
    def state(self) -> GroupState:
        (machine,) = self.coordinator.machines
        group = machine.group(GROUP)
        assert group is not None
        return group.state

    async def pass_ms(self, time_ms: int) -> None:
        await self.machine.loop.elapse(time_ms / 1000)


def tell(story: Callable[[Readers], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on one machine of a world."""
    world = World(1)

    async def program(machine: Machine) -> None:
        readers = Readers(machine)
        await readers.pass_ms(1)
        await story(readers)
        readers.coordinator.stop()

    async def whole() -> None:
        await world.machine("coordinator").start(program)

    world.run(whole())


def test_a_group_whose_last_member_left_while_replicas_were_away_is_empty_once_they_are_back() -> (
    None
):
    async def story(readers: Readers) -> None:
        first = await readers.join()
        joined = await readers.join(first.member_id)
        assert joined.error_code == ErrorCode.NONE
        readers.set_isr(0, epoch=1)
        assert await readers.leave(joined.member_id) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert readers.state is GroupState.PREPARING_REBALANCE
        await readers.pass_ms(5_000)
        readers.set_isr(0, 1, epoch=2)
        await readers.pass_ms(2_000)
        assert readers.state is GroupState.EMPTY

    tell(story)


def test_a_join_waits_for_no_replica_before_the_assignment() -> None:
    async def story(readers: Readers) -> None:
        readers.set_isr(0, epoch=1)
        first = await readers.join()
        assert (first.error_code, bool(first.member_id)) == (ErrorCode.MEMBER_ID_REQUIRED, True)
        joined = await readers.join(first.member_id)
        assert joined.error_code == ErrorCode.NONE
        assert (await readers.sync(joined)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        readers.set_isr(0, 1, epoch=2)
        assert (await readers.sync(joined)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert readers.state is GroupState.STABLE, "though the other replica does not have it"
        stranger = JoinGroupResponse(member_id="stranger", generation_id=joined.generation_id)
        assert (await readers.sync(stranger)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    tell(story)


def test_a_static_member_is_told_its_id_once_the_replicas_have_it() -> None:
    async def story(readers: Readers) -> None:
        joined = await readers.join(instance="one")
        assert joined.error_code == ErrorCode.NONE
        await readers.sync(joined)
        assert readers.state is GroupState.STABLE
        again = await readers.join(instance="one")
        assert again.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    tell(story)
