"""Members of a group in a simulated cluster: together they are given everything, at least once.

The assignor, and whether members are static, is drawn for the whole group; how a member commits is
drawn for each of its lives. After each poll the assignment of the member is checked: no partition
has two owners in one generation (G6), and a member keeps no partitions of an earlier one (G7).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.group.membership_machine import RECONCILING
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

    def __init__(
        self,
        workload: Workload,
        stream: Random,
        now: Callable[[], float],
        *,
        strategy: Sequence[str] = (),
        is_static: bool | None = None,
    ) -> None:
        """Draw the strategy, and whether members are static, unless they are given."""
        self.history = History(now)
        """The records and the assignments of each member."""
        self._workload = workload
        self._delivered: dict[str, None] = {}
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        """The member, or the static member's name, by generation and partition."""
        self._violations: list[Violation] = []
        drawn = stream.random() < 0.3, stream.choice(STRATEGIES)
        self._is_static = drawn[0] if is_static is None else is_static
        self._settings = replace(
            workload.reading,
            group_id=MEMBERS,
            auto_offset_reset="earliest",
            partition_assignment_strategy=tuple(strategy) or drawn[1],
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

    def look_at(self, client: str, consumer: AsyncConsumer) -> None:
        """Check the assignment of a member that has polled."""
        machine = consumer.core.needed_group().machine
        member, assigned = consumer.group_metadata(), sorted(consumer.assignment())
        is_kept = machine.has_lost and not machine.is_due()
        if machine.state is not RECONCILING:  # there its last commit delays a revocation
            is_kept |= not set(assigned) <= set(machine.previous.partitions)
        if is_kept:
            self._violations.append(Violation("G7 kept", f"{client} has {assigned}"))
        name = member.group_instance_id or client
        for partition in assigned:
            owner = self._owners.setdefault((member.generation_id, partition), name)
            if owner != name:
                told = f"{partition} is {owner}'s and {name}'s in {member.generation_id}"
                self._violations.append(Violation("G6 two owners", told))

    def violations(self) -> list[Violation]:
        """Return the violations in each member's deliveries and assignments."""
        return check_history(self.history, is_read_to_the_end=False) + self._violations


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
            self._group.look_at(self._client, self._consumer)
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
