"""A broker in a separate `ottla start` process, which can be stopped, killed and paused."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.testing.child_process import HOST, ChildProcess, ClusterError, ProcessGroup, ReservedPort
from ottla.testing.local_quorum import LocalQuorum

START_SECONDS_MAX: Final = 60
STOP_SECONDS_MAX: Final = 60
OWN_SETTINGS: Final = frozenset(
    (
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
        "process.roles",
        "zookeeper.connect",
    )
)
"""Settings that differ between brokers, or belong to the cluster."""
_FOREIGN: Final = ("KAFKA_", "OTTLA_")
"""Prefixes of variables that configure brokers; a test's settings replace them."""


class BrokerProcess:
    """A broker of a local cluster. It keeps its port and its data over restarts."""

    def __init__(
        self,
        broker_id: int,
        folder: Path,
        group: ProcessGroup,
        settings: Mapping[str, str],
        *,
        port: int = 0,
        rack: str = "",
        registry: ReservedPort | None = None,
        quorum: LocalQuorum | None = None,
    ) -> None:
        if taken := sorted(OWN_SETTINGS & settings.keys()):
            raise ClusterError(f"{taken[0]} is set for each broker by the cluster: leave it out")
        self.id = broker_id
        self.data_dir = folder / f"broker-{broker_id}"
        self._reserved = ReservedPort(port)
        self.port = self._reserved.number
        self.settings = {**settings, **({"broker.rack": rack} if rack else {})}
        """Settings by Kafka's names; a change applies from the next start on."""
        self.zookeeper_connect = ""
        """The address of its ZooKeeper; must be set before the start, if it has no quorum."""
        self._quorum = quorum
        self._registry = registry
        self._ready_file = folder / f"broker-{broker_id}.ready"
        log = folder / f"broker-{broker_id}.log"
        self._process = ChildProcess(f"broker {broker_id}", group, log)
        self.log = log
        """The broker's stderr, for all its runs."""

    @property
    def bootstrap_servers(self) -> str:
        """The address of this broker for clients."""
        return f"{HOST}:{self.port}"

    @property
    def registry_url(self) -> str:
        """The URL of its schema registry; ClusterError if the cluster has none."""
        if self._registry is None:
            raise ClusterError("there is no schema registry: create Cluster(registries=True)")
        return f"http://{HOST}:{self._registry.number}"

    @property
    def has_registry(self) -> bool:
        """Whether it has a schema registry."""
        return self._registry is not None

    @property
    def pid(self) -> int:
        """The number of its process; ClusterError if it is not running."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""
        return self._process.is_running

    @property
    def is_paused(self) -> bool:
        """Whether it was paused and not yet resumed."""
        return self._process.is_paused

    @property
    def exit_code(self) -> int | None:
        """The exit code of its last process; negative for a signal, None while it runs."""
        return self._process.exit_code

    def start(self) -> None:
        """Start, and return when clients can connect. ClusterError if the broker does not start."""
        self.launch()
        self.wait_until_up()

    def launch(self) -> None:
        """Start without waiting."""
        if self._quorum is not None:
            self._quorum.format(self.id)
        self._ready_file.unlink(missing_ok=True)
        settings = {
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": str(self.data_dir),
            **self._registry_settings(),
            **self.settings,
            "node.id": str(self.id),
            **self._metadata_settings(),
        }
        options = [word for row in settings.items() for word in ("-X", "=".join(row))]
        command = [sys.executable, "-m", "ottla.cli.main", "start", *options]
        environ = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        self._process.spawn([*command, "--ready-file", str(self._ready_file)], environ)

    def _metadata_settings(self) -> dict[str, str]:
        if self._quorum is not None:
            return self._quorum.settings_of(self.id, self.bootstrap_servers)
        listeners = f"PLAINTEXT://{self.bootstrap_servers}"
        return {"listeners": listeners, "zookeeper.connect": self.zookeeper_connect}

    def _registry_settings(self) -> dict[str, str]:
        place = "" if self._registry is None else f"{HOST}:{self._registry.number}"
        return {"ottla.schema.registry.listener": place}

    def wait_until_up(self) -> None:
        """Return when clients can connect. ClusterError if the broker ends, or takes too long."""
        self._process.wait_until_up(self._ready_file.exists, START_SECONDS_MAX)

    def stop(self) -> None:
        """Stop it in order (SIGTERM). ClusterError if it does not end, or not with exit code 0."""
        self._process.terminate(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """Kill it like a power failure (SIGKILL), and return when it has ended."""
        self._process.kill()

    def pause(self) -> None:
        """Pause it (SIGSTOP), and return when it no longer runs."""
        self._process.pause()

    def resume(self) -> None:
        """Continue after a pause."""
        self._process.resume()

    def restart(self) -> None:
        """Stop it, if it is running, and start it again: same port, same data."""
        if self.is_running:
            self.stop()
        self.start()

    def release(self) -> None:
        """Release the port. The broker cannot be started any more."""
        self._reserved.release()
        if self._registry is not None:
            self._registry.release()
