"""A node of ours in a quorum: formatted by `ottla storage format`, and run by `ottla start`."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.clients.cli_calls import OTTLA, call
from tests.interop.kafka_node import CLUSTER_ID, free_ports

START_SECONDS_MAX: Final = 60
STOP_SECONDS_MAX: Final = 60
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_LISTENER_BY_ROLE: Final = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}


class OttlaNode:
    """A node with the roles `broker`, `controller`, or both."""

    def __init__(
        self,
        directory: Path,
        node_id: int,
        roles: str,
        *,
        controllers: str = "",
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        """Format it: beside these controllers, or as the first controller of a quorum."""
        directory.mkdir(parents=True)
        names = [name for role, name in _LISTENER_BY_ROLE.items() if role in roles]
        self.port_by_listener = dict(zip(names, free_ports(len(names)), strict=True))
        self.controllers = controllers or f"127.0.0.1:{self.port_by_listener['CONTROLLER']}"
        self.data_dir = directory / "data"
        self._ready, self._output = directory / "ready", directory / "output.txt"
        self.config = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        listeners = (f"{name}://127.0.0.1:{port}" for name, port in self.port_by_listener.items())
        lines = {
            "process.roles": roles,
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.controllers,
            "log.dirs": str(self.data_dir),
            "ottla.admin.listener": "",
            "ottla.schema.registry.listener": "",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": "2",
            "log.cleaner.dedupe.buffer.size": "2097152",
            **settings,
        }
        self.config.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
        words = ["--no-initial-controllers" if controllers else "--standalone"]
        is_controller = "controller" in roles
        call("storage", "format", "-t", CLUSTER_ID, "-c", self.config, *words * is_controller)

    @property
    def bootstrap_server(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port_by_listener['PLAINTEXT']}"

    @property
    def output(self) -> str:
        """The log of all runs."""
        return self._output.read_text()

    def start(self) -> None:
        """Start the process, and wait until it is in service."""
        assert self._process is None, "it runs already"
        self._ready.unlink(missing_ok=True)
        command = [*OTTLA, "start", "--config", str(self.config)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--ready-file", str(self._ready)],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._ready.exists():
            assert self._process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def stop(self) -> None:
        """Shut it down cleanly."""
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        process.terminate()
        try:
            assert process.wait(STOP_SECONDS_MAX) == 0, self.output
        finally:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End it without warning, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


@contextmanager
def ottla_nodes() -> Iterator[list[OttlaNode]]:
    """Yield a list; nodes in it that run at the end are killed."""
    nodes: list[OttlaNode] = []
    try:
        yield nodes
    finally:
        for node in nodes:
            node.kill()
