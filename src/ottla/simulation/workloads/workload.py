"""Clients of a simulated cluster: production code, with every operation in a history.

Writers send unique values, readers read all partitions from the beginning, a committer commits
increasing offsets. All continue through every fault, until `is_over`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.state.errors import OffsetOutOfRangeError
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.concurrency.sleep import pause
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.history import History, Outcome, outcome_of
from ottla.simulation.workloads.recorded_reader import (
    ALL,
    BEGINS_ANEW,
    RecordedReader,
    all_of,
    consumer_at,
    patient,
    take,
)
from ottla.simulation.workloads.recorded_writer import RecordedWriter, writing
from ottla.simulation.world.machine import Machine, Program
from ottla.simulation.world.randomness import dice

GROUP: Final = "readers"
TOPIC: Final = "letters"
VALUES_MAX: Final = 5
GIVES_UP: Final = 0.3
"""How often a writer goes on with another producer after a failure."""
PAUSE_MS_MAX: Final = 200
TRY_AGAIN_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Pace:
    """How long clients wait for things, and between them."""

    pause_ms_max: int = PAUSE_MS_MAX
    connect_timeout_ms: int = 1_000
    request_timeout_ms: int = 2_000
    timeout_ms: int = 6_000
    is_eager: bool = False
    """Whether consumers never wait for more than there is, and copiers never rest."""


class Workload:
    """The common state of one simulation's clients. Its methods are programs for machines."""

    def __init__(
        self,
        history: History,
        servers: Sequence[Address],
        seed: int,
        *,
        partitions: int = 2,
        pace: Pace | None = None,
        topics: Sequence[str] = (TOPIC,),
        is_committed_only: bool = False,
    ) -> None:
        """Write to the first topic, and read all topics: all records, or the committed ones."""
        self.history = history
        self.is_over = False
        self.is_eager = (pace or Pace()).is_eager
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._servers = tuple(servers)
        self._seed = seed
        self._pace = pace or Pace()
        self._topics = list(topics)
        self.reading = replace(
            ALL, isolation_level="read_committed" if is_committed_only else "read_uncommitted"
        )
        self.surprises: list[str] = []
        """Errors that a reader must not see if nothing was lost."""
        self._lives: dict[str, int] = {}
        self._next_commit = 0

    def programs(self, writers: int) -> dict[str, Program]:
        """Return a program for each machine: so many writers, a reader and a committer."""
        return {
            **{f"writer-{number}": self.write for number in range(writers)},
            "reader": self.read,
            "committer": self.commit,
        }

    # -- programs -------------------------------------------------------------------------------

    async def create_topic(self, machine: Machine) -> None:
        """Make the topic, however long that takes."""
        while True:
            try:
                async with self.view(machine) as view:
                    await AsyncAdmin.over(view).topics.create(
                        self._topics, partitions=len(self.partitions)
                    )
            except ItemsFailedError as error:
                there = ErrorCode.TOPIC_ALREADY_EXISTS
                if all(failure.code is there for failure in error.failed.values()):
                    return
            except (ApiError, OSError):
                pass
            else:
                return
            await pause(TRY_AGAIN_MS)

    async def write(self, machine: Machine) -> None:
        """Send until it is over, with one producer after the other."""
        stream = self.stream(machine)
        while not self.is_over:
            client = self.next_life(machine)
            settings = writing(stream, self._pace.timeout_ms)
            view = self.view(machine)
            writer = RecordedWriter(self.history, client, machine, view, settings)
            with suppress(ApiError, OSError):
                await self._write_on(writer, stream)
            await writer.close()
            await pause(TRY_AGAIN_MS)

    async def read(self, machine: Machine) -> None:
        """Read all partitions until it is over."""
        await self.read_into(self.history, self.reading, machine)

    async def read_into(
        self, history: History, settings: ConsumerSettings, machine: Machine
    ) -> None:
        """Read until it is over; go on after failures where it was, or if that is lost, anew."""
        stream = self.stream(machine)
        reader = RecordedReader(history, self.next_life(machine), self.partitions)
        while not self.is_over:
            view, drawn = self.view(machine), self.waiting(settings, stream)
            async with consumer_at(view, machine.clock, drawn, reader.places) as consumer:
                try:
                    await self._read_on(reader, consumer, stream)
                except OffsetOutOfRangeError as error:
                    self.surprises.append(str(error))
                    reader = RecordedReader(history, self.next_life(machine), self.partitions)
                except (ApiError, OSError):
                    await pause(TRY_AGAIN_MS)

    async def commit(self, machine: Machine) -> None:
        """Commit greater and greater offsets until it is over."""
        stream = self.stream(machine)
        client = self.next_life(machine)
        while not self.is_over:
            async with self.view(machine) as view:
                await self._commit_on(client, view, stream)

    async def read_to_the_end(self, machine: Machine) -> dict[tuple[str, TopicPartition], int]:
        """Read everything once more, and return the group's committed offsets."""
        client = self.next_life(machine)
        async with self.view(machine) as view:
            operation = self.history.begin(client)
            records = await all_of(view, machine.clock, self.partitions, self.reading)
            take(self.history, operation, records)
            committed = await AsyncAdmin.over(view).groups.committed(GROUP)
        return {(GROUP, name): found.offset for name, found in committed.items()}

    # -- work until a failure --------------------------------------------------------------------

    async def _write_on(self, writer: RecordedWriter, stream: Random) -> None:
        while not self.is_over and stream.random() >= BEGINS_ANEW:
            for _ in range(stream.randint(1, VALUES_MAX)):
                await writer.send(stream.choice(self.partitions), stream)
            await self.rest(stream)
            if writer.resolve() and stream.random() < GIVES_UP:
                return

    async def _read_on(
        self, reader: RecordedReader, consumer: AsyncConsumer, stream: Random
    ) -> None:
        while not self.is_over and stream.random() >= BEGINS_ANEW:
            await reader.read_some(consumer, stream)
            reader.be_restless(consumer, stream)
            await self.rest(stream)

    async def _commit_on(self, client: str, view: ClusterView, stream: Random) -> None:
        is_well = True
        while is_well and not self.is_over and stream.random() >= BEGINS_ANEW:
            self._next_commit += 1
            partition = self.partitions[self._next_commit % len(self.partitions)]
            commit = self.history.begin_commit(client, GROUP, partition, self._next_commit)
            try:
                await AsyncAdmin.over(view).groups.commit(GROUP, {partition: commit.offset})
                commit.outcome = Outcome.OK
            except (ApiError, OSError) as error:
                is_well = False
                commit.outcome = outcome_of(error)
                await pause(TRY_AGAIN_MS)
            await self.rest(stream)

    # -- common parts ---------------------------------------------------------------------------

    def view(self, machine: Machine, servers: Sequence[Address] = ()) -> ClusterView:
        """Return a client's view of the cluster, with these bootstrap servers."""
        settings = ClientSettings(
            tuple(servers) or self._servers,
            client_id=machine.name,
            connect_timeout_ms=self._pace.connect_timeout_ms,
            request_timeout_ms=self._pace.request_timeout_ms,
            timeout_ms=self._pace.timeout_ms,
        )
        return ClusterView(settings, machine.network.connect)

    def stream(self, machine: Machine) -> Random:
        """Return the dice of this life of a client."""
        return dice(self._seed, f"workload:{machine.name}:{self._lives.get(machine.name, 0)}")

    def next_life(self, machine: Machine) -> str:
        """Return the name of a client that begins anew."""
        self._lives[machine.name] = life = self._lives.get(machine.name, 0) + 1
        return f"{machine.name}.{life}"

    def waiting(self, settings: ConsumerSettings, stream: Random) -> ConsumerSettings:
        """Draw whether a consumer wants all that is new at once, or more of it at a time."""
        return settings if self.is_eager else patient(settings, stream)

    async def rest(self, stream: Random) -> None:
        """Do nothing for a while."""
        await pause(stream.random() * self._pace.pause_ms_max)
