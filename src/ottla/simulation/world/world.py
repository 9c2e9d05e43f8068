"""A world from one seed: a loop, a network, and machines on it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.simulation.world.machine import Machine
from ottla.simulation.world.network import SimulatedNetwork
from ottla.simulation.world.randomness import dice
from ottla.simulation.world.virtual_loop import Trace, VirtualLoop

T = TypeVar("T")


class World:
    """Everything that a simulation has; `run` it once."""

    def __init__(self, seed: int, *, keeps_lines: bool = False) -> None:
        self.seed = seed
        self.trace = Trace(keeps_lines=keeps_lines)
        self.loop = VirtualLoop(dice(seed, "threads"), self.trace)
        self.network = SimulatedNetwork(self.loop, dice(seed, "network"))
        self.machines: dict[str, Machine] = {}

    def machine(self, name: str) -> Machine:
        """Return the machine of this name, made if it is not there."""
        known = self.machines.get(name)
        if known is None:
            known = Machine(name, self.loop, self.network, dice(self.seed, f"machine:{name}"))
            self.machines[name] = known
        return known

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run a story to its end, and return its result; then the world is gone."""
        asyncio.set_event_loop(None)
        try:
            return self.loop.run_until_complete(story)
        finally:
            self.loop.close()

    async def elapse(self, seconds: float) -> None:
        """Let time pass."""
        await self.loop.elapse(seconds)
