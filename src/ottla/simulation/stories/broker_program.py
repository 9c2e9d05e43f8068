"""A production broker as the program of a simulated machine, and the log lines of its brokers.

All log lines go into the trace, and errors are violations.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.broker_service import OpenService, no_service
from ottla.broker.startup.environment import Environment
from ottla.environment.zookeeper import ZooKeeperSession
from ottla.model.settings.broker_config import BrokerConfig
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.world import cold_reads
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.process import running_process
from ottla.simulation.world.world import World
from ottla.simulation.world.zookeeper import SimulatedZooKeeper

LOGGERS: Final = ("ottla", "asyncio")
"""asyncio logs exceptions that no code has caught."""
PORT: Final = 9092
DATA: Final = "/data"
DEFAULTS: Final = {
    "ottla.admin.listener": "",
    "log.dirs": DATA,
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}
"""Differences from other brokers: no HTTP, which needs a thread of its own, and fewer files."""


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


class BrokerProgram:
    """Runs a broker with these settings, which have Kafka's names, until it is told to stop.

    May be started again and again, on one machine: each time is another life of the same broker.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        zookeeper: SimulatedZooKeeper | None = None,
        on_start: Callable[[Broker], None] = lambda _: None,
        service_on: Callable[[Machine], OpenService] = lambda _: no_service,
    ) -> None:
        """`on_start` is told of the broker of each life, when it lets clients in."""
        self._settings = dict(settings or {})
        self._zookeeper = zookeeper
        self._on_start = on_start
        self._service_on = service_on
        self._stopping: asyncio.Event | None = None
        self.broker: Broker | None = None
        """The broker of this life, once it lets clients in."""

    async def __call__(self, machine: Machine) -> None:
        """Start, serve, stop."""
        self.broker = None
        stopping = self._stopping = asyncio.Event()
        listeners = f"PLAINTEXT://{machine.name}:{PORT}"
        config = BrokerConfig.parse({**DEFAULTS, "listeners": listeners, **self._settings})
        environment = environment_of(machine, self._zookeeper)
        self.broker = broker = await Broker.start(config, environment, self._service_on(machine))
        self._on_start(broker)
        await broker.serve_until(stopping)
        await broker.stop()

    def stop(self) -> None:
        """Ask for a clean stop, as SIGTERM does; the machine's task ends when that is done."""
        assert self._stopping is not None, "it was never started"
        self._stopping.set()


def environment_of(machine: Machine, zookeeper: SimulatedZooKeeper | None = None) -> Environment:
    """Return the environment of a broker on a simulated machine."""

    async def connect(_hosts: str, timeout_seconds: float) -> ZooKeeperSession:  # noqa: RUF029
        assert zookeeper is not None, "there is no ZooKeeper in this world"
        return zookeeper.connect(timeout_seconds)

    return Environment(
        machine.disk,
        machine.clock,
        machine.randomness,
        cold_reads,
        machine.name,
        machine.network,
        connect,
        machine.boot_id,
    )
