"""A produce that waits at a leader with an expired lease gets an error before its timeout."""

from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.model.error_code import ErrorCode
from ottla.simulation.stories.broker_program import PORT
from ottla.simulation.stories.cluster_story import SETTINGS, ClusterStory, Setting
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.zookeeper import MACHINE as ZOOKEEPER
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.log_building import batch
from tests.simulation.mutants import not_telling_who_waits

PATIENCE_MS = 30_000
SESSION_SECONDS = int(SETTINGS["zookeeper.session.timeout.ms"]) / 1000
SOON_SECONDS = SESSION_SECONDS + 1


def wait_at_a_leader_that_is_cut_off() -> tuple[ErrorCode, float]:
    """Write with acks=all; return the response's error code, and the seconds it took."""
    story = ClusterStory(1, Setting(partitions=1, members=0, has_operator=False))
    world = story.world
    told: list[tuple[ErrorCode, float]] = []

    async def cut_off() -> None:
        (leader,) = story.leaders()
        others = [name for name in (*story.names, ZOOKEEPER) if name != leader]
        ways = [way for other in others for way in ((leader, other), (other, leader))]
        for way in ways:
            world.network.block(*way)

        async def write(machine: Machine) -> None:
            connection = await connect_to_broker(
                machine.network, leader, PORT, client_id="patient", timeout_ms=PATIENCE_MS
            )
            name = story.workload.partitions[0]
            data = PartitionProduceData(index=name.partition, records=batch())
            topic = TopicProduceData(name=name.topic, partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=PATIENCE_MS, topic_data=[topic])
            began = world.loop.time()
            response = await connection.ask(
                request, ProduceResponse, version_max=9, timeout_ms=2 * PATIENCE_MS
            )
            connection.close()
            code = ErrorCode(response.responses[0].partition_responses[0].error_code)
            told.append((code, world.loop.time() - began))

        await world.machine("patient").start(write)
        for way in ways:
            world.network.unblock(*way)

    assert not story.run(cut_off).violations
    (answer,) = told
    return answer


def test_waiting_requests_end_when_the_leader_is_in_doubt() -> None:
    code, seconds = wait_at_a_leader_that_is_cut_off()
    assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert seconds < SOON_SECONDS


def test_a_wait_without_a_notification_ends_at_its_deadline() -> None:
    with not_telling_who_waits():
        code, seconds = wait_at_a_leader_that_is_cut_off()
    assert code is ErrorCode.REQUEST_TIMED_OUT
    assert seconds >= PATIENCE_MS / 1000
