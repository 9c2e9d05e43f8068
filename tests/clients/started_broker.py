"""`ottla start` as a process, with its own directory, environment variables and limits."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.clients.cli_calls import OTTLA

SECONDS_MAX: Final = 240
NO_REGISTRY: Final = "ottla.schema.registry.listener="


class StartedBroker:
    """A broker that runs as long as the `with` block lasts, and has to end by itself then."""

    def __init__(
        self,
        folder: Path,
        *settings: str,
        environ: Mapping[str, str] | None = None,
        descriptors_max: int | str | None = None,
    ) -> None:
        """Keep its log lines and its address in a directory; `settings` are KEY=VALUE."""
        self.log = folder / "log"
        self.bootstrap_servers = ""
        self._ready = folder / "ready"
        options = [word for one in (NO_REGISTRY, *settings) for word in ("-X", one)]
        start = [*OTTLA, "start", "--port", "0", "--ready-file", str(self._ready), *options]
        limit = [] if descriptors_max is None else ["prlimit", f"--nofile={descriptors_max}"]
        self._command = [*limit, *start]
        self._environ = {**os.environ, **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def cpu_seconds(self) -> float:
        """The processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def lines(self, text: str) -> list[str]:
        """Return its log lines that hold a text."""
        return [line for line in self.log.read_text().splitlines() if text in line]

    def wait_for_line(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not self.lines(text):
            assert time.monotonic() < deadline, f"no line says {text!r}:\n{self.log.read_text()}"
            time.sleep(0.02)

    def launch(self) -> "subprocess.Popen[bytes]":
        """Start the process, and return it without waiting."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log, env=self._environ)
        return self._process

    def __enter__(self) -> Self:
        process = self.launch()
        deadline = time.monotonic() + SECONDS_MAX
        while not self._ready.exists():
            assert process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        self.bootstrap_servers = self._ready.read_text().strip()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        process.terminate()
        try:
            code = process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        assert kind is not None or code == 0, self.log.read_text()
