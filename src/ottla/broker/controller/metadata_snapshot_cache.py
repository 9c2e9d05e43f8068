"""Snapshots of the metadata, kept for as long as other brokers take them piece by piece.

At the beginning of a term all brokers want a snapshot: they share one. But no broker gets a
snapshot that was outdated when it asked: its earlier incarnation may have known more, and it would
take replicas of newer topics for strays.
"""

import asyncio
from concurrent.futures import Executor
from typing import Final

from ottla.broker.metadata_store.metadata_history import MetadataFeed, Snapshot

KEPT_MAX: Final = 4
"""The newest, and some that others may still be taking."""


class MetadataSnapshots:
    """Makes snapshots of the controller's feed, and finds them again."""

    def __init__(self, threads: Executor | None) -> None:
        self._threads = threads
        self._kept: list[Snapshot] = []
        self._one_at_a_time = asyncio.Lock()

    async def of(self, feed: MetadataFeed) -> Snapshot:
        """Return a snapshot of all that the feed has now, or of more than that."""
        async with self._one_at_a_time:
            kept = self.find(feed.epoch, feed.end_offset)
            if kept is not None:
                return kept
            # In the background: it takes a while where there are many partitions.
            loop = asyncio.get_running_loop()
            made = await loop.run_in_executor(self._threads, feed.snapshot)
            self._kept = [*self._kept, made][-KEPT_MAX:]
            return made

    def find(self, epoch: int, end_offset: int) -> Snapshot | None:
        """Return an announced snapshot, if it is still kept."""
        return next(
            (one for one in self._kept if (one.epoch, one.end_offset) == (epoch, end_offset)), None
        )
