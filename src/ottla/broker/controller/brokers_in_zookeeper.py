"""Serves brokers with their metadata in ZooKeeper, from a controller during a migration.

They fetch the decisions of the controller, as they do from a controller in ZooKeeper.
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor

from ottla.broker.controller.metadata_log_server import MetadataFetch, MetadataSnapshots
from ottla.broker.controller.metadata_propagation import PropagationBarrier, Spread
from ottla.broker.metadata_store.metadata_history import MetadataFeed
from ottla.broker.metadata_store.migration.migration import Migration
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.machines.controller.machine import Controller
from ottla.model.identifiers import ZERO_UUID, BrokerId
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest


class BrokersInZooKeeper:
    """Belongs to one event loop."""

    def __init__(
        self, node_id: BrokerId, migration: Migration, clock: Clock, threads: Executor | None
    ) -> None:
        self._migration = migration
        self._clock = clock
        notifier = Notifier(clock)
        self.snapshots = MetadataSnapshots(threads)
        self.fetch = MetadataFetch(node_id, self.feed, self.snapshots, notifier)
        self._barrier = PropagationBarrier(node_id, self.feed, self.fetch, clock, notifier)

    def feed(self) -> MetadataFeed | None:
        """Return the decisions for these brokers, while this controller is active."""
        return None if self._migration.term is None else self._migration.term.feed

    def is_meant(self, request: FetchRequest | FetchSnapshotRequest) -> bool:
        """Return whether a fetch comes from one of these brokers, and from no replica of the log.

        A replica names its directory.
        """
        return all(
            partition.replica_directory_id == ZERO_UUID
            for topic in request.topics
            for partition in topic.partitions
        )

    def note_offsets(self, controller: Controller) -> None:
        """Tell the sessions of an active controller how far these brokers are."""
        term = self._migration.term
        if term is None:
            return
        now_ms = self._clock.monotonic_ms()
        for broker in controller.image.brokers.values():
            fetched = self.fetch.fetched.get(broker.broker_id)
            if broker.is_in_zookeeper and fetched is not None:
                offset = term.log_offset(fetched - 1)
                controller.sessions.heard(broker, offset, now_ms)

    def spread_after(self, spread: Spread) -> Spread:
        """Return a function that waits for brokers of both kinds."""

        async def spread_both(codes: Iterable[int], timeout_ms: int) -> None:
            known = tuple(codes)
            await asyncio.gather(spread(known, timeout_ms), self._barrier.spread(known, timeout_ms))

        return spread_both
