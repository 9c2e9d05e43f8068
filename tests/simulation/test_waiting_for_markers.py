"""A producer's next request before the markers of its last transaction are written: it waits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ottla.broker.coordinators.transaction_coordinator import ENDING_MS_MAX
from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.machines.transactions.producer_ids import Producer
from ottla.model.error_code import ErrorCode
from ottla.simulation.stories.broker_program import PORT
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.machine import Machine
from ottla.wire.apis import API_BY_KEY
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.schema import Message
from tests.simulation.zookeeper_cluster import BROKERS, ZooKeeperCluster

ID = "copier"
GROUP_KEY, TRANSACTION_KEY = 0, 1
PREFERRED = 0
SETTINGS = {
    # One replica of the transaction log: brokers out of reach of markers are not needed for it.
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
ENDING_SECONDS = ENDING_MS_MAX / 1000
EARLIER_SECONDS = 0.2
FOLLOWED_SECONDS_MAX = 5.0
"""The time within which all replicas follow a new leader."""
ANSWERS = {api.request: api.response for api in API_BY_KEY.values()}


@dataclass
class Story:
    """A producer at its coordinator, and the leader of a partition, which is another broker."""

    cluster: ZooKeeperCluster
    coordinator: str
    leader: str
    partition: int
    producer: Producer

    @classmethod
    async def begin(cls, cluster: ZooKeeperCluster) -> "Story":
        """Open the second transaction with one partition: there are connections from the first."""
        await cluster.create_topic()
        await coordinator_of(cluster, GROUP_KEY)  # creates its topic
        coordinator = await coordinator_of(cluster, TRANSACTION_KEY)
        leaders = [BROKERS[one.leader] for one in cluster.partitions(coordinator)]
        partition, leader = next(one for one in enumerate(leaders) if one[1] != coordinator)
        story = cls(cluster, coordinator, leader, partition, Producer(-1, -1))
        while (begun := await story.ask(4, story.init())).error_code:
            await cluster.world.elapse(0.1)
        story.producer = Producer(begun.producer_id, begun.producer_epoch)
        for request in (story.add_partition(), story.commit(), story.add_partition()):
            assert code_of(await story.ask(3, request)) is ErrorCode.NONE
        return story

    async def ask(self, version: int, request: Message) -> Any:
        return await ask(self.cluster, self.coordinator, version, request)

    async def end(self) -> None:
        """Commit; the markers do not reach the leader."""
        self.cluster.world.network.block(self.coordinator, self.leader)
        assert code_of(await self.ask(3, self.commit())) is ErrorCode.NONE

    def let_markers_through(self) -> None:
        self.cluster.world.network.unblock(self.coordinator, self.leader)

    def is_led(self) -> bool:
        """Return whether the leader leads, as far as the coordinator knows."""
        known = self.cluster.partitions(self.coordinator)[self.partition]
        return BROKERS[known.leader] == self.leader

    async def elect(self) -> None:
        """Let the preferred replicas lead."""
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
        controller = self.cluster.controller()
        assert controller is not None
        await ask(self.cluster, controller, 2, request)

    def _who(self) -> dict[str, Any]:
        producer_id, epoch = self.producer
        return {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": epoch}

    def commit(self) -> Message:
        return EndTxnRequest(committed=True, **self._who())

    # -- the producer's next requests -----------------------------------------------------------

    def init(self) -> Message:
        return InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)

    def add_offsets(self) -> Message:
        return AddOffsetsToTxnRequest(group_id=ID, **self._who())

    def add_partition(self) -> Message:
        topic = AddPartitionsToTxnTopic(name=TOPIC, partitions=[self.partition])
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[topic],
        )


async def ask(cluster: ZooKeeperCluster, broker: str, version: int, request: Message) -> Any:
    async def program(machine: Machine) -> Any:
        connection = await connect_to_broker(
            machine.network, broker, PORT, client_id="producer", timeout_ms=5_000
        )
        answer = ANSWERS[type(request)]
        response = await connection.ask(request, answer, version_max=version, timeout_ms=60_000)
        connection.close()
        return response

    return await cluster.machine("producer").start(program)


async def coordinator_of(cluster: ZooKeeperCluster, key_type: int) -> str:
    request = FindCoordinatorRequest(key=ID, key_type=key_type)
    while (found := await ask(cluster, BROKERS[0], 3, request)).error_code:
        await cluster.world.elapse(0.1)
    return BROKERS[found.node_id]


def code_of(answer: Any) -> ErrorCode:
    if hasattr(answer, "results_by_topic_v3_and_below"):
        (topic,) = answer.results_by_topic_v3_and_below
        return ErrorCode(topic.results_by_partition[0].partition_error_code)
    return ErrorCode(answer.error_code)


REQUESTS = pytest.mark.parametrize(
    "make", [Story.init, Story.add_offsets, Story.add_partition], ids=lambda make: make.__name__
)


@REQUESTS
def test_it_is_answered_as_soon_as_the_markers_are_written(
    make: Callable[[Story], Message],
) -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        told = await Story.begin(cluster)
        await told.end()
        asking = asyncio.create_task(told.ask(3, make(told)))
        await cluster.world.elapse(EARLIER_SECONDS)
        assert not asking.done()
        told.let_markers_through()
        await cluster.world.elapse(EARLIER_SECONDS)
        assert asking.done(), "it does not wait for the whole time"
        assert code_of(asking.result()) is ErrorCode.NONE

    ZooKeeperCluster(seed=1, settings=SETTINGS).tell(story)


@REQUESTS
def test_it_is_told_to_come_again_if_that_takes_long(make: Callable[[Story], Message]) -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        told = await Story.begin(cluster)
        await told.end()
        began = cluster.world.loop.time()
        refused = await told.ask(3, make(told))
        assert code_of(refused) is ErrorCode.CONCURRENT_TRANSACTIONS
        waited = cluster.world.loop.time() - began
        assert ENDING_SECONDS <= waited < ENDING_SECONDS + EARLIER_SECONDS
        told.let_markers_through()

    ZooKeeperCluster(seed=1, settings=SETTINGS).tell(story)


def test_markers_do_not_wait_for_an_answer_of_an_earlier_life() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        told = await Story.begin(cluster)
        leader, network = told.leader, cluster.world.network
        network.block(leader, told.coordinator)
        assert code_of(await told.ask(3, told.commit())) is ErrorCode.NONE
        await cluster.world.elapse(EARLIER_SECONDS)
        cluster.machine(leader).cut_power()
        network.unblock(leader, told.coordinator)
        await cluster.until(lambda: not told.is_led())
        cluster.start(leader)
        await cluster.until(cluster.is_whole)
        await told.elect()
        await cluster.until(told.is_led)
        began = cluster.world.loop.time()
        for request in (told.add_partition(), told.commit(), told.init()):
            while code_of(await told.ask(3, request)) is ErrorCode.CONCURRENT_TRANSACTIONS:
                await cluster.world.elapse(EARLIER_SECONDS)
        assert cluster.world.loop.time() - began < FOLLOWED_SECONDS_MAX

    ZooKeeperCluster(seed=1, settings=SETTINGS).tell(story)


def test_a_successor_waits_for_the_end_of_the_transaction_that_it_aborts() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        told = await Story.begin(cluster)
        successor = await told.ask(4, told.init())
        assert code_of(successor) is ErrorCode.NONE
        assert successor.producer_epoch > told.producer.epoch + 1  # one epoch fenced the other

    ZooKeeperCluster(seed=1, settings=SETTINGS).tell(story)
