"""Moments at which a fault is most harmful: it waits for one, and happens in the very next step.

By chance alone a machine rarely dies between an append and the fetch that makes it safe, or during
an AlterPartition request. Each kind of moment is a change of one replica; the check that looks at
all replicas after every step finds it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition
from ottla.simulation.checks.replica_model import Mirror


class Moment(Enum):
    """A change of a replica."""

    APPENDED = "the leader has what no follower has"
    COMMITTED = "the leader knows that it is committed, and nobody else"
    ELECTED = "it begins to lead"
    FOLLOWED = "it begins to follow"
    ASKED = "the leader has asked for others to be in sync"
    DECIDED = "the leader hears who is in sync"


class Seen(NamedTuple):
    """The fields of a replica that define moments."""

    leader_epoch: int
    end_offset: int
    high_watermark: int
    in_sync: InSync | None
    proposed: tuple[int, ...] | None
    isr: tuple[int, ...]

    @classmethod
    def of(cls, partition: Partition) -> "Seen":
        """Look at a replica."""
        in_sync = partition.in_sync
        return cls(
            partition.leader_epoch,
            partition.log.end_offset,
            partition.high_watermark,
            in_sync,
            None if in_sync is None else in_sync.proposed,
            () if in_sync is None else in_sync.isr,
        )


def _is_same_leader(before: Seen, now: Seen) -> bool:
    return now.in_sync is not None and now.in_sync is before.in_sync


_IS_IT: dict[Moment, Callable[[Seen, Seen], bool]] = {
    Moment.APPENDED: lambda before, now: (
        _is_same_leader(before, now) and now.end_offset > before.end_offset
    ),
    Moment.COMMITTED: lambda before, now: (
        _is_same_leader(before, now) and now.high_watermark > before.high_watermark
    ),
    Moment.ELECTED: lambda before, now: (
        now.in_sync is not None and now.in_sync is not before.in_sync
    ),
    Moment.FOLLOWED: lambda before, now: (
        now.in_sync is None and now.leader_epoch != before.leader_epoch
    ),
    Moment.ASKED: lambda before, now: now.proposed is not None and before.proposed is None,
    Moment.DECIDED: lambda before, now: _is_same_leader(before, now) and now.isr != before.isr,
}


class Moments:
    """The waiters of each moment. `look_at` is called for every changed replica."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[str], Moment] = {}
        self._seen: dict[Partition, Seen] = {}

    async def next(self, moment: Moment, seconds_max: float) -> str | None:
        """Wait for a moment; return the machine that it has come to, None if it does not come."""
        coming: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[coming] = moment
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds_max):
                    return await coming
            return None
        finally:
            del self._waiting[coming]

    def look_at(self, machine: str, partition: Partition, _: Mirror, _committed: int) -> None:
        """Find the change of a replica, and wake the waiters of that moment."""
        now = Seen.of(partition)
        before = self._seen.get(partition)
        self._seen[partition] = now
        if before is None:
            return
        for coming, moment in self._waiting.items():
            if not coming.done() and _IS_IT[moment](before, now):
                coming.set_result(machine)
