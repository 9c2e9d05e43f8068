"""Three production brokers in a world with a ZooKeeper: the cluster survives every fault."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla.broker.coordinators.consumer_offsets_topic import partition_of_group
from ottla.broker.metadata_store.meta_properties import ForeignLogDirError
from ottla.broker.metadata_store.zookeeper import store
from ottla.broker.metadata_store.zookeeper.znode_reads import load_topics
from ottla.broker.metadata_store.zookeeper.znodes import BROKER_IDS, read_broker
from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.broker.quorum.formatting import METADATA_PARTITION
from ottla.environment.disk import File
from ottla.environment.zookeeper import Create, ZooKeeperSession
from ottla.metadata.image import ClusterImage
from ottla.model.error_code import ErrorCode
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.simulation.stories.broker_program import DATA, PORT, BrokerProgram
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.zookeeper import MACHINE as ZOOKEEPER
from ottla.simulation.world.zookeeper import SimulatedZooKeeper
from ottla.storage.files.checkpoints import CLEAN_SHUTDOWN_FILE, HIGH_WATERMARK_FILE, read_offsets
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.records.builder import BatchBuilder
from tests.simulation.client_making import member_on, producer_on, send_all
from tests.simulation.zookeeper_cluster import (
    BROKERS,
    SESSION_SECONDS,
    SETTINGS,
    ZooKeeperCluster,
)


def test_the_cluster_goes_on_when_its_controller_dies() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        async def kill_controllers() -> None:
            for _ in range(3):
                controller = cluster.controller()
                assert controller is not None
                cluster.machine(controller).kill()
                await cluster.until(lambda: cluster.controller() is not None)
                assert cluster.controller() != controller
                cluster.start(controller)
                await cluster.until(cluster.is_whole)

        await cluster.work_through(kill_controllers)

    ZooKeeperCluster(seed=2).tell(story)


def test_a_clean_stop_leaves_no_partition_without_a_leader() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        await cluster.create_topic()
        leaving = BROKERS[cluster.partitions(BROKERS[0])[0].leader]
        others = [name for name in BROKERS if name != leaving]
        began = cluster.world.loop.time()
        await cluster.stop(leaving)
        assert cluster.world.loop.time() - began < SESSION_SECONDS
        for name in others:
            for one in cluster.partitions(name):
                assert BROKERS[one.leader] in others
                assert {BROKERS[replica] for replica in one.isr} == set(others)

    ZooKeeperCluster(seed=3).tell(story)


def test_a_leader_without_zookeeper_is_replaced_and_comes_back() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        async def cut_leaders_off() -> None:
            for _ in range(2):
                leader = BROKERS[cluster.partitions(BROKERS[0])[0].leader]
                witness = next(name for name in BROKERS if name != leader)
                cluster.cut_off(leader, ZOOKEEPER)
                await cluster.until(
                    lambda: BROKERS[cluster.partitions(witness)[0].leader] != leader
                )
                await cluster.world.elapse(SESSION_SECONDS)
                cluster.reconnect(leader, ZOOKEEPER)
                await cluster.until(cluster.is_whole)

        await cluster.work_through(cut_leaders_off)

    ZooKeeperCluster(seed=4).tell(story)


def test_an_isolated_leader_acknowledges_nothing() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        await cluster.create_topic()
        leader = BROKERS[cluster.partitions(BROKERS[0])[0].leader]
        others = [name for name in BROKERS if name != leader]
        assert await produce(cluster, leader, acks=1) is ErrorCode.NONE
        cluster.cut_off(leader, ZOOKEEPER, *others)
        await cluster.world.elapse(SESSION_SECONDS)
        # It has no notice of it, but by now another broker may lead.
        assert BROKERS[cluster.partitions(leader)[0].leader] == leader
        assert await produce(cluster, leader, acks=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.until(
            lambda: all(BROKERS[cluster.partitions(name)[0].leader] in others for name in others)
        )
        successor = BROKERS[cluster.partitions(others[0])[0].leader]
        assert await produce(cluster, successor, acks=-1) is ErrorCode.NONE
        cluster.reconnect(leader, ZOOKEEPER, *others)
        await cluster.until(cluster.is_whole)

    ZooKeeperCluster(seed=4).tell(story)


def test_a_group_goes_on_when_its_coordinator_dies() -> None:
    values = [b"%d" % number for number in range(60)]
    read: list[bytes] = []

    async def reader(machine: Machine, cluster: ZooKeeperCluster) -> None:
        async with member_on(machine, cluster.view(machine), "readers") as member:
            await member.subscribe([TOPIC])
            while len(set(read)) < len(values):
                read.extend(record.value for record in await member.poll())

    async def story(cluster: ZooKeeperCluster) -> None:
        await cluster.create_topic()
        reading = cluster.machine("reader").start(lambda machine: reader(machine, cluster))
        await send(cluster, values[:30])
        await cluster.until(lambda: len(set(read)) == 30)
        coordinator = coordinator_of(cluster, "readers")
        cluster.machine(coordinator).kill()
        await send(cluster, values[30:])
        await reading
        assert coordinator_of(cluster, "readers") != coordinator

    ZooKeeperCluster(seed=5).tell(story)
    assert set(read) == set(values)


async def says_lost_tail(cluster: ZooKeeperCluster, name: str) -> bool:
    cluster.start(name)
    await cluster.until(lambda: name in cluster.running())
    node = cluster.zookeeper.tree.get(f"{BROKER_IDS}/0")
    return read_broker(0, node.data, node.stat.created_zxid).has_lost_tail


def test_a_broker_says_that_its_tail_is_lost_if_its_machine_has_lost_power() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS
        await cluster.stop(name)
        assert not await says_lost_tail(cluster, name)
        cluster.machine(name).kill()
        assert not await says_lost_tail(cluster, name)
        cluster.machine(name).cut_power()
        assert await says_lost_tail(cluster, name)
        cluster.machine(name).kill()  # by now the cluster knows of it
        assert not await says_lost_tail(cluster, name)

    ZooKeeperCluster(seed=7).tell(story)


async def fail_to_start(cluster: ZooKeeperCluster, name: str) -> None:
    """Start a broker on a machine where its second port is taken."""
    twice = f"A://{name}:{PORT},B://{name}:{PORT}"
    listeners = {
        "listeners": twice,
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "A",
    }
    broker = BrokerProgram({"node.id": "0", **SETTINGS, **listeners}, cluster.zookeeper)

    async def failing(machine: Machine) -> None:
        with pytest.raises(OSError, match="cannot listen on B://"):
            await broker(machine)

    await cluster.machine(name).start(failing)


def test_a_start_that_fails_leaves_all_as_a_clean_stop_does() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS
        await cluster.create_topic()
        await send(cluster, [b"committed"])
        await cluster.world.elapse(2)  # A follower gets the high watermark by its next fetch.
        await cluster.stop(name)
        disk = cluster.machine(name).disk
        noted = read_offsets(disk, f"{DATA}/{HIGH_WATERMARK_FILE}")
        assert any(noted.values())
        await fail_to_start(cluster, name)
        assert disk.exists(f"{DATA}/{CLEAN_SHUTDOWN_FILE}")
        assert read_offsets(disk, f"{DATA}/{HIGH_WATERMARK_FILE}") == noted
        cluster.start(name)
        await cluster.until(cluster.is_whole)

    ZooKeeperCluster(seed=10).tell(story)


def test_a_start_that_is_given_up_while_it_waits_leaves_all_as_a_clean_stop_does() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS
        tree, disk = cluster.zookeeper.tree, cluster.machine(name).disk
        await cluster.create_topic()
        registered = tree.get(f"{BROKER_IDS}/0").data
        await cluster.stop(name)
        other = tree.open_session()
        tree.commit(other, [Create(f"{BROKER_IDS}/0", registered, is_ephemeral=True)])
        cluster.start(name)
        await cluster.world.elapse(0.1)
        assert not disk.exists(f"{DATA}/{CLEAN_SHUTDOWN_FILE}")
        task = cluster.machine(name).task
        assert task is not None
        task.cancel()
        await asyncio.wait([task])
        assert disk.exists(f"{DATA}/{CLEAN_SHUTDOWN_FILE}")
        tree.end_session(other)

    ZooKeeperCluster(seed=12).tell(story)


def test_a_start_that_fails_does_not_hide_that_the_tail_is_lost() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS
        await cluster.create_topic()
        cluster.machine(name).cut_power()
        await fail_to_start(cluster, name)
        assert await says_lost_tail(cluster, name)

    ZooKeeperCluster(seed=11).tell(story)


def test_logs_are_open_before_a_broker_is_one_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS
        machine, tree = cluster.machine(name), cluster.zookeeper.tree
        await cluster.create_topic()
        machine.cut_power()
        await cluster.until(lambda: tree.exists(f"{BROKER_IDS}/0") is None)
        was_registered: dict[str, bool] = {}
        open_file = machine.disk.open_file

        def watched(path: str) -> File:
            if path.startswith(f"{DATA}/{TOPIC}-"):
                was_registered.setdefault(path, tree.exists(f"{BROKER_IDS}/0") is not None)
            return open_file(path)

        monkeypatch.setattr(machine.disk, "open_file", watched)
        cluster.start(name)
        await cluster.until(cluster.is_whole)
        assert was_registered
        assert not any(was_registered.values())

    ZooKeeperCluster(seed=9).tell(story)


@pytest.mark.parametrize("has_looked", [False, True])
def test_a_session_that_ends_before_a_broker_is_registered_is_replaced(
    monkeypatch: pytest.MonkeyPatch, *, has_looked: bool
) -> None:
    looks: list[bool] = []

    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS

        async def load(session: ZooKeeperSession, cluster_id: str) -> ClusterImage:
            looks.append(has_looked)
            if len(looks) == 1 and not has_looked:
                cluster.zookeeper.expire_last_of(name)
            found = await load_topics(session, cluster_id)
            if has_looked:
                cluster.zookeeper.expire_last_of(name)
            return found

        await cluster.create_topic()
        await cluster.stop(name)
        monkeypatch.setattr(store, "load_topics", load)
        cluster.start(name)
        await cluster.until(cluster.is_whole)

    ZooKeeperCluster(seed=6).tell(story)
    assert len(looks) == (1 if has_looked else 2)


def test_a_broker_killed_while_it_opens_logs_has_lost_nothing() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS
        machine = cluster.machine(name)
        await cluster.create_topic()
        await cluster.stop(name)
        machine.start(lambda _: cluster.world.elapse(1))
        machine.cut_power()
        cluster.start(name)
        while machine.disk.exists(f"{DATA}/{CLEAN_SHUTDOWN_FILE}"):
            await cluster.world.elapse(0.0001)
        machine.kill()
        assert cluster.zookeeper.tree.exists(f"{BROKER_IDS}/0") is None
        assert not await says_lost_tail(cluster, name)

    ZooKeeperCluster(seed=8).tell(story)


def test_a_folder_of_another_cluster_is_refused() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS
        await cluster.stop(name)
        elsewhere = SimulatedZooKeeper(cluster.world.loop, cluster.world.network)
        broker = BrokerProgram({"node.id": "0", **SETTINGS}, elsewhere)
        starting = cluster.machine(name).start(lambda machine: failing(broker, machine))
        assert "belong to cluster" in await starting

    async def failing(broker: BrokerProgram, machine: Machine) -> str:
        with pytest.raises(ForeignLogDirError) as caught:
            await broker(machine)
        return str(caught.value)

    ZooKeeperCluster(seed=6).tell(story)


# -- clients ---------------------------------------------------------------------------------------


def coordinator_of(cluster: ZooKeeperCluster, group: str) -> str:
    """Return a group's coordinator, from the view of a live broker."""
    partitions = cluster.partitions(cluster.running()[0], CONSUMER_OFFSETS_TOPIC)
    return BROKERS[partitions[partition_of_group(group, len(partitions))].leader]


