"""An Ottla broker as its users have it: a process of its own, started by `ottla start`."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.clients.cli_calls import OTTLA

START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 30

# Kafka's tools start slowly: no group has to wait for a second member on top of that.
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "4",
    "ottla.admin.listener": "127.0.0.1:0",
}


class OttlaProcess(NamedTuple):
    """A running broker: its address, its directory, and its log file."""

    server: str
    logs: Path
    output: Path


@contextmanager
def ottla_process(directory: Path) -> Iterator[OttlaProcess]:
    """Start a broker below a directory, and stop it as it should be in the end."""
    ready, output, logs = (directory / name for name in ("ready", "output.txt", "logs"))
    command = [*OTTLA, "start", "--port", "0"]
    command += ["--data-dir", str(logs), "--ready-file", str(ready)]
    for name, value in _SETTINGS.items():
        command += ["-X", f"{name}={value}"]
    with output.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
    try:
        yield OttlaProcess(_address(process, ready, output), logs, output)
        process.terminate()
        assert process.wait(STOP_SECONDS_MAX) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], ready: Path, output: Path) -> str:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not ready.exists():
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.02)
    return ready.read_text().strip()
