"""A restarted broker remembers a producer's last batch, and none of the batches before it.

Kafka's producer snapshot has one batch per producer. A producer that gets "out of order" for a
retried batch has to check whether a later batch is known to be in the log.
"""

from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.model.address import Address
from ottla.model.identifiers import TopicPartition
from ottla.simulation.stories.broker_program import PORT, BrokerProgram
from ottla.simulation.stories.one_broker_story import BROKER
from ottla.simulation.workloads.recorded_reader import ALL, all_of
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from tests.simulation.client_making import producer_on, send_all

CLIENT = ClientSettings((Address(BROKER, PORT),), request_timeout_ms=2_000, timeout_ms=60_000)
VALUES = [b"%d" % number for number in range(6)]
WRITER = "writer"


def test_batches_whose_answers_were_lost_are_there_once_when_the_broker_comes_back() -> None:
    world = World(1)
    broker, program = world.machine(BROKER), BrokerProgram()

    async def write(machine: Machine) -> None:
        async with ClusterView(CLIENT, machine.network.connect) as view:
            await AsyncAdmin.over(view).topics.create([TOPIC], partitions=1)
            async with producer_on(machine, view.sibling(), batch_size=1, linger_ms=0) as producer:
                await send_all(producer, TOPIC, VALUES[:1])
                world.network.block(BROKER, WRITER)
                await send_all(producer, TOPIC, VALUES[1:])

    async def read(machine: Machine) -> list[bytes]:
        async with ClusterView(CLIENT, machine.network.connect) as view:
            found = await all_of(view, machine.clock, [TopicPartition(TOPIC, 0)], ALL)
            return [record.value for record in found]

    async def story() -> list[bytes]:
        broker.start(program)
        writing = world.machine(WRITER).start(write)
        await world.elapse(CLIENT.request_timeout_ms / 1000 + 1)  # its requests have timed out
        program.stop()
        await broker.ended()
        world.network.unblock(BROKER, WRITER)
        broker.start(program)
        await writing
        found: list[bytes] = await world.machine("reader").start(read)
        return found

    assert world.run(story()) == VALUES
