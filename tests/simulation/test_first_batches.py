"""A leader without state for a producer accepts any first sequence number, as Kafka's does.

So no batch may overtake a producer's first batch in a partition, not even through another leader:
the later batch would be written without the first, and so before it.
"""

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.model.identifiers import TopicPartition
from ottla.simulation.workloads.recorded_reader import ALL, all_of
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.machine import Machine
from tests.simulation.client_making import producer_on
from tests.simulation.client_mutants import sending_ahead_of_the_first
from tests.simulation.zookeeper_cluster import BROKERS, ZooKeeperCluster

VALUES = [b"first", b"second", b"third"]
WRITER = "writer"


def written_while_the_leader_moves() -> list[bytes]:
    """Hold the first batch until another broker leads; return the values in the log then."""
    found: list[bytes] = []

    async def story(cluster: ZooKeeperCluster) -> None:
        await cluster.create_topic()
        leader = BROKERS[cluster.partitions(BROKERS[0])[0].leader]
        others = [name for name in BROKERS if name != leader]

        async def write(machine: Machine) -> None:
            settings = ClientSettings(
                tuple(cluster.servers), timeout_ms=60_000, metadata_max_age_ms=500
            )
            view = ClusterView(settings, machine.network.connect)
            async with producer_on(machine, view, linger_ms=0, batch_size=1) as producer:
                await producer.partitions_for(TOPIC)
                cluster.cut_off(leader, WRITER)
                sent = [await producer.send(TOPIC, VALUES[0], partition=0)]
                cluster.machine(leader).kill()
                await cluster.until(
                    lambda: BROKERS[cluster.partitions(others[0])[0].leader] in others
                )
                await cluster.world.elapse(1)  # by now the producer has refreshed its metadata
                sent += [await producer.send(TOPIC, one, partition=0) for one in VALUES[1:]]
                for one in sent:
                    await one

        async def read(machine: Machine) -> None:
            async with cluster.view(machine) as view:
                records = await all_of(view, machine.clock, [TopicPartition(TOPIC, 0)], ALL)
                found.extend(record.value for record in records)

        await cluster.machine(WRITER).start(write)
        await cluster.machine("reader").start(read)

    ZooKeeperCluster(seed=2).tell(story)
    return found


def test_nothing_overtakes_the_first_batch_at_another_leader() -> None:
    assert written_while_the_leader_moves() == VALUES


def test_a_batch_sent_ahead_of_the_first_is_out_of_order() -> None:
    with sending_ahead_of_the_first():
        assert written_while_the_leader_moves() != VALUES
