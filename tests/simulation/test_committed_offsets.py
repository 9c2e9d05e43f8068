"""Committed offsets in a cluster: no client gets an offset that only one broker has."""

from typing import Any

from ottla.broker.coordinators.consumer_offsets_topic import partition_of_group
from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.model.error_code import ErrorCode
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.simulation.stories.broker_program import PORT
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.machine import Machine
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.simulation.zookeeper_cluster import BROKERS, ZooKeeperCluster

GROUP = "readers"
TIMEOUT_MS = 1_000


async def ask(
    cluster: ZooKeeperCluster, broker: str, request: Any, version: int, answer: type[Any]
) -> Any:
    async def program(machine: Machine) -> Any:
        connection = await connect_to_broker(
            machine.network, broker, PORT, client_id="reader", timeout_ms=5_000
        )
        response = await connection.ask(request, answer, version_max=version, timeout_ms=60_000)
        connection.close()
        return response

    return await cluster.machine("reader").start(program)


async def coordinator(cluster: ZooKeeperCluster) -> str:
    """Return the group's coordinator, once all replicas of its partition are in sync."""
    request = FindCoordinatorRequest(key=GROUP, key_type=0)
    await ask(cluster, BROKERS[0], request, 3, FindCoordinatorResponse)

    def state() -> Any:
        partitions = cluster.partitions(BROKERS[0], CONSUMER_OFFSETS_TOPIC)
        return partitions[partition_of_group(GROUP, len(partitions))] if partitions else None

    await cluster.until(lambda: state() is not None and len(state().isr) == len(BROKERS))
    return BROKERS[state().leader]


async def commit(cluster: ZooKeeperCluster, broker: str, offset: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])
    response = await ask(cluster, broker, request, 8, OffsetCommitResponse)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def committed(cluster: ZooKeeperCluster, broker: str) -> int | ErrorCode:
    topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    request = OffsetFetchRequest(group_id=GROUP, topics=[topic])
    response = await ask(cluster, broker, request, 7, OffsetFetchResponse)
    if response.error_code:
        return ErrorCode(response.error_code)
    offset: int = response.topics[0].partitions[0].committed_offset
    return offset


def test_an_offset_counts_when_all_replicas_in_sync_have_it() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        await cluster.create_topic()
        broker = await coordinator(cluster)
        others = [name for name in BROKERS if name != broker]
        while await commit(cluster, broker, 5) is not ErrorCode.NONE:  # groups are being loaded
            await cluster.world.elapse(0.1)
        assert await committed(cluster, broker) == 5
        cluster.cut_off(broker, *others)
        began = cluster.world.loop.time()
        assert await commit(cluster, broker, 9) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.world.loop.time() - began < 2 * TIMEOUT_MS / 1000
        # Another coordinator would not know this offset, so no client may see it.
        assert await committed(cluster, broker) is ErrorCode.NOT_COORDINATOR
        cluster.reconnect(broker, *others)
        await cluster.until(cluster.is_whole)
        while (found := await committed(cluster, await coordinator(cluster))) not in {5, 9}:
            assert isinstance(found, ErrorCode)
            await cluster.world.elapse(0.1)

    settings = {"offsets.commit.timeout.ms": str(TIMEOUT_MS)}
    ZooKeeperCluster(seed=1, settings=settings).tell(story)
