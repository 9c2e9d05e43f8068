"""Random faults: kind, time, target and duration are drawn from a seed."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.simulation.world.machine import Machine, Program
from ottla.simulation.world.world import World

LOSS_MAX: Final = 0.3
FAULT_SECONDS: Final = 1.5
"""The mean duration of a fault."""


class Fault(Enum):
    """Faults of a machine, or between two machines."""

    KILL = "kill"
    STOP = "stop"
    """A clean stop, as by SIGTERM."""
    POWER = "power cut"
    PAUSE = "pause"
    PARTITION = "partition"
    ONE_WAY = "one-way partition"
    RESET = "reset"
    LOSS = "packet loss"
    CLIENT = "client killed"


class Nemesis:
    """Lets one fault after the other happen to servers that have to survive it."""

    def __init__(
        self,
        world: World,
        stream: Random,
        servers: Mapping[str, Program],
        clients: Mapping[str, Program],
        stop: Callable[[str], None],
        faults: Sequence[Fault],
        *,
        pause_seconds: float = 1.0,
        fault_seconds: float = FAULT_SECONDS,
    ) -> None:
        """Servers and clients are programs by machine; `stop` asks a server to stop cleanly."""
        self.counts: Counter[Fault] = Counter()
        self._world = world
        self._stream = stream
        self._servers = servers
        self._clients = clients
        self._stop = stop
        self._faults = list(faults)
        self._pause_seconds = pause_seconds
        self._fault_seconds = fault_seconds

    async def run(self, seconds: float) -> None:
        """Go on for this long; at the end everything is as it should be, or on its way there."""
        if not self._faults:
            await self._world.elapse(seconds)
            return
        over_at = self._world.loop.time() + seconds
        while self._world.loop.time() < over_at:
            await self._world.elapse(self._draw(self._pause_seconds))
            fault = self._stream.choice(self._faults)
            names = list(self._clients if fault is Fault.CLIENT else self._servers)
            machine = self._world.machine(self._stream.choice(names))
            await self.happen(fault, machine)

    async def happen(self, fault: Fault, machine: Machine) -> None:
        """Let a fault happen to a machine that runs; return when it is over."""
        self.counts[fault] += 1
        self._note(machine.name, fault.value)
        if fault is Fault.RESET:
            self._reset(machine)
        elif fault in {Fault.PARTITION, Fault.ONE_WAY, Fault.LOSS}:
            await self._disturb(fault, machine)
        elif fault is Fault.PAUSE:
            machine.pause()
            await self._last()
            machine.resume()
        else:
            await self._end(fault, machine)
            await self._last()
            machine.start({**self._servers, **self._clients}[machine.name])

    async def _end(self, fault: Fault, machine: Machine) -> None:
        if fault in {Fault.KILL, Fault.CLIENT}:
            machine.kill()
        elif fault is Fault.POWER:
            machine.cut_power()
        else:
            self._stop(machine.name)
            await machine.ended()

    def _reset(self, machine: Machine) -> None:
        for connected in self._world.network.connections(machine.name):
            if self._stream.random() < 0.5:
                self._world.network.reset(connected)

    async def _disturb(self, fault: Fault, machine: Machine) -> None:
        """Cut a machine off from some others, or let packets get lost, for a while."""
        others = [name for name in self._world.machines if name != machine.name]
        chosen = [name for name in others if self._stream.random() < 0.6]
        there = [(machine.name, name) for name in chosen]
        back = [(name, machine.name) for name in chosen]
        is_one_way = fault is Fault.ONE_WAY
        ways = self._stream.choice([there, back]) if is_one_way else there + back
        network = self._world.network
        for way in ways:
            self._note(fault.value, "from {} to {}".format(*way))
            if fault is Fault.LOSS:
                network.link(*way).loss = self._stream.random() * LOSS_MAX
            else:
                network.block(*way)
        await self._last()
        for way in ways:
            network.link(*way).loss = 0.0
            network.unblock(*way)
        self._note(fault.value, "is over")

    def _note(self, *words: str) -> None:
        self._world.trace.note(self._world.loop.time(), *words)

    async def _last(self) -> None:
        await self._world.elapse(self._draw(self._fault_seconds))

    def _draw(self, mean_seconds: float) -> float:
        return self._stream.expovariate(1 / mean_seconds)
