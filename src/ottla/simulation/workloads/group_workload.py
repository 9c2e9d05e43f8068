"""Members of a group in a simulated cluster: together they are given everything, at least once.

How a group shares out partitions, and whether its members are static, is drawn for all of them;
how each commits is drawn for each of its lives.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.state.errors import ConsumerError
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.checkers import Violation, check_history
from ottla.simulation.checks.history import History, Outcome
from ottla.simulation.workloads.recorded_reader import POLL_SECONDS, take, value_of
from ottla.simulation.workloads.workload import TOPIC, TRY_AGAIN_MS, Workload
from ottla.simulation.world.machine import Machine

MEMBERS: Final = "members"
STRATEGIES: Final = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    ("range", "cooperative-sticky"),
)
LEAVES: Final = 0.01
"""How often a member leaves, and comes again as another."""
COMMITS: Final = 0.3
"""How often a member commits that does so itself."""
COMMIT_INTERVAL_MS: Final = 1_000


class GroupWorkload:
    """The common state of one group's members. `belong` is a program for machines."""

    def __init__(self, workload: Workload, stream: Random, now: Callable[[], float]) -> None:
        self.history = History(now)
        """The records and the assignments of each member."""
        self._workload = workload
        self._delivered: dict[str, None] = {}
        self._is_static = stream.random() < 0.3
        self._settings = replace(
            workload.reading,
            group_id=MEMBERS,
            auto_offset_reset="earliest",
            partition_assignment_strategy=stream.choice(STRATEGIES),
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=10_000,
            auto_commit_interval_ms=COMMIT_INTERVAL_MS,
        )

    async def belong(self, machine: Machine) -> None:
        """Read as a member of the group until the run is over and all values were delivered."""
        stream = self._workload.stream(machine)
        while not self.is_over():
            settings = self._life(machine, stream)
            view = self._workload.view(machine)
            async with AsyncConsumer.over(view, settings, machine.clock) as consumer:
                member = _Member(self, self._workload.next_life(machine), consumer)
                try:
                    await member.read_on(stream)
                except (ApiError, OSError, ConsumerError):
                    await pause(TRY_AGAIN_MS)

    def _life(self, machine: Machine, stream: Random) -> ConsumerSettings:
        return replace(
            self._workload.waiting(self._settings, stream),
            enable_auto_commit=stream.random() < 0.5,
            group_instance_id=machine.name if self._is_static else None,
        )

    def is_over(self) -> bool:
        """Whether writing has ended and every acknowledged value was delivered to a member (G4)."""
        acknowledged = _acknowledged(self._workload.history)
        return self._workload.is_over and all(value in self._delivered for value in acknowledged)

    def deliver(self, values: list[str]) -> None:
        """Record the values that a member received."""
        self._delivered.update(dict.fromkeys(values))

    def violations(self) -> list[Violation]:
        """Return the violations in each member's deliveries."""
        return check_history(self.history, is_read_to_the_end=False)


class _Member:
    """One life of a member."""

    def __init__(self, group: GroupWorkload, client: str, consumer: AsyncConsumer) -> None:
        self._group = group
        self._client = client
        self._consumer = consumer
        self._given: list[TopicPartition] = []

    async def read_on(self, stream: Random) -> None:
        """Read until it is over, or until this life is."""
        await self._consumer.subscribe(
            [TOPIC], on_assigned=self._given.extend, on_revoked=self._commit
        )
        while not self._group.is_over() and stream.random() >= LEAVES:
            operation = self._group.history.begin(self._client)
            records = await self._consumer.poll(timeout=POLL_SECONDS)
            operation.moved = frozenset(self._given)
            self._given.clear()
            take(self._group.history, operation, records)
            self._group.deliver([value_of(record) for record in records])
            if not self._is_automatic and stream.random() < COMMITS:
                await self._consumer.commit()

    @property
    def _is_automatic(self) -> bool:
        return self._consumer.core.settings.enable_auto_commit

    async def _commit(self, _: list[TopicPartition]) -> None:
        if not self._is_automatic:
            with suppress(ApiError, OSError):  # others have the partitions, and read it again
                await self._consumer.commit()


def _acknowledged(history: History) -> Iterator[str]:
    return (
        sent.value
        for operation in history.operations
        if operation.outcome is Outcome.OK
        for sent in operation.sent
        if sent.partition.topic == TOPIC
    )
