"""A measured broker in a process of its own: `python -m benchmarks.broker_process FOLDER`.

It prints its port, then responds to each line on stdin with the maximum delay of its event loop
since the previous line, in milliseconds. It ends when its stdin is closed.
"""

import argparse
import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from os import sysconf
from pathlib import Path

from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.observability import keep_young
from ottla.broker.startup.system_environment import this_machine
from ottla.model.settings.broker_config import BrokerConfig
from ottla.runtime import event_loop
from tests.blocking import LoopLag

LOOPS = ("asyncio", "uvloop")


@dataclass(frozen=True, slots=True)
class MeasuredBroker:
    """The process of any broker, with the measurements that benchmarks take of it."""

    pid: int
    port: int

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads, in the kernel too."""
        times = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / sysconf("SC_CLK_TCK")

    def memory_megabytes(self) -> float:
        """Return the memory of the process, libraries included."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise LookupError("no VmRSS")


@dataclass(frozen=True, slots=True)
class RunningBroker(MeasuredBroker):
    """One of our own, started from here."""

    process: "subprocess.Popen[str]"

    def lag_ms(self) -> float:
        """Return the loop's maximum delay since the last call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@contextmanager
def running_broker(folder: str, loop: str = "", **settings: str) -> Iterator[RunningBroker]:
    """Run a broker during the block. Settings are given with underscores."""
    options = [word for name, text in settings.items() for word in ("-X", f"{name}={text}")]
    command = [sys.executable, "-m", "benchmarks.broker_process", folder, *options]
    with subprocess.Popen(
        [*command, "--loop", loop] if loop else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield RunningBroker(process.pid, int(process.stdout.readline()), process)
        process.communicate("")


async def _serve(settings: dict[str, str]) -> None:
    broker = await Broker.start(BrokerConfig.parse(settings), this_machine())
    sys.stdout.write(f"{broker.endpoints.advertised('PLAINTEXT').port}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    lag = LoopLag(loop)
    ended = asyncio.Event()
    lag_started = False

    def on_line() -> None:
        nonlocal lag_started
        if not sys.stdin.readline():
            ended.set()
            return
        if not lag_started:
            lag_started = True
            lag.start()
        sys.stdout.write(f"{lag.max_ms}\n")
        sys.stdout.flush()
        lag.max_ms = 0.0

    loop.add_reader(sys.stdin, on_line)
    await ended.wait()
    lag.stop()
    await broker.stop()


def _new_loop(name: str) -> asyncio.AbstractEventLoop:
    """Return a loop of this name; without a name, the brokers' default."""
    module = import_module(name) if name else event_loop
    loop: asyncio.AbstractEventLoop = module.new_event_loop()
    return loop


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--loop", choices=LOOPS, default="")
    parser.add_argument("-X", dest="settings", action="append", default=[])
    options = parser.parse_args()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "ottla.admin.listener": "127.0.0.1:0",
        "log.dirs": options.folder,
    }
    for text in options.settings:
        name, _, value = text.partition("=")
        settings[name.replace("_", ".")] = value
    keep_young()  # as `ottla start` does
    gc.freeze()
    with asyncio.Runner(loop_factory=partial(_new_loop, options.loop)) as runner:
        runner.run(_serve(settings))


if __name__ == "__main__":
    main()
