"""Log lines of simulated programs: all go into the trace, errors are violations."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.simulation.checks.checkers import Violation
from ottla.simulation.world.process import running_process
from ottla.simulation.world.world import World

LOGGERS: Final = ("ottla", "asyncio")
"""asyncio logs exceptions that no code has caught."""


class Complaints(logging.Handler):
    """Takes log lines, with the time and the machine that they come from."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.excused: set[str] = set()
        """Machines that have reason to complain."""
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        text = f"{record.levelname} {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({record.exc_info[1]!r})"
        self._world.trace.tell(self._world.loop.time(), running_process(), text)
        if record.levelno >= logging.ERROR and str(running_process()) not in self.excused:
            self.errors.append(f"at {self._world.loop.time():.3f} s {running_process()}: {text}")

    def violations(self) -> list[Violation]:
        """Return the errors: where disks are well there is no reason for any."""
        return [Violation("L3 error", error) for error in self.errors]


@contextmanager
def complaints_of(world: World) -> Iterator[Complaints]:
    """Capture all log lines of this Python process until the block ends."""
    taken = Complaints(world)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(one.level, one.propagate) for one in loggers]
    for one in loggers:
        one.addHandler(taken)
        one.setLevel(logging.INFO if world.trace.keeps_lines else logging.ERROR)
        one.propagate = False
    try:
        yield taken
    finally:
        for one, (level, propagates) in zip(loggers, before, strict=True):
            one.removeHandler(taken)
            one.setLevel(level)
            one.propagate = propagates
