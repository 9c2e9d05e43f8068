"""A failed sync loses its data: the kernel may have dropped the dirty pages without notice.

A second sync would report success (USENIX ATC 2020, "Can Applications Recover from fsync
Failures?").
"""

from typing import NamedTuple

from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.stories.broker_program import DATA, PORT, BrokerProgram
from ottla.simulation.stories.one_broker_story import BROKER, FLUSHED
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from tests.simulation.client_making import producer_on, send_all
from tests.simulation.mutants import trying_again_to_sync

CLIENT = ClientSettings((Address(BROKER, PORT),), timeout_ms=5_000)
NAME = TopicPartition(TOPIC, 0)
LOG = f"{DATA}/{NAME}"


class Told(NamedTuple):
    """How many records were acknowledged to a client, and how many are in the log at the end."""

    acknowledged: int
    kept: int


def write_while_a_sync_fails() -> Told:
    """Fail exactly one sync of the log; then cut the power, and read the log."""
    world = World(1)
    broker, program = world.machine(BROKER), BrokerProgram({**FLUSHED})

    async def send(producer: AsyncProducer) -> int:
        try:
            await send_all(producer, TOPIC, [b"a letter"], partition=0)
        except (ApiError, OSError):
            return 0
        return 1

    async def write(machine: Machine) -> int:
        async with ClusterView(CLIENT, machine.network.connect) as view:
            await AsyncAdmin.over(view).topics.create([TOPIC])
            producer = producer_on(machine, view)
            acknowledged = await send(producer)
            operations = broker.disk.faults.operations
            began = len(operations)
            acknowledged += await send(producer)
            syncs = [
                number
                for number, one in enumerate(operations[began:])
                if one.kind is OperationKind.SYNC and one.path.startswith(LOG)
            ]
            broker.disk.faults.fail_at(len(operations) + syncs[0])
            return acknowledged + await send(producer)

    async def count(machine: Machine) -> int:
        async with ClusterView(CLIENT, machine.network.connect) as view:
            ends = await AsyncAdmin.over(view).offsets.ends([NAME])
            return ends[NAME][1]

    async def story() -> Told:
        broker.start(program)
        await world.elapse(1)
        acknowledged = await world.machine("writer").start(write)
        broker.cut_power("lose_all")
        broker.start(program)
        return Told(acknowledged, await world.machine("reader").start(count))

    return world.run(story())


def test_what_a_failed_sync_was_for_is_not_acknowledged() -> None:
    assert write_while_a_sync_fails() == Told(acknowledged=2, kept=2)


def test_a_retry_after_a_failed_sync_promises_too_much() -> None:
    with trying_again_to_sync():
        told = write_while_a_sync_fails()
    assert told.acknowledged > told.kept
