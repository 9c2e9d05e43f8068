"""Random faults of a cluster, two at a time: machines, disks, network and ZooKeeper.

Leaders and controllers are hit more often than others, because bugs are there, and at the most
harmful moments. By chance alone a machine rarely dies between an append and the fetch that makes it
safe, or during an AlterPartition request. Each kind of moment is a change of one replica; the check
that looks at all replicas after every step finds it, and the fault happens in the very next step.

A machine loses power, or a log dir, only while others have its data: then nothing may be lost,
flushed or not. If all in-sync replicas lost their tails at once, a loss would be legitimate.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final, NamedTuple

from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition
from ottla.simulation.checks.replica_model import ReplicaModel
from ottla.simulation.faults.nemesis import Fault, Nemesis
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.zookeeper import MACHINE as ZOOKEEPER
from ottla.simulation.world.zookeeper import SimulatedZooKeeper

HANDS: Final = 2
CHASED: Final = 0.5
"""How often a fault hits a leader or the controller."""
AIM_SECONDS_MAX: Final = 2.0
"""How long a fault waits for its moment."""
HIT_THERE: Final = 0.6
"""How often it then hits the machine at which a moment was seen."""
CLOCK_JUMP_MS_MAX: Final = 3_600_000
DELAY_SECONDS_MAX: Final = 1.5
"""Longer than a client of ZooKeeper waits for an answer."""


class Moment(Enum):
    """A change of a replica."""

    APPENDED = "the leader has records that no follower has"
    COMMITTED = "only the leader knows that it is committed"
    ELECTED = "it begins to lead"
    FOLLOWED = "it begins to follow"
    ASKED = "the leader has asked for others to be in sync"
    DECIDED = "the leader learns the ISR"


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

    def look_at(self, machine: str, partition: Partition, _: ReplicaModel, _committed: int) -> None:
        """Find the change of a replica, and wake the waiters of that moment."""
        now = Seen.of(partition)
        before = self._seen.get(partition)
        self._seen[partition] = now
        if before is None:
            return
        for coming, moment in self._waiting.items():
            if not coming.done() and _IS_IT[moment](before, now):
                coming.set_result(machine)


class Trouble(Enum):
    """Faults besides the faults of single machines."""

    EXPIRY = "session expired"
    ZOOKEEPER_CUT = "cut off from ZooKeeper"
    SLOW_ZOOKEEPER = "slow ZooKeeper"
    SLOW_LINK = "slow link"
    HELD_CONNECTION = "held connection"
    CLOCK = "clock jump"
    DISK_ERROR = "disk error"
    DISK_FULL = "disk full"


Kind = Fault | Trouble
LOSES_TAIL: Final = frozenset({Fault.POWER, Trouble.DISK_ERROR})
"""Faults that may lose unflushed data."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The nemesis' view of the cluster."""

    zookeeper: SimulatedZooKeeper
    folders: Sequence[str]
    moments: Moments
    is_spare: Callable[[str], bool]
    """Whether others have all that a machine has, even if its tail gets lost."""
    important: Callable[[], Sequence[str]]
    """The machines of leaders and of the controller."""
    restart: Callable[[Machine], None]
    excuse: Callable[[str], None]
    """Told of a machine that has reason to complain."""


