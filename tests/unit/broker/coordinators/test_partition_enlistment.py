"""A partition leader enlists partitions at the transaction's coordinator on another broker."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from ottla.broker.coordinators.partition_enlistment import PartitionEnlistment
from ottla.broker.peers.broker_clients import BrokerClients, PeersWorld
from ottla.machines.transactions.add_partitions import Enlistment
from ottla.machines.transactions.producer_ids import Producer
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import BrokerEndpoint, PartitionRecord, TopicRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC
from ottla.simulation.stories.broker_program import PORT, BrokerProgram
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.schema import Message
from tests.metadata_building import broker_record, image_of, new_topic, uuid_of

HERE, THERE = 0, 1
TIMEOUT_MS = 10_000
FIRST = TopicPartition("t", 0)


class Partitions:
    """The partitions of one broker; another broker coordinates their transactions."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world = world
        self.there = world.machine("there")
        peers_world = PeersWorld(HERE, "PLAINTEXT", machine.network, machine.clock, image, dict)
        self.peers = BrokerClients(peers_world, "transactions")
        self.channel = PartitionEnlistment(lambda _: 0, nobody_is_here, self.peers, image)

    async def ask_there(self, request: Message, version: int, answer: type[Any]) -> Any:
        return await self.peers.ask(THERE, request, version, answer, timeout_ms=TIMEOUT_MS)

    async def begin(self, transactional_id: str) -> int:
        """Initialize a producer at the coordinator; return its id."""
        find = FindCoordinatorRequest(key=transactional_id, key_type=1)
        await self.ask_there(find, 3, FindCoordinatorResponse)
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        answer = await self.ask_there(request, 5, InitProducerIdResponse)
        assert answer.error_code == 0
        return int(answer.producer_id)

    async def add(self, transactional_id: str, producer_id: int) -> dict[TopicPartition, ErrorCode]:
        return await self._enlist(transactional_id, producer_id, is_adding=True)

    async def verify(
        self, transactional_id: str, producer_id: int
    ) -> dict[TopicPartition, ErrorCode]:
        return await self._enlist(transactional_id, producer_id, is_adding=False)

    async def _enlist(
        self, transactional_id: str, producer_id: int, *, is_adding: bool
    ) -> dict[TopicPartition, ErrorCode]:
        wanted = Enlistment(transactional_id, Producer(producer_id, 0), [FIRST], is_adding)
        return dict(await self.channel.enlist(wanted))


def nobody_is_here(wanted: Enlistment) -> asyncio.Future[Mapping[TopicPartition, ErrorCode]]:
    raise AssertionError(wanted)


def image() -> ClusterImage:
    there = broker_record(THERE)
    there.end_points = [BrokerEndpoint(name="PLAINTEXT", host="there", port=PORT)]
    partition = PartitionRecord(
        partition_id=0,
        topic_id=uuid_of(1),
        replicas=[THERE],
        isr=[THERE],
        leader=THERE,
        leader_epoch=0,
        partition_epoch=0,
        directories=[uuid_of(9)],
    )
    topic = TopicRecord(name=TRANSACTION_STATE_TOPIC, topic_id=uuid_of(1))
    return image_of(broker_record(HERE), there, topic, partition)


def tell(story: Callable[[Partitions], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on a machine next to a complete broker with one topic."""
    world = World(1)

    async def program(machine: Machine) -> None:
        partitions = Partitions(world, machine)
        request = CreateTopicsRequest(topics=[new_topic("t")], timeout_ms=TIMEOUT_MS)
        await partitions.ask_there(request, 7, CreateTopicsResponse)
        await story(partitions)
        partitions.channel.stop()

    async def whole() -> None:
        world.machine("there").start(BrokerProgram())
        await world.elapse(1)
        await world.machine("here").start(program)

    world.run(whole())


def test_each_caller_gets_its_part_of_a_shared_response() -> None:
    async def story(one: Partitions) -> None:
        names = [f"id-{number}" for number in range(20)]
        ids = [await one.begin(name) for name in names]
        added = [one.add(name, ids[number]) for number, name in enumerate(names) if number % 2]
        assert await asyncio.gather(*added) == [{}] * 10
        found = await asyncio.gather(
            *[one.verify(name, ids[number]) for number, name in enumerate(names)]
        )
        unknown = {FIRST: ErrorCode.TRANSACTION_ABORTABLE}
        assert found == [unknown, {}] * 10

    tell(story)


def test_a_caller_without_a_response_gets_an_error_and_the_next_caller_a_response() -> None:
    async def story(one: Partitions) -> None:
        producer_id = await one.begin("copier")
        one.there.kill()
        with pytest.raises(ApiError, match="NETWORK_EXCEPTION"):
            await one.add("copier", producer_id)
        one.there.start(BrokerProgram())
        await one.world.elapse(1)
        assert await one.add("copier", producer_id) == {}

    tell(story)


def test_no_more_wait_for_a_coordinator_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.coordinators.partition_enlistment.WAITING_MAX", 2)

    async def story(one: Partitions) -> None:
        producer_id = await one.begin("copier")
        one.there.pause()
        asking = [asyncio.create_task(one.add("copier", producer_id)) for _ in range(4)]
        await one.world.elapse(0.1)
        one.there.resume()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert found[:2] == [{}, {}]
        assert all(isinstance(each, ApiError) for each in found[2:4])

    tell(story)
