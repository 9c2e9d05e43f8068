"""Clients of a simulated cluster: production code, with everything noted in a history.

Writers send unique values, readers read all partitions from their beginning, a committer commits
greater and greater offsets. All go on through whatever happens, until `is_over`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.admin import Admin
from ottla.clients.cluster_view import ClusterView, pause
from ottla.clients.connection import Address
from ottla.clients.fetcher import Fetched, Fetcher, FetcherSettings
from ottla.clients.producer import Delivered, Producer
from ottla.clients.settings import ClientSettings
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.simulation.dice import dice
from ottla.simulation.history import History, Operation, Outcome, Read, Sent, outcome_of
from ottla.simulation.machine import Machine, Program

GROUP: Final = "readers"
TOPIC: Final = "letters"
VALUES_MAX: Final = 5
FILLER_BYTES_MAX: Final = 400
PAUSE_MS_MAX: Final = 200
TRY_AGAIN_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Pace:
    """How long clients wait for things, and between them."""

    pause_ms_max: int = PAUSE_MS_MAX
    connect_timeout_ms: int = 1_000
    request_timeout_ms: int = 2_000
    timeout_ms: int = 6_000


class Workload:
    """What the clients of one simulation share. Its methods are programs for machines."""

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
        """Of these topics the first is written to, and read: all of it, or what is committed."""
        self.history = history
        self.is_over = False
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._servers = tuple(servers)
        self._seed = seed
        self._pace = pace or Pace()
        self._topics = list(topics)
        self.fetching = FetcherSettings(wait_ms=200, is_committed_only=is_committed_only)
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
                    created = await Admin.over(view).topics.create(
                        self._topics, partitions=len(self.partitions)
                    )
            except (ApiError, OSError):
                await pause(TRY_AGAIN_MS)
                continue
            there = {None, ErrorCode.TOPIC_ALREADY_EXISTS}
            if all((error and error.code) in there for error in created.values()):
                return
            await pause(TRY_AGAIN_MS)

    async def write(self, machine: Machine) -> None:
        """Send until it is over; a producer that has failed is replaced by another."""
        stream = self.stream(machine)
        while not self.is_over:
            client = self.next_life(machine)
            async with self.view(machine) as view:
                writer = _Writer(self.history, machine, view, client)
                with suppress(ApiError, OSError):
                    await self._write_on(writer, stream)
            await pause(TRY_AGAIN_MS)

    async def read(self, machine: Machine) -> None:
        """Read until it is over, all partitions; go on after failures where it was."""
        stream = self.stream(machine)
        client = self.next_life(machine)
        offsets = dict.fromkeys(self.partitions, 0)
        while not self.is_over:
            async with self.view(machine) as view:
                fetcher = Fetcher(view, offsets, self.fetching)
                with suppress(ApiError, OSError):
                    await self._read_on(client, fetcher, stream)
                await fetcher.close()
                offsets = dict(fetcher.offset_by_partition)
            await pause(TRY_AGAIN_MS)

    async def commit(self, machine: Machine) -> None:
        """Commit greater and greater offsets until it is over."""
        stream = self.stream(machine)
        client = self.next_life(machine)
        while not self.is_over:
            async with self.view(machine) as view:
                self._next_commit += 1
                partition = self.partitions[self._next_commit % len(self.partitions)]
                commit = self.history.begin_commit(client, GROUP, partition, self._next_commit)
                try:
                    await Admin.over(view).groups.commit(GROUP, {partition: commit.offset})
                    commit.outcome = Outcome.OK
                except (ApiError, OSError) as error:
                    commit.outcome = outcome_of(error)
                    await pause(TRY_AGAIN_MS)
            await self.rest(stream)

    async def read_to_the_end(self, machine: Machine) -> dict[tuple[str, TopicPartition], int]:
        """Read everything once more, and return what the group has committed."""
        client = self.next_life(machine)
        async with self.view(machine) as view:
            operation = self.history.begin(client)
            fetched = await all_of(view, self.partitions, self.fetching)
            take(self.history, operation, fetched)
            committed = await Admin.over(view).groups.committed(GROUP)
        return {(GROUP, name): found.offset for name, found in committed.items()}

    # -- what they do until something fails ------------------------------------------------------

    async def _write_on(self, writer: "_Writer", stream: Random) -> None:
        while not self.is_over:
            await writer.send(stream.choice(self.partitions), stream)
            await self.rest(stream)

    async def _read_on(self, client: str, fetcher: Fetcher, stream: Random) -> None:
        while not self.is_over:
            operation = self.history.begin(client)
            take(self.history, operation, await fetcher.poll())
            await self.rest(stream)

    # -- what they have in common ---------------------------------------------------------------

    def view(self, machine: Machine) -> ClusterView:
        """Return what a client has of the cluster."""
        settings = ClientSettings(
            self._servers,
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

    async def rest(self, stream: Random) -> None:
        """Do nothing for a while."""
        await pause(stream.random() * self._pace.pause_ms_max)


class _Writer:
    """One producer, and the operations that it makes."""

    def __init__(self, history: History, machine: Machine, view: ClusterView, client: str) -> None:
        self._history = history
        self._client = client
        self._count = 0
        self._delivered: Delivered | None = None
        self._producer = Producer(
            view, machine.clock, machine.randomness, on_delivery=self._on_delivery
        )

    async def send(self, partition: TopicPartition, stream: Random) -> None:
        """Send a few values in one batch, and raise what went wrong."""
        values = [self._next_value() for _ in range(stream.randint(1, VALUES_MAX))]
        operation = self._history.begin(self._client, [Sent(partition, one) for one in values])
        self._delivered = None
        try:
            for value in values:
                content = filled(value, stream)
                await self._producer.send(partition.topic, content, partition=partition.partition)
            await self._producer.flush()
        except (ApiError, OSError) as error:
            self._history.end(operation, outcome_of(error))
            raise
        operation.sent = _with_offsets(operation.sent, self._delivered)
        self._history.end(operation, Outcome.OK)

    def _next_value(self) -> str:
        self._count += 1
        return f"{self._client}.{self._count}"

    def _on_delivery(self, delivered: Delivered) -> None:
        self._delivered = delivered


def _with_offsets(sent: list[Sent], delivered: Delivered | None) -> list[Sent]:
    assert delivered is not None, "flushed, and nothing was delivered"
    if delivered.base_offset < 0:
        return sent
    return [one._replace(offset=delivered.base_offset + at) for at, one in enumerate(sent)]


async def all_of(
    view: ClusterView, names: Sequence[TopicPartition], settings: FetcherSettings
) -> list[Fetched]:
    """Read everything that is there."""
    ends = await Admin.over(view).offsets.ends(names)
    left = {name: start for name, (start, end) in ends.items() if start < end}
    fetched: list[Fetched] = []
    if left:
        fetcher = Fetcher(view, left, settings)
        while any(fetcher.offset_by_partition[name] < ends[name][1] for name in left):
            fetched += await fetcher.poll()
        await fetcher.close()
    return fetched


def filled(value: str, stream: Random) -> bytes:
    """Return what is written for a value: more than itself."""
    return b"%s %s" % (value.encode(), b"." * stream.randrange(FILLER_BYTES_MAX))


def take(history: History, operation: Operation, fetched: Sequence[Fetched]) -> None:
    """Note what was read; it is believed, whatever became of the operation."""
    for one in fetched:
        for record in one.records():
            assert record.value is not None
            value = record.value.partition(b" ")[0].decode()
            operation.read.append(Read(one.partition, value, record.offset))
    history.end(operation, Outcome.OK)
