"""Responses of three replicating brokers, and the brokers' background work."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.data.preferred_replicas import RACK_AWARE
from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.simulation.stories.broker_program import PORT
from ottla.simulation.world.machine import Machine
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.log_building import NOW_MS, batch
from tests.simulation.replicated_story import BROKERS, Story

TOPIC_ID = bytes(range(16))
NAME = TopicPartition("orders", 0)
TIMEOUT_MS = 5_000
CLIENT = "client"


class Stage:
    """Three brokers with one topic on all of them, and a client."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.world = story.world

    @property
    def leader(self) -> str:
        state = self.story.sky.image.topics[NAME.topic].partitions[0]
        return f"b{state.leader}"

    @property
    def followers(self) -> list[str]:
        return [name for name in BROKERS if name != self.leader]

    @property
    def isr(self) -> set[int]:
        return set(self.story.sky.image.topics[NAME.topic].partitions[0].isr)

    def partition(self, name: str) -> Partition:
        broker = self.story.rules.running(name)
        assert broker is not None
        return broker.partitions.get(NAME)

    def cut_off(self, name: str) -> None:
        """Connect a broker to the metadata only, and to no other broker."""
        for other in BROKERS.keys() - {name}:
            self.world.network.block(name, other)
            self.world.network.block(other, name)

    async def ask(self, name: str, request: Any, version: int, answer: type[Any]) -> Any:
        async def client(machine: Machine) -> Any:
            connection = await connect_to_broker(
                machine.network, name, PORT, client_id=CLIENT, timeout_ms=TIMEOUT_MS
            )
            response = await connection.ask(
                request, answer, version_max=version, timeout_ms=TIMEOUT_MS
            )
            connection.close()
            return response

        return await self.world.machine(CLIENT).start(client)

    async def produce(
        self, name: str, timeout_ms: int = 1_000, index: int = 0, to: str = NAME.topic
    ) -> ErrorCode:
        data = PartitionProduceData(index=index, records=batch())
        topic = TopicProduceData(name=to, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])
        response = await self.ask(name, request, 9, ProduceResponse)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def fetch(self, name: str, rack: str = "") -> PartitionData:
        topic = FetchTopic(topic=NAME.topic, partitions=[FetchPartition(partition_max_bytes=9_999)])
        request = FetchRequest(
            max_wait_ms=0, max_bytes=9_999, topics=[topic], rack_id=rack, session_epoch=-1
        )
        response = await self.ask(name, request, 12, FetchResponse)
        found: PartitionData = response.responses[0].partitions[0]
        return found

    async def coordinator(self, name: str) -> FindCoordinatorResponse:
        request = FindCoordinatorRequest(key="readers", key_type=0)
        found: FindCoordinatorResponse = await self.ask(name, request, 3, FindCoordinatorResponse)
        return found

    async def latest(self, name: str) -> ErrorCode:
        topic = ListOffsetsTopic(name=NAME.topic, partitions=[ListOffsetsPartition(timestamp=-1)])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = await self.ask(name, request, 9, ListOffsetsResponse)
        return ErrorCode(response.topics[0].partitions[0].error_code)


def tell(act: Callable[[Stage], Coroutine[Any, Any, None]], partitions: int = 1) -> None:
    """Run an act with three ready brokers."""
    story = Story(1, is_flushed=False, min_isr=2, keeps_lines=False)

    async def whole() -> None:
        asyncio.get_running_loop().create_task(story.sky.look_after_brokers())
        for name, program in story.programs.items():
            story.world.machine(name).start(program)
        await story.world.elapse(1)
        topic = CreatableTopic(name=NAME.topic, num_partitions=partitions, replication_factor=3)
        controller = story.sky.controller
        story.sky.commit(controller.create_topics([topic], topic_ids=[TOPIC_ID], start=0))
        await story.world.elapse(1)
        await act(Stage(story))

    story.world.run(whole())


