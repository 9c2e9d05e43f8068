"""One simulated broker: clients write, read and commit while it dies, pauses and is cut off.

Members of a group, if there are any, die, pause and are cut off like the broker.

The seed determines the number of clients, the latency of the network, the faults, the sizes of
segments, and whether the broker flushes before it acknowledges. If it does, power cuts are among
the faults.
"""

import asyncio
from dataclasses import dataclass
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.model.address import Address
from ottla.simulation.checks.checkers import Violation, check_history, lost_commits
from ottla.simulation.checks.history import History
from ottla.simulation.faults.nemesis import FAULT_SECONDS, Fault, Nemesis
from ottla.simulation.stories.broker_program import PORT, BrokerProgram, complaints_of
from ottla.simulation.stories.report import Report, report_of
from ottla.simulation.workloads.group_workload import GroupWorkload
from ottla.simulation.workloads.workload import Workload
from ottla.simulation.world.randomness import dice
from ottla.simulation.world.world import World

BROKER: Final = "broker"
SECONDS: Final = 30.0
SETTLED_SECONDS_MAX: Final = 120.0
"""The limit for recovery after the last fault."""
PARTITIONS_MAX: Final = 3
WRITERS_MAX: Final = 3
DELAY_SECONDS_MAX: Final = 0.02
LONG_FAULT_SECONDS: Final = 6.0
"""The mean with members: a third of the faults are longer than the session timeout."""
FLUSHED: Final = {"log.flush.interval.messages": "1"}
RESTLESS: Final = {
    "log.roll.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
"""Many small segments, checkpoints and compactions of committed offsets."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of a run."""

    partitions: int
    writers: int
    delay_seconds: float
    faults: tuple[Fault, ...]
    settings: dict[str, str]
    members: int = 0
    """The number of members of a group; faults happen to them as to the broker."""
    strategy: tuple[str, ...] = ()
    is_static: bool | None = None

    @classmethod
    def draw(cls, stream: Random) -> "Setting":
        """Draw one; a fault that is not possible in it is not in it."""
        is_flushed = stream.random() < 0.5
        possible = [fault for fault in Fault if is_flushed or fault is not Fault.POWER]
        faults = [fault for fault in possible if stream.random() < 0.6]
        return cls(
            partitions=stream.randint(1, PARTITIONS_MAX),
            writers=stream.randint(1, WRITERS_MAX),
            delay_seconds=stream.random() * DELAY_SECONDS_MAX,
            faults=tuple(faults),
            settings={
                **(FLUSHED if is_flushed else {}),
                **(RESTLESS if stream.random() < 0.5 else {}),
            },
        )


def run(
    seed: int,
    *,
    seconds: float = SECONDS,
    setting: Setting | None = None,
    keeps_lines: bool = False,
) -> Report:
    """Run it, with faults for so many simulated seconds, and check everything."""
    drawn = setting or Setting.draw(dice(seed, "setting"))
    world = World(seed, keeps_lines=keeps_lines)
    story = _Story(world, seed, drawn)
    with complaints_of(world) as complaints:
        violations = world.run(story.tell(seconds))
    return report_of(
        world,
        story.history,
        setting=drawn,
        faults={fault.value: count for fault, count in story.nemesis.counts.items()},
        violations=[*violations, *complaints.violations()],
    )


class _Story:
    def __init__(self, world: World, seed: int, setting: Setting) -> None:
        self.history = History(world.loop.time)
        self._world = world
        self._setting = setting
        self._workload = Workload(
            self.history, [Address(BROKER, PORT)], seed, partitions=setting.partitions
        )
        self._program = BrokerProgram(setting.settings)
        self._group = GroupWorkload(
            self._workload,
            dice(seed, "group"),
            world.loop.time,
            strategy=setting.strategy,
            is_static=setting.is_static,
        )
        members = {f"member-{number}": self._group.belong for number in range(setting.members)}
        self._clients = {**self._workload.programs(setting.writers), **members}
        self.nemesis = Nemesis(
            world,
            dice(seed, "nemesis"),
            {BROKER: self._program, **members},
            self._clients,
            lambda _: self._program.stop(),
            setting.faults,
            fault_seconds=LONG_FAULT_SECONDS if members else FAULT_SECONDS,
        )

    async def tell(self, seconds: float) -> list[Violation]:
        """Run it, and return the violations."""
        try:
            async with asyncio.timeout(None) as patience:
                return await self._tell(seconds, patience)
        except TimeoutError:
            return [Violation("L1 stuck", "a client has not finished in time")]

    async def _tell(self, seconds: float, patience: asyncio.Timeout) -> list[Violation]:
        patience.reschedule(self._world.loop.time() + SETTLED_SECONDS_MAX)
        world, workload = self._world, self._workload
        world.machine(BROKER).start(self._program)
        await world.machine("setup").start(workload.create_topic)
        for name, program in self._clients.items():
            for way in ((name, BROKER), (BROKER, name)):
                world.network.link(*way).delay_seconds = self._setting.delay_seconds
            world.machine(name).start(program)
        patience.reschedule(None)
        await self.nemesis.run(seconds)
        patience.reschedule(world.loop.time() + SETTLED_SECONDS_MAX)
        workload.is_over = True
        for name in self._clients:
            await world.machine(name).ended()
        committed = await world.machine("last-reader").start(workload.read_to_the_end)
        self._program.stop()
        await world.machine(BROKER).ended()
        return [
            *check_history(self.history),
            *lost_commits(self.history.commits, committed),
            *self._group.violations(),
        ]
