"""A batch with a lost response is sent again, and written once.

It may be in the log, even if a retry is refused: a leader with too few in-sync replicas refuses a
retry before it looks at its sequence numbers. A producer that takes the refusal as final and
renumbers the batch writes it twice.
"""

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.clients.producer.state.errors import DeliveryTimeoutError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.workloads.recorded_reader import ALL, all_of
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.machine import Machine
from tests.simulation.client_making import producer_on
from tests.simulation.zookeeper_cluster import BROKERS, SESSION_SECONDS, ZooKeeperCluster

VALUES = [b"heard of", b"given up", b"in doubt"]
WRITER = "writer"
PATIENCE_SECONDS = 20.0


def test_a_batch_that_was_written_and_then_refused_is_there_once() -> None:
    outcomes: list[BaseException | None] = []
    found: list[bytes] = []

    async def story(cluster: ZooKeeperCluster) -> None:
        world = cluster.world
        await cluster.create_topic()
        leader = BROKERS[cluster.partitions(BROKERS[0])[0].leader]
        others = [cluster.machine(name) for name in BROKERS if name != leader]

        async def write(machine: Machine) -> None:
            settings = ClientSettings(
                tuple(cluster.servers),
                connect_timeout_ms=500,
                request_timeout_ms=round(PATIENCE_SECONDS / 2 * 1000),
                timeout_ms=round(PATIENCE_SECONDS * 1000),
            )
            view = ClusterView(settings, machine.network.connect)
            async with producer_on(machine, view, linger_ms=0, batch_size=1) as producer:
                sent = [await producer.send(TOPIC, VALUES[0], partition=0)]
                await sent[0]
                world.network.block(leader, WRITER)
                for value in VALUES[1:]:
                    sent.append(await producer.send(TOPIC, value, partition=0))
                    await world.elapse(PATIENCE_SECONDS / 4)
                outcomes.extend([await outcome(one) for one in sent])

        async def read(machine: Machine) -> None:
            async with cluster.view(machine) as view:
                records = await all_of(view, machine.clock, [TopicPartition(TOPIC, 0)], ALL)
                found.extend(record.value for record in records)

        writing = cluster.machine(WRITER).start(write)
        await world.elapse(PATIENCE_SECONDS - 2 * SESSION_SECONDS)
        for other in others:
            other.kill()
        await world.elapse(2 * SESSION_SECONDS + 1)
        world.network.unblock(leader, WRITER)  # when the first batch has just been given up
        await world.elapse(SESSION_SECONDS)
        for other in others:
            cluster.start(other.name)
        await writing
        await cluster.machine("reader").start(read)

    ZooKeeperCluster(seed=1).tell(story)
    assert [type(one) for one in outcomes] == [type(None), DeliveryTimeoutError, type(None)]
    assert found == VALUES


def test_a_single_batch_is_sent_again_when_its_answer_is_late() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        await cluster.create_topic()
        leader = BROKERS[cluster.partitions(BROKERS[0])[0].leader]
        landed: list[BaseException | None] = []

        async def write(machine: Machine) -> None:
            settings = ClientSettings(tuple(cluster.servers), request_timeout_ms=2_000)
            view = ClusterView(settings, machine.network.connect)
            async with producer_on(machine, view, linger_ms=0) as producer:
                await (await producer.send(TOPIC, VALUES[0], partition=0))
                cluster.machine(leader).cut_power()  # without notice to any other process
                await producer.send(
                    TOPIC, VALUES[1], partition=0, on_delivery=lambda error, _: landed.append(error)
                )
                await cluster.world.elapse(PATIENCE_SECONDS)
                assert landed == [None]

        await cluster.machine(WRITER).start(write)
        cluster.start(leader)
        await cluster.until(cluster.is_whole)

    ZooKeeperCluster(seed=1).tell(story)


async def outcome(sent: object) -> BaseException | None:
    """Return the delivery error of a record, or None."""
    try:
        await sent  # type: ignore[misc]
    except DeliveryTimeoutError as error:
        return error
    return None
