"""DeleteRecords in a cluster: records are deleted on every live replica."""

from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.simulation.stories.broker_program import PORT
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.machine import Machine
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.simulation.client_making import producer_on, send_all
from tests.simulation.zookeeper_cluster import BROKERS, ZooKeeperCluster

NAME = TopicPartition(TOPIC, 0)
VALUES = 10
UNTIL = 7


async def filled(cluster: ZooKeeperCluster) -> str:
    """Write to the first partition; return its leader."""

    async def program(machine: Machine) -> None:
        async with cluster.view(machine) as view:
            await send_all(producer_on(machine, view), TOPIC, [b"a letter"] * VALUES, partition=0)

    await cluster.create_topic()
    await cluster.machine("writer").start(program)
    return BROKERS[cluster.partitions(BROKERS[0])[0].leader]


async def delete(
    cluster: ZooKeeperCluster, leader: str, timeout_ms: int = 20_000
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=0, offset=UNTIL)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=[wanted])], timeout_ms=timeout_ms
    )

    async def program(machine: Machine) -> DeleteRecordsPartitionResult:
        connection = await connect_to_broker(
            machine.network, leader, PORT, client_id="deleter", timeout_ms=5_000
        )
        response = await connection.ask(
            request, DeleteRecordsResponse, version_max=2, timeout_ms=60_000
        )
        connection.close()
        result: DeleteRecordsPartitionResult = response.topics[0].partitions[0]
        return result

    answer: DeleteRecordsPartitionResult = await cluster.machine("deleter").start(program)
    return answer


def starts(cluster: ZooKeeperCluster) -> list[int]:
    return [
        cluster.broker(name).partitions.get(NAME).log.log_start_offset for name in cluster.running()
    ]


def test_the_answer_comes_when_no_replica_has_the_records_any_more() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        leader = await filled(cluster)
        began = cluster.world.loop.time()
        result = await delete(cluster, leader)
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, UNTIL)
        assert starts(cluster) == [UNTIL] * len(BROKERS)
        # Followers are notified at once, and do not wait until their pending fetch times out.
        assert cluster.world.loop.time() - began < 0.4

    ZooKeeperCluster(seed=1).tell(story)


def test_a_replica_that_hears_nothing_keeps_the_answer_until_the_time_out() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        leader = await filled(cluster)
        silent = next(name for name in BROKERS if name != leader)
        cluster.cut_off(silent, leader)
        began = cluster.world.loop.time()
        result = await delete(cluster, leader, timeout_ms=3_000)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert 2.9 < cluster.world.loop.time() - began < 5
        assert sorted(starts(cluster)) == [0, UNTIL, UNTIL]
        cluster.reconnect(silent, leader)
        await cluster.until(lambda: starts(cluster) == [UNTIL] * len(BROKERS))

    ZooKeeperCluster(seed=1).tell(story)


def test_a_broker_that_is_dead_is_not_waited_for_and_deletes_when_it_is_back() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        leader = await filled(cluster)
        dead = next(name for name in BROKERS if name not in {leader, cluster.controller()})
        cluster.machine(dead).kill()
        # The cluster considers it alive until its session ends.
        result = await delete(cluster, leader)
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, UNTIL)
        cluster.start(dead)
        await cluster.until(cluster.is_whole)
        await cluster.until(lambda: starts(cluster) == [UNTIL] * len(BROKERS))

    ZooKeeperCluster(seed=1).tell(story)
