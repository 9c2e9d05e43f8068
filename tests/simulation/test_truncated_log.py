"""A log is truncated below a reader's position, and grows again: the reader gets an error."""

from collections.abc import Sequence

from ottla.clients.consumer.state.errors import LogTruncationError
from ottla.clients.consumer.state.subscription import Position
from ottla.model.identifiers import TopicPartition
from ottla.simulation.workloads.recorded_reader import ALL, consumer_at
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.machine import Machine
from tests.simulation.client_making import producer_on, send_all
from tests.simulation.client_mutants import trusting_every_new_leader
from tests.simulation.zookeeper_cluster import BROKERS, ZooKeeperCluster

NAME = TopicPartition(TOPIC, 0)
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
LOST = [b"lost %d" % number for number in range(5)]
LATER = [b"later %d" % number for number in range(10)]


async def read_through_an_unclean_election(
    cluster: ZooKeeperCluster, read: list[bytes]
) -> LogTruncationError | None:
    """Lose values that were read, and write others; return the reader's error, if any."""
    await cluster.create_topic()
    leader = BROKERS[cluster.partitions(BROKERS[0])[0].leader]
    others = [name for name in BROKERS if name != leader]

    async def reader(machine: Machine) -> LogTruncationError | None:
        places = {NAME: Position(0)}
        async with consumer_at(cluster.view(machine), machine.clock, ALL, places) as consumer:
            try:
                while LATER[-1] not in read:
                    read.extend(record.value for record in await consumer.poll())
            except LogTruncationError as error:
                return error
        return None

    async def write(values: Sequence[bytes]) -> None:
        async def program(machine: Machine) -> None:
            async with producer_on(machine, cluster.view(machine)) as producer:
                await send_all(producer, TOPIC, values, partition=0)

        await cluster.machine("writer").start(program)

    reading = cluster.machine("reader").start(reader)
    cluster.cut_off(leader, *others)
    await write(LOST)
    await cluster.until(lambda: read == LOST)
    cluster.machine(leader).kill()
    await cluster.until(lambda: BROKERS[cluster.partitions(others[0])[0].leader] != leader)
    await write(LATER)
    told: LogTruncationError | None = await reading
    return told


def test_a_reader_hears_that_what_it_has_read_is_gone() -> None:
    read: list[bytes] = []

    async def story(cluster: ZooKeeperCluster) -> None:
        told = await read_through_an_unclean_election(cluster, read)
        assert told is not None
        assert told.offset == len(LOST)

    ZooKeeperCluster(seed=1, settings=UNCLEAN).tell(story)
    assert read == LOST


def test_a_consumer_that_trusts_every_leader_skips_records_silently() -> None:
    read: list[bytes] = []

    async def story(cluster: ZooKeeperCluster) -> None:
        assert await read_through_an_unclean_election(cluster, read) is None

    with trusting_every_new_leader():
        ZooKeeperCluster(seed=1, settings=UNCLEAN).tell(story)
    assert read == LOST + LATER[len(LOST) :]
