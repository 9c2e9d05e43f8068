"""Copiers: they read, and write what they have read together with how far they have come.

So each value is copied once, whoever dies (exactly once). Two machines have one transactional id:
who comes back fences the other, and goes on where that one has committed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.admin import Admin
from ottla.clients.cluster_view import ClusterView, pause
from ottla.clients.errors import NoAnswerError
from ottla.clients.fetcher import Fetched, Fetcher
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checkers import Violation
from ottla.simulation.history import History
from ottla.simulation.machine import Machine
from ottla.simulation.noted_transactions import NotedTransaction
from ottla.simulation.transactional_client import TransactionalClient
from ottla.simulation.workload import Workload, all_of, take

COPIES: Final = "copies"
COPIERS: Final = "copiers"
"""Their transactional id, and their group."""
COPIED_BY: Final = "@"
AWAY_MS_MAX: Final = 3_000

IsOver = Callable[[Mapping[TopicPartition, int]], bool]
"""Tells, of where a copier is, whether that is enough."""


class CopyWorkload:
    """What copiers share. `copy` is a program for machines."""

    def __init__(
        self,
        workload: Workload,
        new_client: Callable[[str, Machine, Random], TransactionalClient],
    ) -> None:
        self._workload = workload
        self._new_client = new_client
        self._copies = [TopicPartition(COPIES, one.partition) for one in workload.partitions]

    async def copy(self, machine: Machine) -> None:
        """Copy what is committed until it is over."""
        stream = self._workload.stream(machine)
        while not self._workload.is_over:
            with suppress(ApiError, OSError):
                await self._copy_on(machine, stream, lambda _: self._workload.is_over)
            await pause(stream.random() * AWAY_MS_MAX)

    async def finish(self, machine: Machine) -> None:
        """Copy the rest, and read all copies."""
        stream = self._workload.stream(machine)
        async with self._workload.view(machine) as view:
            ends = await Admin.over(view).offsets.ends(self._workload.partitions)
            left = {name: end for name, (_, end) in ends.items()}
            while not _is_at(left, await self._copied_to(view)):
                with suppress(ApiError, OSError):
                    await self._copy_on(machine, stream, partial(_is_at, left))
            operation = self._workload.history.begin(self._workload.next_life(machine))
            fetched = await all_of(view, self._copies, self._workload.fetching)
            take(self._workload.history, operation, fetched)

    def uncopied(self) -> list[Violation]:
        """Return where copies are not what was to be copied, in its order (T9)."""
        values = _values_read(self._workload.history)
        found = []
        for source, copy in zip(self._workload.partitions, self._copies, strict=True):
            there = values.get(source, [])
            copied = [value.partition(COPIED_BY)[0] for value in values.get(copy, [])]
            if there != copied:
                found.append(Violation("T9 copies", _difference(source, there, copied)))
        return found

    # -- what they do until something fails -----------------------------------------------------

    async def _copy_on(self, machine: Machine, stream: Random, is_over: IsOver) -> None:
        client = self._new_client(COPIERS, machine, stream)
        life = self._workload.next_life(machine)
        try:
            await client.init()
            async with self._workload.view(machine) as view:
                fetcher = Fetcher(view, await self._copied_to(view), self._workload.fetching)
                await self._copy_from(fetcher, client, life, stream, is_over)
        finally:
            client.close()

    async def _copy_from(
        self,
        fetcher: Fetcher,
        client: TransactionalClient,
        life: str,
        stream: Random,
        is_over: IsOver,
    ) -> None:
        try:
            while not is_over(fetcher.offset_by_partition):
                await self._copy_some(client, life, await fetcher.poll(), stream)
        except (ApiError, OSError):
            await fetcher.close()
            raise
        await fetcher.close()

    async def _copied_to(self, view: ClusterView) -> dict[TopicPartition, int]:
        committed = await Admin.over(view).groups.committed(COPIERS)
        return {
            name: committed[name].offset if name in committed else 0
            for name in self._workload.partitions
        }

    async def _copy_some(
        self, client: TransactionalClient, life: str, fetched: Sequence[Fetched], stream: Random
    ) -> None:
        """Copy what has come, and how far that is, or nothing of both."""
        if client.needs_init:
            raise NoAnswerError("what was asked for may still come")
        if not fetched:
            return
        transaction = NotedTransaction(client, self._workload.history, life, stream)
        for one in fetched:
            read = [(record.value or b"").split(b" ")[0].decode() for record in one.records()]
            if read:
                # Each try to copy something is told from the others.
                values = [f"{value}{COPIED_BY}{life}" for value in read]
                await transaction.send(TopicPartition(COPIES, one.partition.partition), values)
        await client.send_offsets(COPIERS, {one.partition: one.end_offset for one in fetched})
        await transaction.commit()


def _is_at(ends: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int]) -> bool:
    return all(now[name] >= end for name, end in ends.items())


def _values_read(history: History) -> dict[TopicPartition, list[str]]:
    """Return what was read of each partition, in the order of offsets."""
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