def test_acks_all_is_answered_when_the_followers_have_it() -> None:
    async def act(stage: Stage) -> None:
        assert await stage.produce(stage.leader) is ErrorCode.NONE
        assert {stage.partition(name).log.end_offset for name in BROKERS} == {1}
        assert await stage.produce(stage.followers[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    tell(act)


def test_the_first_record_of_a_topic_does_not_wait_for_fetches_of_other_topics() -> None:
    async def act(stage: Stage) -> None:
        sky, loop, took_seconds = stage.story.sky, stage.world.loop, []
        for number in range(1, 7):
            name = f"new-{number}"
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
            topic_id = bytes([number]) * 16
            sky.commit(sky.controller.create_topics([topic], topic_ids=[topic_id], start=0))
            await stage.world.elapse(0.1)  # all brokers have the change now
            began = loop.time()
            leader = f"b{sky.image.topics[name].partitions[0].leader}"
            assert await stage.produce(leader, to=name) is ErrorCode.NONE
            took_seconds.append(loop.time() - began)
        # A leader without new records responds after replica.fetch.wait.max.ms; half is left.
        assert max(took_seconds) < 0.05

    tell(act)


def test_what_followers_do_not_take_in_time_is_of_unknown_end() -> None:
    async def act(stage: Stage) -> None:
        stage.cut_off(stage.leader)
        assert await stage.produce(stage.leader, 200) is ErrorCode.REQUEST_TIMED_OUT
        assert len((await stage.fetch(stage.leader)).records or b"") == 0

    tell(act)


def test_with_too_few_in_sync_nothing_is_begun() -> None:
    async def act(stage: Stage) -> None:
        await stage.produce(stage.leader)
        leader = stage.leader
        stage.cut_off(leader)
        assert await stage.produce(leader, 4_000) is ErrorCode.REQUEST_TIMED_OUT
        assert stage.isr == {BROKERS[leader]}
        assert await stage.produce(leader) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert stage.partition(leader).log.end_offset == 2

    tell(act)


def test_a_new_leader_tells_no_end_before_it_knows_what_is_committed() -> None:
    async def act(stage: Stage) -> None:
        successor = stage.followers[0]
        while stage.partition(successor).log.end_offset == 0:
            stage.partition(stage.leader).append_as_leader(batch(), NOW_MS)
            await stage.world.elapse(0.01)
        assert stage.partition(successor).high_watermark == 0
        stage.cut_off(successor)
        stage.world.machine(stage.leader).kill()
        while not stage.partition(successor).in_sync:
            await stage.world.elapse(0.1)
        assert await stage.latest(successor) is ErrorCode.OFFSET_NOT_AVAILABLE
        other = next(name for name in stage.followers if stage.world.machines[name].is_running)
        stage.world.network.unblock(successor, other)
        stage.world.network.unblock(other, successor)
        await stage.world.elapse(3)
        assert await stage.latest(successor) is ErrorCode.NONE

    tell(act)


def test_a_follower_behind_the_log_start_begins_at_the_log_start_of_its_leader() -> None:
    async def act(stage: Stage) -> None:
        assert await stage.produce(stage.leader) is ErrorCode.NONE
        late, program = stage.followers[0], stage.story.programs[stage.followers[0]]
        stage.world.machine(late).kill()
        await stage.world.elapse(4)
        for _ in range(3):
            assert await stage.produce(stage.leader) is ErrorCode.NONE
        stage.partition(stage.leader).delete_records(3)
        stage.world.machine(late).start(program)
        await stage.world.elapse(3)
        log = stage.partition(late).log
        assert (log.log_start_offset, log.end_offset) == (3, 4)
        assert stage.isr == set(BROKERS.values())

    tell(act)


def test_consumers_are_sent_to_the_replica_of_their_rack_and_served_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"replica.selector.class": RACK_AWARE}
    monkeypatch.setattr("tests.simulation.replicated_story.SETTINGS", settings)
    monkeypatch.setattr(
        "tests.simulation.replicated_story.RACKS", {"b0": "x", "b1": "y", "b2": "z"}
    )

    async def act(stage: Stage) -> None:
        await stage.produce(stage.leader)
        await stage.world.elapse(0.05)  # a follower that serves readers is notified at once
        rack_by_broker = {"b0": "x", "b1": "y", "b2": "z"}
        near = stage.followers[0]
        sent = await stage.fetch(stage.leader, rack_by_broker[near])
        assert sent.preferred_read_replica == BROKERS[near]
        assert len(sent.records or b"") == 0
        assert len((await stage.fetch(near, rack_by_broker[near])).records or b"") > 0
        stayed = await stage.fetch(stage.leader, rack_by_broker[stage.leader])
        assert stayed.preferred_read_replica == -1
        assert len(stayed.records or b"") > 0

    tell(act)


def test_groups_wait_for_enough_brokers_and_are_found_by_every_client() -> None:
    async def act(stage: Stage) -> None:
        asked = stage.leader
        late, program = stage.followers[0], stage.story.programs[stage.followers[0]]
        stage.world.machine(late).kill()
        await stage.world.elapse(3)
        assert (await stage.coordinator(asked)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        stage.world.machine(late).start(program)
        await stage.world.elapse(1)
        await stage.coordinator(asked)
        await stage.world.elapse(1)
        found = {(await stage.coordinator(name)).node_id for name in BROKERS}
        assert len(found) == 1
        assert found <= set(BROKERS.values())

    tell(act)


def test_a_follower_learns_the_high_watermark_despite_other_traffic() -> None:
    async def act(stage: Stage) -> None:
        partitions = stage.story.sky.image.topics[NAME.topic].partitions
        other = next(at for at in range(1, 9) if partitions[at].leader == partitions[0].leader)
        for _ in range(20):
            await stage.produce(stage.leader)
            await stage.world.elapse(0.02)
            await stage.produce(stage.leader, index=other)
            await stage.world.elapse(1)
            known = {name: stage.partition(name).high_watermark for name in BROKERS}
            assert len(set(known.values())) == 1, known

    tell(act, partitions=9)


def test_idle_partitions_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[TopicPartition] = []
    read = Partition.read_as_follower

    def counted(self: Partition, *args: Any, **kwargs: Any) -> Any:
        looked_at.append(self.name)
        return read(self, *args, **kwargs)

    async def act(stage: Stage) -> None:
        await stage.world.elapse(2)
        monkeypatch.setattr(Partition, "read_as_follower", counted)
        await stage.world.elapse(5)
        assert looked_at == []
        await stage.produce(stage.leader)
        await stage.world.elapse(1)
        assert set(looked_at) == {NAME}

    tell(act, partitions=40)
