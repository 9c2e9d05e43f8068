"""Snapshots of the metadata, kept for as long as other brokers take them piece by piece.

When a controller begins its term everybody wants one: they all get the same. But nobody gets one
that was overtaken before it was asked for: in an earlier life the broker may have known more, and
would take what it keeps for the rests of topics that nobody knows.
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
        """Return a snapshot that was told of, if it is still kept."""
        return next(
            (one for one in self._kept if (one.epoch, one.end_offset) == (epoch, end_offset)), None
        )
