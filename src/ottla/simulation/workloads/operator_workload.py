"""An operator that changes a simulated cluster in use: topics, settings, assignments."""

from collections.abc import Awaitable, Callable, Mapping
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.admin.admin_configs import ConfigResource
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.concurrency.sleep import pause
from ottla.metadata.image import TopicImage
from ottla.model.api_error import ApiError
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.workloads.workload import TOPIC, TRY_AGAIN_MS, Workload
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.randomness import dice
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

PAUSE_MS_MAX: Final = 3_000
TOPICS_MAX: Final = 4
REPLICAS: Final = 3
PREFERRED: Final = 0


class OperatorWorkload:
    """`operate` is a program for a machine; its results are checked at the end."""

    def __init__(self, workload: Workload, seed: int, brokers: int) -> None:
        self._workload = workload
        self._stream = dice(seed, "operator")
        self._brokers = brokers
        self._count = 0
        self._created: dict[str, None] = {}
        """Topics whose creation was acknowledged, without any attempt to delete them."""

    async def operate(self, machine: Machine) -> None:
        """Change something again and again until it is over."""
        acts = (
            self._create, self._create, self._delete, self._grow,
            self._configure, self._reassign, self._elect,
        )  # fmt: skip
        while not self._workload.is_over:
            act: Callable[[ClusterView], Awaitable[None]] = self._stream.choice(acts)
            try:
                async with self._workload.view(machine) as view:
                    await act(view)
            except (ApiError, OSError):
                await pause(TRY_AGAIN_MS)
            await pause(self._stream.random() * PAUSE_MS_MAX)

    def missing(self, topics: Mapping[str, TopicImage]) -> list[Violation]:
        """Return which topics are gone that were told to be there (M10)."""
        return [
            Violation("M10 lost-topic", f"{name} was created, and is not there")
            for name in self._created
            if name not in topics
        ]

    async def _create(self, view: ClusterView) -> None:
        if len(self._created) < TOPICS_MAX:
            self._count += 1
            name = f"topic-{self._count}"
            await AsyncAdmin.over(view).topics.create(name, partitions=2)
            self._created[name] = None

    async def _delete(self, view: ClusterView) -> None:
        if self._created:
            name = self._stream.choice([*self._created])
            del self._created[name]
            await AsyncAdmin.over(view).topics.delete(name)

    async def _grow(self, view: ClusterView) -> None:
        if self._created:
            name = self._stream.choice([*self._created])
            topics = AsyncAdmin.over(view).topics
            topic = (await topics.describe(name))[name]
            await topics.create_partitions({name: len(topic.partitions) + 1})

    async def _configure(self, view: ClusterView) -> None:
        value = str(1_000_000 + self._stream.randrange(1_000))
        change = {"max.message.bytes": value}
        await AsyncAdmin.over(view).configs.alter({ConfigResource.topic(TOPIC): change})

    async def _reassign(self, view: ClusterView) -> None:
        """Let other brokers keep a partition, or the same in another order; or stop doing so."""
        partition = self._stream.choice(self._workload.partitions)
        replicas = _some(self._stream, self._brokers)
        moved = ReassignablePartition(
            partition_index=partition.partition,
            replicas=None if self._stream.random() < 0.2 else replicas,
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=partition.topic, partitions=[moved])]
        )
        await view.ask_controller(request, AlterPartitionReassignmentsResponse)

    async def _elect(self, view: ClusterView) -> None:
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
        await view.ask_controller(request, ElectLeadersResponse)


def _some(stream: Random, brokers: int) -> list[int]:
    return stream.sample(range(brokers), min(REPLICAS, brokers))
