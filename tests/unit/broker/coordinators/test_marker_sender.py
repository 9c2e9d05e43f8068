"""Markers go to the current partition leaders, with retries until each is written once."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ottla.broker.coordinators import marker_sender
from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.peers.broker_clients import BrokerClients, PeersWorld
from ottla.broker.requests.routes import Route
from ottla.machines.transactions.markers import OwedMarkers
from ottla.machines.transactions.producer_ids import Producer
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import NO_LEADER, PartitionRecord, TopicRecord
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.metadata_building import broker_record, image_of, uuid_of

HERE = 0
REST_SECONDS = marker_sender.REST_MS / 1000


class Coordinator:
    """A coordinator with unwritten markers; the test scripts the responses of partition leaders."""

    def __init__(self, machine: Machine, leaders: Sequence[int]) -> None:
        self._machine = machine
        self.image = image_with(leaders)
        self.codes: list[int] = []
        """Error codes for the next markers; once these are used up, markers are written."""
        self.requests: list[list[tuple[int, int]]] = []
        """Per request, the producer ids and their partition counts."""
        self.written: list[tuple[int, TopicPartition]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        route = Route(range(1, 3), self._answer)
        world = PeersWorld(
            HERE,
            "PLAINTEXT",
            machine.network,
            machine.clock,
            lambda: self.image,
            lambda: {ApiKey.WRITE_TXN_MARKERS: route},
        )
        writing = MarkerWriter(HostedPartitions(), machine.clock, lambda: True, {})
        self.markers = MarkerSender(BrokerClients(world, "markers"), lambda: self.image, writing)

    async def _answer(self, _: Any, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.requests.append(
            [
                (marker.producer_id, sum(len(topic.partition_indexes) for topic in marker.topics))
                for marker in request.markers
            ]
        )
        await self.may_answer.wait()
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[self._result(index) for index in topic.partition_indexes],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def _result(self, index: int) -> WritableTxnMarkerPartitionResult:
        code = self.codes.pop(0) if self.codes else 0
        return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)

    def owe(self, producer_id: int, *partitions: int, topic: str = "t", index: int = 0) -> None:
        owed = OwedMarkers(
            number=producer_id,
            transactional_id=f"id-{producer_id}",
            producer=Producer(producer_id, 0),
            is_commit=True,
            partitions=tuple(TopicPartition(topic, number) for number in partitions),
            coordinator_epoch=3,
            transaction_version=2,
        )
        self.markers.owe(index, owed, self._report)

    def _report(self, owed: OwedMarkers, written: Sequence[TopicPartition]) -> None:
        self.written += [(owed.producer.producer_id, one) for one in written]

    def led_by(self, *leaders: int) -> None:
        self.image = image_with(leaders)
        self.markers.on_change(self.image, ())

    async def pass_seconds(self, seconds: float) -> None:
        await self._machine.loop.elapse(seconds)

    @property
    def marked(self) -> list[tuple[int, int]]:
        return sorted((producer_id, one.partition) for producer_id, one in self.written)


def image_with(leaders: Sequence[int]) -> ClusterImage:
    partitions = [
        PartitionRecord(
            partition_id=number,
            topic_id=uuid_of(1),
            replicas=[HERE],
            isr=[HERE],
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=[uuid_of(9)],
        )
        for number, leader in enumerate(leaders)
    ]
    return image_of(broker_record(HERE), TopicRecord(name="t", topic_id=uuid_of(1)), *partitions)


def tell(story: Callable[[Coordinator], Coroutine[Any, Any, None]], *leaders: int) -> None:
    """Run a scenario on one machine of a world; `leaders` lead the topic's partitions."""
    world = World(1)

    async def program(machine: Machine) -> None:
        coordinator = Coordinator(machine, leaders)
        await story(coordinator)
        coordinator.markers.stop()

    async def whole() -> None:
        await world.machine("broker").start(program)

    world.run(whole())


def test_markers_owed_during_a_request_go_in_one_request() -> None:
    async def story(one: Coordinator) -> None:
        one.may_answer.clear()
        one.owe(1, 0)
        await one.pass_seconds(0.01)
        one.owe(2, 0, 1)
        one.owe(3, 1)
        one.may_answer.set()
        await one.pass_seconds(0.01)
        assert one.requests == [[(1, 1)], [(2, 2), (3, 1)]]
        assert one.marked == [(1, 0), (2, 0), (2, 1), (3, 1)]

    tell(story, HERE, HERE)


def test_a_marker_that_is_refused_is_sent_again_and_others_do_not_wait_for_it() -> None:
    async def story(one: Coordinator) -> None:
        one.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
        one.owe(1, 0, 1)
        await one.pass_seconds(0.01)
        one.owe(2, 1)
        await one.pass_seconds(0.01)
        assert one.marked == [(1, 1), (2, 1)]
        await one.pass_seconds(REST_SECONDS)
        assert one.marked == [(1, 0), (1, 1), (2, 1)]
        await one.pass_seconds(10)
        assert len(one.requests) == 3  # no more requests are sent after that

    tell(story, HERE, HERE)


def test_a_marker_for_a_partition_without_leader_waits_for_one() -> None:
    async def story(one: Coordinator) -> None:
        one.owe(1, 0)
        await one.pass_seconds(10)
        assert (one.requests, one.markers.unsendable_count) == ([], 1)
        one.led_by(HERE)
        await one.pass_seconds(0.01)
        assert (one.marked, one.markers.unsendable_count) == ([(1, 0)], 0)

    tell(story, NO_LEADER)


def test_markers_for_a_former_leader_go_to_the_new_leader() -> None:
    async def story(one: Coordinator) -> None:
        one.owe(1, 0)  # to a broker without a known endpoint
        await one.pass_seconds(1)
        assert one.requests == []
        one.led_by(HERE)
        await one.pass_seconds(REST_SECONDS)
        assert one.marked == [(1, 0)]

    tell(story, 7)


def test_partitions_that_are_gone_need_no_marker() -> None:
    async def story(one: Coordinator) -> None:
        one.owe(1, 0, topic="deleted")
        assert one.marked == [(1, 0)]
        one.codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        one.owe(2, 0)
        await one.pass_seconds(0.01)
        one.led_by()
        await one.pass_seconds(REST_SECONDS)
        assert one.marked == [(1, 0), (2, 0)]

    tell(story, HERE)


def test_a_partition_with_a_later_coordinator_epoch_is_left_alone() -> None:
    async def story(one: Coordinator) -> None:
        one.codes = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        one.owe(1, 0)
        await one.pass_seconds(10)
        assert (len(one.requests), one.marked) == (1, [])

    tell(story, HERE)


def test_a_partition_whose_producer_is_in_a_later_epoch_has_nothing_open() -> None:
    async def story(one: Coordinator) -> None:
        one.codes = [ErrorCode.INVALID_PRODUCER_EPOCH]
        one.owe(1, 0)
        await one.pass_seconds(0.01)
        assert one.marked == [(1, 0)]

    tell(story, HERE)


def test_a_coordinator_that_has_moved_sends_nothing_more() -> None:
    async def story(one: Coordinator) -> None:
        one.codes = [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
        one.owe(1, 0, index=4)
        one.owe(2, 0, index=5)
        await one.pass_seconds(0.01)
        one.markers.forget(4)
        await one.pass_seconds(10)
        assert one.marked == [(2, 0)]
        assert one.requests == [[(1, 1), (2, 1)], [(2, 1)]]

    tell(story, HERE)
