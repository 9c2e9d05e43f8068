"""Transactional clients of a simulated cluster, and their readers.

* *ledgers* write to several partitions at once, some with the offset of a group, and commit or
  abort; two machines share the first transactional id, so that each is the other's zombie;
* *copiers* write all committed records into another topic (`copy_workload`);
* one reader also sees uncommitted records; all other readers do not;
* a *late coordinator* writes earlier markers again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.concurrency.sleep import pause
from ottla.machines.transactions.transaction import EPOCH_BUMP_VERSION
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.history import History
from ottla.simulation.checks.transaction_replay import Decision
from ottla.simulation.workloads.copy_workload import COPIERS, CopyWorkload
from ottla.simulation.workloads.real_transactional_client import RealTransactionalClient
from ottla.simulation.workloads.recorded_reader import ALL, all_of, take
from ottla.simulation.workloads.recorded_writer import Client, RecordedTransaction
from ottla.simulation.workloads.transactional_client import TransactionalClient
from ottla.simulation.workloads.workload import Workload
from ottla.simulation.world.machine import Machine, Program
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

SENDS_MAX: Final = 3
VALUES_MAX: Final = 3
TIMEOUT_MS: Final = 4_000
"""After which a transaction is aborted."""
OF_PRODUCTION: Final = 0.4
"""How many clients are producers as applications have them."""
SECOND_VERSION: Final = 0.7
"""How many of the others are of our time."""
BLOCK_MS: Final = 6_000
COMMITTED: Final = 0.7
WITH_OFFSETS: Final = 0.4
SLOW: Final = 0.05
"""How often a client is slow enough to be taken for dead."""
IMPATIENT: Final = 0.2
"""How often a client aborts before it has an answer."""
IMPATIENT_MS_MAX: Final = 8
GIVES_UP: Final = 0.3
"""How often a client says nothing more of a transaction that has failed."""
AWAY_MS_MAX: Final = 500
MARKERS_LATE_MS_MAX: Final = 200
RECENT: Final = 3
"""How many decisions a late coordinator remembers."""


class TransactionWorkload:
    """The common state of transactional clients. Its methods are programs for machines."""

    def __init__(
        self,
        workload: Workload,
        ids: int,
        decisions: Sequence[Decision],
        now: Callable[[], float],
    ) -> None:
        self.ids = [f"ledger-{number}" for number in range(ids)]
        self.uncommitted = History(now)
        """The reads of all records, committed or not."""
        self.copies = CopyWorkload(workload, self._client)
        self._workload = workload
        self._decisions = decisions
        self._count = 0

    def programs(self) -> dict[str, Program]:
        """Return a program for each machine; none, if there are no transactional ids."""
        if not self.ids:
            return {}
        ledgers: dict[str, Program] = {one: partial(self.write, one) for one in self.ids}
        return {
            **ledgers,
            "zombie": partial(self.write, self.ids[0]),
            "copier": self.copies.copy,
            "other-copier": self.copies.copy,
            "curious-reader": self.read_all,
            "late-coordinator": self.repeat_markers,
        }

    # -- programs -------------------------------------------------------------------------------

    async def write(self, transactional_id: str, machine: Machine) -> None:
        """Make transactions until it is over."""
        stream = self._workload.stream(machine)
        while not self._workload.is_over:
            life = self._workload.next_life(machine)
            client = self._client(transactional_id, machine, stream)
            with suppress(ApiError, OSError):
                await self._write_on(client, life, stream)
            client.close()
            await pause(stream.random() * AWAY_MS_MAX)

    async def read_all(self, machine: Machine) -> None:
        """Read until the run is over, including uncommitted records."""
        await self._workload.read_into(self.uncommitted, ALL, machine)

    async def repeat_markers(self, machine: Machine) -> None:
        """Write markers of some time ago again, as a coordinator that has heard no answer."""
        stream = self._workload.stream(machine)
        while not self._workload.is_over:
            with suppress(ApiError, OSError):
                async with self._workload.view(machine) as view:
                    await self._repeat_on(view, stream)

    async def fence_all(self, machine: Machine) -> None:
        """Take every transactional id, which ends all transactions."""
        stream = self._workload.stream(machine)
        for one in [*self.ids, COPIERS]:
            client = self._client(one, machine, stream)
            await client.init()
            client.close()

    async def finish(self, machine: Machine) -> dict[tuple[str, TopicPartition], int]:
        """Copy the rest, read everything, and return the committed offsets of groups."""
        await self.copies.finish(machine)
        async with self._workload.view(machine) as view:
            operation = self.uncommitted.begin(self._workload.next_life(machine))
            names = self._workload.partitions
            take(self.uncommitted, operation, await all_of(view, machine.clock, names, ALL))
            groups = AsyncAdmin.over(view).groups
            committed = {one: await groups.committed(one) for one in self.ids}
        return {
            (one, name): found.offset
            for one, by_partition in committed.items()
            for name, found in by_partition.items()
        }

    # -- work until a failure -------------------------------------------------------------------

    async def _write_on(self, client: Client, life: str, stream: Random) -> None:
        while not self._workload.is_over:
            if client.needs_init:
                await client.init()
            transaction = RecordedTransaction(client, self._workload.history, life, stream)
            try:
                await self._fill(transaction, client.transactional_id, life, stream)
                await self._end(transaction, life, stream)
            except (ApiError, OSError):
                if not transaction.has_failed or stream.random() < GIVES_UP:
                    raise
                await transaction.abort()
            await self._workload.rest(stream)

    async def _repeat_on(self, view: ClusterView, stream: Random) -> None:
        while not self._workload.is_over:
            await pause(stream.random() * MARKERS_LATE_MS_MAX)
            # In the first version a marker does not say which transaction it is for.
            known = [one for one in self._decisions[-RECENT:] if one.version >= EPOCH_BUMP_VERSION]
            await _mark(view, stream.sample(known, min(1, len(known))))

    async def _fill(
        self, transaction: RecordedTransaction, group_id: str, life: str, stream: Random
    ) -> None:
        for _ in range(stream.randint(1, SENDS_MAX)):
            values = [self._next_value(life) for _ in range(stream.randint(1, VALUES_MAX))]
            await transaction.send(stream.choice(self._workload.partitions), values)
        if stream.random() < WITH_OFFSETS:
            self._count += 1
            name = stream.choice(self._workload.partitions)
            await transaction.send_offset(group_id, name, self._count)

    async def _end(self, transaction: RecordedTransaction, life: str, stream: Random) -> None:
        if stream.random() < SLOW:
            await pause(2 * TIMEOUT_MS)
        if stream.random() < IMPATIENT:
            name = stream.choice(self._workload.partitions)
            await transaction.send_unheard(name, self._next_value(life))
            await pause(stream.random() * IMPATIENT_MS_MAX)
            await transaction.abort()
        elif stream.random() < COMMITTED:
            await transaction.commit()
        else:
            await transaction.abort()

    # -- common parts ---------------------------------------------------------------------------

    def _client(self, transactional_id: str, machine: Machine, stream: Random) -> Client:
        def open_view(servers: Sequence[Address] = ()) -> ClusterView:
            return self._workload.view(machine, servers)

        if stream.random() < OF_PRODUCTION:
            return RealTransactionalClient(
                transactional_id, open_view, machine, timeout_ms=TIMEOUT_MS, block_ms=BLOCK_MS
            )
        return TransactionalClient(
            transactional_id,
            open_view,
            machine.clock,
            stream,
            is_second=stream.random() < SECOND_VERSION,
            timeout_ms=TIMEOUT_MS,
        )

    def _next_value(self, life: str) -> str:
        self._count += 1
        return f"{life}.{self._count}"


async def _mark(view: ClusterView, decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        for leader, names in (await view.by_leader(decision.partitions)).items():
            marker = WritableTxnMarker(
                producer_id=decision.producer_id,
                producer_epoch=decision.producer_epoch,
                transaction_result=decision.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name.topic, partition_indexes=[name.partition])
                    for name in names
                ],
                coordinator_epoch=decision.coordinator_epoch,
                transaction_version=decision.version,
            )
            request = WriteTxnMarkersRequest(markers=[marker])
            await view.ask_broker(leader, request, WriteTxnMarkersResponse)
