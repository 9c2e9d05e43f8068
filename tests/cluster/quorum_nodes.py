"""Nodes of a quorum of controllers as real processes, formatted and started by a test."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.broker.quorum.formatting import format_metadata_dir
from ottla.cli.quorum.node_formatting import first_records
from ottla.model.identifiers import BrokerId, uuid_to_text
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness
from ottla.testing.child_process import HOST, ChildProcess, ProcessGroup, ReservedPort

CONTROLLER: Final = "CONTROLLER"
START_SECONDS_MAX: Final = 60
STOP_SECONDS_MAX: Final = 60


class NodeProcess:
    """A node with one role, or with both."""

    def __init__(
        self,
        node_id: int,
        roles: str,
        folder: Path,
        group: ProcessGroup,
        settings: Mapping[str, str],
    ) -> None:
        self.id = node_id
        self.roles = roles
        self.data_dir = folder / f"node-{node_id}"
        self.directory_id = SystemRandomness().uuid()
        self.log = folder / f"node-{node_id}.log"
        self._ports = {
            name: ReservedPort(0) for role, name in _LISTENER_BY_ROLE.items() if role in roles
        }
        self._settings = settings
        self._ready_file = folder / f"node-{node_id}.ready"
        self._process = ChildProcess(f"node {node_id}", group, self.log)

    def address(self, listener: str) -> str:
        return f"{HOST}:{self._ports[listener].number}"

    @property
    def voter(self) -> Voter:
        endpoint = Endpoint(CONTROLLER, HOST, self._ports[CONTROLLER].number)
        return Voter(ReplicaKey(self.id, self.directory_id), (endpoint,))

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def pid(self) -> int:
        return self._process.pid

    def format(self, cluster_id: str, voters: VoterSet) -> None:
        directory = str(self.data_dir)
        format_metadata_dir(
            KernelDisk(),
            [directory],
            directory,
            cluster_id=cluster_id,
            node_id=BrokerId(self.id),
            directory_ids={directory: self.directory_id},
            records=first_records({}, has_voters=True),
            voters=voters if "controller" in self.roles else None,
            now_ms=0,
        )

    def options(self, bootstrap_servers: str) -> list[str]:
        """Return the settings, as a command takes them."""
        settings = {
            "process.roles": self.roles,
            "node.id": str(self.id),
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in self._ports),
            "controller.listener.names": CONTROLLER,
            "controller.quorum.bootstrap.servers": bootstrap_servers,
            "log.dirs": str(self.data_dir),
            "ottla.admin.listener": "",
            "ottla.schema.registry.listener": "",
            **self._settings,
        }
        return [word for row in settings.items() for word in ("-X", "=".join(row))]

    def launch(self, bootstrap_servers: str) -> None:
        self._ready_file.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "ottla.cli.main", "start"),
            *self.options(bootstrap_servers),
        ]
        self._process.spawn([*command, "--ready-file", str(self._ready_file)], dict(os.environ))

    def wait_until_up(self) -> None:
        self._process.wait_until_up(self._ready_file.exists, START_SECONDS_MAX)

    def release_ports(self) -> None:
        for port in self._ports.values():
            port.release()

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.terminate(STOP_SECONDS_MAX)


_LISTENER_BY_ROLE: Final = {"broker": "PLAINTEXT", "controller": CONTROLLER}


class QuorumCluster:
    """Formatted nodes; they run during the `with` block."""

    def __init__(
        self, folder: Path, roles_by_node: Mapping[int, str], settings: Mapping[str, str]
    ) -> None:
        self._group = ProcessGroup()
        self.nodes = {
            node_id: NodeProcess(node_id, roles, folder, self._group, settings)
            for node_id, roles in roles_by_node.items()
        }
        self.controllers = [one for one in self.nodes.values() if "controller" in one.roles]
        self.brokers = [one for one in self.nodes.values() if "broker" in one.roles]
        voters = VoterSet(tuple(one.voter for one in self.controllers))
        cluster_id = uuid_to_text(SystemRandomness().uuid())
        for node in self.nodes.values():
            node.format(cluster_id, voters)

    @property
    def servers(self) -> str:
        return ",".join(one.address("PLAINTEXT") for one in self.brokers)

    def start(self, *nodes: NodeProcess) -> None:
        for node in nodes:
            node.launch(",".join(one.address(CONTROLLER) for one in self.controllers))
        for node in nodes:
            node.wait_until_up()

    def active(self) -> NodeProcess:
        """Return the controller that leads the newest epoch, by the logs."""
        epochs = {
            int(line.rsplit("epoch ", 1)[1].split()[0]): node
            for node in self.controllers
            for line in node.log.read_text().splitlines()
            if "is the active controller, epoch" in line
        }
        return epochs[max(epochs)]

    def __enter__(self) -> Self:
        self.start(*self.nodes.values())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._group.close()
        for node in self.nodes.values():
            node.release_ports()