class ClusterNemesis:
    """Causes faults; `nemesis` causes faults of single machines."""

    def __init__(
        self,
        nemesis: Nemesis,
        stream: Random,
        surroundings: Surroundings,
        machines: Mapping[str, Machine],
        clients: Mapping[str, Machine],
        kinds: Sequence[Kind],
        *,
        pace_seconds: float,
        aimed: float,
    ) -> None:
        """Of the faults so many (`aimed`) wait for their moment."""
        self.counts: dict[str, int] = {}
        self._nemesis = nemesis
        self._stream = stream
        self._around = surroundings
        self._machines = machines
        self._clients = clients
        self._kinds = list(kinds)
        self._pause_seconds = pace_seconds
        self._fault_seconds = 2 * pace_seconds
        self._aimed = aimed
        self._busy: set[str] = set()
        self._is_tail_at_risk = False
        self._delay_by_way: dict[tuple[str, str], float] = {}
        self._acts: dict[Trouble, Callable[[Machine], Awaitable[None]]] = {
            Trouble.EXPIRY: self._expire,
            Trouble.ZOOKEEPER_CUT: self._cut_zookeeper,
            Trouble.SLOW_ZOOKEEPER: self._slow_zookeeper,
            Trouble.SLOW_LINK: self._slow_link,
            Trouble.HELD_CONNECTION: self._hold_connections,
            Trouble.CLOCK: self._jump,
            Trouble.DISK_ERROR: self._break_disk,
            Trouble.DISK_FULL: self._fill_disk,
        }

    async def run(self, seconds: float) -> None:
        """Cause faults for this long, and wait until all of them are over."""
        loop = self._around.zookeeper.loop
        if not self._kinds:
            await loop.elapse(seconds)
            return
        over_at = loop.time() + seconds
        await asyncio.gather(*(self._run(over_at) for _ in range(HANDS)))

    async def _run(self, over_at: float) -> None:
        loop = self._around.zookeeper.loop
        while loop.time() < over_at:
            await self._elapse(self._pause_seconds)
            kind = self._stream.choice(self._kinds)
            machine = await self._victim(kind)
            if machine.is_running and machine.name not in self._busy and self._may(kind, machine):
                self._busy.add(machine.name)
                self._is_tail_at_risk |= kind in LOSES_TAIL
                await self.happen(kind, machine)
                self._is_tail_at_risk &= kind not in LOSES_TAIL
                self._busy.discard(machine.name)

    def _may(self, kind: Kind, machine: Machine) -> bool:
        is_lossy = kind in LOSES_TAIL
        return not is_lossy or (not self._is_tail_at_risk and self._around.is_spare(machine.name))

    async def _victim(self, kind: Kind) -> Machine:
        """Draw a machine, perhaps when its moment has come."""
        if kind is Fault.CLIENT:
            return self._clients[self._stream.choice(list(self._clients))]
        if self._stream.random() < self._aimed:
            moment = self._stream.choice([*Moment])
            there = await self._around.moments.next(moment, AIM_SECONDS_MAX)
            if there is not None and self._stream.random() < HIT_THERE:
                return self._machines[there]
        important = self._around.important()
        is_chased = important and self._stream.random() < CHASED
        return self._machines[self._stream.choice(important if is_chased else [*self._machines])]

    async def happen(self, kind: Kind, machine: Machine) -> None:
        """Let one thing happen to a machine that runs; return when it is over."""
        self.counts[kind.value] = self.counts.get(kind.value, 0) + 1
        if isinstance(kind, Fault):
            await self._nemesis.happen(kind, machine)
        else:
            machine.note(kind.value)
            await self._acts[kind](machine)
            machine.note(f"{kind.value} is over")

    # -- ZooKeeper ------------------------------------------------------------------------------

    async def _expire(self, machine: Machine) -> None:
        self._around.zookeeper.expire_last_of(machine.name)
        await self._elapse(self._pause_seconds)

    async def _cut_zookeeper(self, machine: Machine) -> None:
        ways = [(machine.name, ZOOKEEPER), (ZOOKEEPER, machine.name)]
        chosen = self._stream.choice([ways, ways[:1], ways[1:]])
        for way in chosen:
            machine.network.block(*way)
        await self._elapse(self._fault_seconds)
        for way in chosen:
            machine.network.unblock(*way)

    async def _slow_zookeeper(self, machine: Machine) -> None:
        await self._slow_down(machine, [(machine.name, ZOOKEEPER), (ZOOKEEPER, machine.name)])

    # -- network --------------------------------------------------------------------------------

    async def _slow_link(self, machine: Machine) -> None:
        others = [name for name in self._machines if name != machine.name]
        other = self._stream.choice(others)
        await self._slow_down(machine, [(machine.name, other), (other, machine.name)])

    async def _slow_down(self, machine: Machine, ways: Sequence[tuple[str, str]]) -> None:
        chosen = [way for way in ways if self._stream.random() < 0.7]
        for way in chosen:
            link = machine.network.link(*way)
            # Another fault may have slowed it down already: its present delay need not be its own.
            self._delay_by_way.setdefault(way, link.delay_seconds)
            link.delay_seconds = self._stream.random() * DELAY_SECONDS_MAX
        await self._elapse(self._fault_seconds)
        for way in chosen:
            machine.network.link(*way).delay_seconds = self._delay_by_way[way]

    async def _hold_connections(self, machine: Machine) -> None:
        """Delay a connection, so that its data arrives after a retry on another connection."""
        for connected in machine.network.connections(machine.name):
            if self._stream.random() < 0.5:
                machine.network.hold(connected, self._stream.expovariate(1 / self._fault_seconds))
        await self._elapse(self._pause_seconds)

    # -- machines -------------------------------------------------------------------------------

    async def _jump(self, machine: Machine) -> None:
        jump = self._stream.randrange(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)
        machine.clock.skew_ms += jump
        await self._elapse(self._pause_seconds)

    async def _break_disk(self, machine: Machine) -> None:
        """Let a directory fail until the machine is started anew, as with another cable.

        In between a broker may have to start without the directory.
        """
        self._around.excuse(machine.name)
        kind = self._stream.choice([None, OperationKind.SYNC, OperationKind.WRITE])
        machine.disk.faults.fail_on(kind, under=self._stream.choice(self._around.folders))
        await self._elapse(self._fault_seconds)
        if machine.is_running and self._stream.random() < 0.5:
            machine.kill()
            self._around.restart(machine)
            await self._elapse(self._fault_seconds)
        machine.disk.faults.heal()
        if machine.is_running:
            machine.cut_power()
        self._around.restart(machine)

    async def _fill_disk(self, machine: Machine) -> None:
        self._around.excuse(machine.name)
        folder = self._stream.choice(self._around.folders)
        machine.disk.faults.fail_on(OperationKind.WRITE, folder, errno.ENOSPC)
        await self._elapse(self._fault_seconds)
        machine.disk.faults.heal()

    async def _elapse(self, mean_seconds: float) -> None:
        await self._around.zookeeper.loop.elapse(self._stream.expovariate(1 / mean_seconds))