async def send(cluster: ZooKeeperCluster, values: Sequence[bytes]) -> None:
    """Send values one by one, each to be acknowledged by all replicas in sync."""

    async def program(machine: Machine) -> None:
        async with cluster.view(machine) as view:
            producer = producer_on(machine, view)
            for value in values:
                await send_all(producer, TOPIC, [value])

    await cluster.machine("sender").start(program)


async def produce(cluster: ZooKeeperCluster, broker: str, acks: int) -> ErrorCode:
    """Send a Produce for the first partition to one broker, without retries elsewhere."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"a letter")
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )

    async def program(machine: Machine) -> ErrorCode:
        connection = await connect_to_broker(
            machine.network, broker, PORT, client_id="writer", timeout_ms=5_000
        )
        response = await connection.ask(request, ProduceResponse, version_max=12, timeout_ms=10_000)
        connection.close()
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    outcome: ErrorCode = await cluster.machine("writer").start(program)
    return outcome


def test_a_metadata_log_is_kept_where_no_migration_is_known() -> None:
    """It may be the only log of a quorum, after the conversion of a stopped cluster."""

    async def story(cluster: ZooKeeperCluster) -> None:
        (name, *_) = BROKERS
        await cluster.create_topic()
        await cluster.stop(name)
        disk, folder = cluster.machine(name).disk, f"{DATA}/{METADATA_PARTITION}"
        disk.make_directory(folder)
        cluster.start(name)
        await cluster.until(cluster.is_whole)
        assert disk.exists(folder)

    ZooKeeperCluster(seed=10).tell(story)
