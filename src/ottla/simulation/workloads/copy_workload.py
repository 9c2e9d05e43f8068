"""Copiers: clients that copy records and commit their input offsets in one transaction.

So each value is copied exactly once, whichever process dies. Two machines share a transactional id:
a machine that comes back fences the other, and continues at its last commit.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.state.subscription import Position
from ottla.clients.errors import NoResponseError
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.checks.history import History
from ottla.simulation.workloads.recorded_reader import (
    POLL_SECONDS,
    all_of,
    consumer_at,
    places_of,
    take,
    value_of,
)
from ottla.simulation.workloads.recorded_writer import Client, RecordedTransaction
from ottla.simulation.workloads.workload import Workload
from ottla.simulation.world.machine import Machine
from ottla.wire.records.consumer_record import ConsumerRecord

COPIES: Final = "copies"
COPIERS: Final = "copiers"
"""Their transactional id, and their group."""
COPIED_BY: Final = "@"
AWAY_MS_MAX: Final = 3_000

IsOver = Callable[[Mapping[TopicPartition, int]], bool]
"""Tells, of where a copier is, whether that is enough."""


class CopyWorkload:
    """The common state of copiers. `copy` is a program for machines."""

    def __init__(
        self,
        workload: Workload,
        new_client: Callable[[str, Machine, Random], Client],
    ) -> None:
        self._workload = workload
        self._new_client = new_client
        self._copies = [TopicPartition(COPIES, one.partition) for one in workload.partitions]

    async def copy(self, machine: Machine) -> None:
        """Copy committed records until the run is over."""
        stream = self._workload.stream(machine)
        while not self._workload.is_over:
            with suppress(ApiError, OSError):
                await self._copy_on(machine, stream, lambda _: self._workload.is_over)
            await pause(stream.random() * AWAY_MS_MAX)

    async def finish(self, machine: Machine) -> None:
        """Copy the rest, and read all copies."""
        stream = self._workload.stream(machine)
        async with self._workload.view(machine) as view:
            ends = await AsyncAdmin.over(view).offsets.ends(self._workload.partitions)
            left = {name: end for name, (_, end) in ends.items()}
            while not _is_at(left, await self._copied_to(view)):
                with suppress(ApiError, OSError):
                    await self._copy_on(machine, stream, partial(_is_at, left))
            operation = self._workload.history.begin(self._workload.next_life(machine))
            reading = self._workload.reading
            records = await all_of(view, machine.clock, self._copies, reading)
            take(self._workload.history, operation, records)

    def uncopied(self) -> list[Violation]:
        """Return where the copies differ from their source, in order (T9)."""
        values = _values_read(self._workload.history)
        found = []
        for source, copy in zip(self._workload.partitions, self._copies, strict=True):
            there = values.get(source, [])
            copied = [value.partition(COPIED_BY)[0] for value in values.get(copy, [])]
            if there != copied:
                found.append(Violation("T9 copies", _difference(source, there, copied)))
        return found

    # -- work until a failure -------------------------------------------------------------------

    async def _copy_on(self, machine: Machine, stream: Random, is_over: IsOver) -> None:
        client = self._new_client(COPIERS, machine, stream)
        life = self._workload.next_life(machine)
        try:
            await client.init()
            async with self._workload.view(machine) as view:
                copied_to = await self._copied_to(view)
            async with self._consumer(machine, copied_to, stream) as consumer:
                while not is_over(copied_to):
                    copied_to = await self._copy_some(client, life, consumer, copied_to, stream)
        finally:
            client.close()

    def _consumer(
        self, machine: Machine, offsets: Mapping[TopicPartition, int], stream: Random
    ) -> AsyncConsumer:
        settings = self._workload.waiting(self._workload.reading, stream)
        places = {name: Position(offset) for name, offset in offsets.items()}
        return consumer_at(self._workload.view(machine), machine.clock, settings, places)

    async def _copied_to(self, view: ClusterView) -> dict[TopicPartition, int]:
        committed = await AsyncAdmin.over(view).groups.committed(COPIERS)
        return {
            name: committed[name].offset if name in committed else 0
            for name in self._workload.partitions
        }

    async def _copy_some(
        self,
        client: Client,
        life: str,
        consumer: AsyncConsumer,
        before: Mapping[TopicPartition, int],
        stream: Random,
    ) -> dict[TopicPartition, int]:
        """Copy the next records with their offsets, in one transaction; return the offsets."""
        if client.needs_init:
            raise NoResponseError("the response may still arrive")
        if not self._workload.is_eager:
            await self._workload.rest(stream)
        records = await consumer.poll(timeout=POLL_SECONDS)
        now = {name: place.offset for name, place in places_of(consumer).items()}
        if now == before:
            return now
        transaction = RecordedTransaction(client, self._workload.history, life, stream)
        for name, values in _by_partition(records).items():
            # Each try to copy something is told from the others.
            copies = [f"{value}{COPIED_BY}{life}" for value in values]
            await transaction.send(TopicPartition(COPIES, name.partition), copies)
        await client.send_offsets(COPIERS, now)
        await transaction.commit()
        return now


def _by_partition(records: Sequence[ConsumerRecord]) -> dict[TopicPartition, list[str]]:
    values: dict[TopicPartition, list[str]] = {}
    for record in records:
        name = TopicPartition(record.topic, record.partition)
        values.setdefault(name, []).append(value_of(record))
    return values


def _is_at(ends: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int]) -> bool:
    return all(now[name] >= end for name, end in ends.items())


def _values_read(history: History) -> dict[TopicPartition, list[str]]:
    """Return the values read from each partition, in the order of offsets."""
    values: dict[TopicPartition, dict[int, str]] = {}
    for operation in history.operations:
        for read in operation.read:
            values.setdefault(read.partition, {})[read.offset] = read.value
    return {
        name: [value for _, value in sorted(by_offset.items())]
        for name, by_offset in values.items()
    }


def _difference(name: TopicPartition, there: Sequence[str], copied: Sequence[str]) -> str:
    at = next(
        (at for at, pair in enumerate(zip(there, copied, strict=False)) if pair[0] != pair[1]),
        min(len(there), len(copied)),
    )
    return (
        f"{name}: {len(there)} values and {len(copied)} copies; from number {at} on "
        f"{there[at : at + 3]} and {copied[at : at + 3]}"
    )
