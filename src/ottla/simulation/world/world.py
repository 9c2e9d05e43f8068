"""A world from one seed: a loop, a network, and machines on it.

Its trace is one number: equal traces mean equal runs.
"""

import asyncio
import marshal
from collections.abc import Coroutine
from hashlib import blake2b
from typing import Any, Final, TypeVar

from ottla.simulation.world.machine import Machine
from ottla.simulation.world.network import SimulatedNetwork
from ottla.simulation.world.randomness import dice
from ottla.simulation.world.virtual_loop import VirtualLoop

UNHASHED_MAX: Final = 4000
"""So many words are hashed together."""
PLAIN: Final = 2
"""The version in which marshal writes equal values as equal bytes, with or without references."""

T = TypeVar("T")


class Trace:
    """Hashes every event; optionally keeps readable lines, too."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.keeps_lines = keeps_lines
        self.lines: list[str] = []
        """Every event."""
        self.news: list[str] = []
        """Recorded notes: a few lines where events are thousands."""
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[float | str] = []

    def add(self, now: float, *words: str | int) -> None:
        """Take an event at a moment. Words must not hold addresses, nor anything of the host."""
        unhashed = self._unhashed
        unhashed += (now, *words)
        if len(unhashed) >= UNHASHED_MAX:
            self._hash_all()
        if self.keeps_lines:
            self.lines.append(_line(now, words))

    def note(self, now: float, *words: str | int) -> None:
        """Take an event that people want to know of."""
        self.add(now, *words)
        self.tell(now, *words)

    def tell(self, now: float, *words: object) -> None:
        """Keep a line for people: it is not an event, and may hold anything."""
        if self.keeps_lines:
            self.news.append(_line(now, words))

    def digest(self) -> str:
        """Return the number, of all events so far."""
        self._hash_all()
        return self._hash.hexdigest()

    def _hash_all(self) -> None:
        self._hash.update(marshal.dumps(self._unhashed, PLAIN))
        self._unhashed.clear()


def _line(now: float, words: tuple[object, ...]) -> str:
    return f"{now:.6f} {' '.join(map(str, words))}"


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
