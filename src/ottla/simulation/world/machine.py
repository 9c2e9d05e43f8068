"""A machine: a name, a disk, clocks, and the process that runs on it."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Any

from ottla.simulation.world.clock import SimulatedClock
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import Keep
from ottla.simulation.world.network import SimulatedNetwork
from ottla.simulation.world.process import Process
from ottla.simulation.world.randomness import SimulatedRandomness
from ottla.simulation.world.virtual_loop import VirtualLoop

Program = Callable[["Machine"], Coroutine[Any, Any, Any]]


class Machine:
    """Runs one program at a time; its disk keeps its content when the program ends."""

    def __init__(
        self, name: str, loop: VirtualLoop, network: SimulatedNetwork, stream: Random
    ) -> None:
        self.name = name
        self.loop = loop
        self.network = network
        self.clock = SimulatedClock(loop, stream.randrange(1_000_000))
        self.disk = SimulatedDisk(stream, now_ms=self.clock.now_ms)
        self.randomness = SimulatedRandomness(stream)
        self.process: Process | None = None
        self.task: asyncio.Task[Any] | None = None
        self._is_powered = True
        self._power_cuts = 0

    @property
    def boot_id(self) -> str:
        """Which start of the machine this is."""
        return f"{self.name} after {self._power_cuts} power cuts"

    @property
    def is_running(self) -> bool:
        """Whether a process is there that has not come to its end; it may be paused."""
        return self.process is not None and self.process.is_alive

    def start(self, program: Program) -> asyncio.Task[Any]:
        """Turn the machine on if it is off, and run a program."""
        assert not self.is_running, f"{self.name} runs already"
        if not self._is_powered:
            self._is_powered = True
            self.network.power_on(self.name)
        self.process = process = Process(self.name)
        self.note("start")
        task: asyncio.Task[Any] = process.context.run(self.loop.create_task, program(self))
        self.task = task
        task.add_done_callback(partial(self._on_done, process))
        return task

    async def ended(self) -> Any:
        """Wait for the end of the program; return its result, or raise its exception."""
        assert self.task is not None, f"{self.name} was never started"
        return await self.task

    def kill(self) -> None:
        """End the process as `kill -9` does: the kernel and its page cache live on."""
        process = self._end("kill")
        self.network.end_process(process)
        self.disk.kill()

    def cut_power(self, keep: Keep = "random") -> None:
        """Cut the machine's power at this moment."""
        process = self._end("power")
        self._is_powered = False
        self._power_cuts += 1
        self.network.power_off(process)
        self.disk.crash(keep)

    def pause(self) -> None:
        """Stop the process without ending it; its connections stay open."""
        assert self.process is not None
        self.note("pause")
        self.process.pause()

    def resume(self) -> None:
        """Let a paused process go on."""
        assert self.process is not None
        self.note("resume")
        self.loop.resume(self.process)

    def note(self, event: str) -> None:
        """Record an event in the trace, for people to read."""
        self.loop.trace.note(self.loop.time(), self.name, event)

    def _on_done(self, process: Process, task: asyncio.Task[Any]) -> None:
        """Clean up after a program that has ended, as after a killed one."""
        if task is self.task and self.is_running:
            self.network.end_process(self._end("end"))
            self.disk.kill()
        if not task.cancelled() and (error := task.exception()) is not None:
            told = {"message": f"the program of {self.name} failed", "exception": error}
            process.context.run(self.loop.call_exception_handler, told)

    def _end(self, how: str) -> Process:
        assert self.process is not None
        assert self.process.is_alive, f"{self.name} does not run"
        self.note(how)
        self.process.is_alive = False
        return self.process
