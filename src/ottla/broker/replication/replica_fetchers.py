"""One fetcher for each broker that leads something that is followed here."""

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from ottla.broker.replication.fetcher_world import FetcherWorld
from ottla.broker.replication.replica_fetcher import ReplicaFetcher
from ottla.replication.in_sync import NO_LEADER
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.model.identifiers import BrokerId


class Hold(Enum):
    """Why a partition is not fetched, although another broker leads it."""

    FULL_DISK = auto()
    DAMAGE = auto()


class Holding(Protocol):
    """The part of `ReplicaFetchers` that stops fetches."""

    def hold(self, partition: Partition, hold: Hold) -> None:
        """Stop all fetches for a partition, from any leader, until this hold is released."""
        ...

    def release(self, partition: Partition, hold: Hold) -> None:
        """Follow the leader again, unless it is this broker, or another hold is left."""
        ...


class _Running(NamedTuple):
    fetcher: ReplicaFetcher
    task: "asyncio.Task[None] | None"


class ReplicaFetchers:
    """Assigns partitions to fetchers. Belongs to one event loop.

    No fetch is sent before `start`. A fetcher without partitions ends at once, even while it waits:
    the next fetcher for that broker opens its own connection.
    """

    def __init__(self, world: FetcherWorld) -> None:
        self._world = world
        self._running: dict[BrokerId, _Running] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._leader_by_partition: dict[Partition, BrokerId] = {}
        self._holds: WeakKeyDictionary[Partition, set[Hold]] = WeakKeyDictionary()
        self._is_started = False

    def start(self) -> None:
        """Begin to fetch."""
        self._is_started = True
        for leader_id, (fetcher, _) in self._running.items():
            self._running[leader_id] = self._run(fetcher)

    def follow(self, partition: Partition) -> None:
        """Follow a partition's current leader, which is another broker.

        No-op if the disk has failed, because the leader trusts a fetching follower to store
        records, and while the partition is held.
        """
        if self._leader_by_partition.get(partition, NO_LEADER) != partition.leader_id:
            self.forget(partition)
        is_stopped = partition.log.is_offline or bool(self._holds.get(partition))
        if partition.leader_id == NO_LEADER or is_stopped:
            return
        leader_id = self._leader_by_partition[partition] = partition.leader_id
        running = self._running.get(leader_id)
        if running is None:
            running = self._run(ReplicaFetcher(leader_id, self._world))
            self._running[leader_id] = running
        running.fetcher.add(partition)

    def hold(self, partition: Partition, hold: Hold) -> None:
        """Stop all fetches for a partition, from any leader, until this hold is released."""
        self._holds.setdefault(partition, set()).add(hold)
        self.forget(partition)

    def release(self, partition: Partition, hold: Hold) -> None:
        """Follow the leader again, unless it is this broker, or another hold is left."""
        holds = self._holds.get(partition, set())
        if hold in holds:
            holds.discard(hold)
            if partition.in_sync is None:
                self.follow(partition)

    def leader_of(self, partition: Partition) -> int | None:
        """Return the broker that a partition is fetched from, NO_LEADER if there is none.

        None before the start, and while a damaged replica fetches nothing.
        """
        is_damaged = Hold.DAMAGE in self._holds.get(partition, ())
        is_fetched = self._is_started and not is_damaged
        return self._leader_by_partition.get(partition, NO_LEADER) if is_fetched else None

    def _run(self, fetcher: ReplicaFetcher) -> _Running:
        if not self._is_started:
            return _Running(fetcher, None)
        return _Running(fetcher, asyncio.get_running_loop().create_task(fetcher.run()))

    def forget(self, partition: Partition) -> None:
        """Follow it no more: it is led here, or nowhere, or not kept here any more."""
        leader_id = self._leader_by_partition.pop(partition, NO_LEADER)
        if leader_id == NO_LEADER:
            return
        fetcher, task = self._running[leader_id]
        fetcher.remove(partition)
        if not len(fetcher):
            del self._running[leader_id]
            self._end(task)

    def _end(self, task: "asyncio.Task[None] | None") -> None:
        if task is None:
            return
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def stop(self) -> None:
        """Stop all fetchers."""
        self._is_started = False
        for running in self._running.values():
            self._end(running.task)
        self._running.clear()
        self._leader_by_partition.clear()
        if self._ending:
            await asyncio.wait(list(self._ending))
