"""The quorum of controllers of a local cluster: its first brokers are controllers, too.

A file in the cluster's directory remembers the ports of the controllers: their addresses are in
the metadata log, so they must be the same in every run.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.broker.quorum.formatting import format_metadata_dir
from ottla.machines.controller.features import first_levels
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.model.identifiers import BrokerId, uuid_to_text
from ottla.model.settings.listeners import PORT_MAX
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness
from ottla.runtime.small_files import write_atomically
from ottla.storage.files.checkpoints import META_PROPERTIES_FILE
from ottla.testing.child_process import HOST, ClusterError, ReservedPort

LISTENER: Final = "CONTROLLER"
QUORUM_FILE: Final = "quorum.json"
CONTROLLERS_MAX: Final = 3
PORT_DISTANCE: Final = 1000
"""How far the port of a controller is above the port of its broker, if that is a fixed one."""


class LocalQuorum:
    """Formats the nodes of a local cluster, and holds the ports of its controllers.

    Three brokers or more have three controllers, fewer have one: two controllers would need each
    other. The caller releases the `ports`, also after a failure.
    """

    def __init__(
        self, folder: Path, brokers: int, base_port: int, ports: list[ReservedPort]
    ) -> None:
        self._folder = folder
        self._reserved = ports
        self._ports: dict[int, ReservedPort] = {}
        self._advertised: dict[int, int] = {}
        self._is_formatted = True
        file = folder / QUORUM_FILE
        if file.exists():
            self._continue(json.loads(file.read_text(encoding="utf-8")), brokers)
        elif any(folder.glob(f"broker-*/{META_PROPERTIES_FILE}")):
            raise ClusterError(f"{folder} has a cluster with its metadata in ZooKeeper")
        else:
            self._begin(brokers, base_port)

    @property
    def ports(self) -> dict[int, int]:
        """The port on which each controller listens."""
        return {node_id: port.number for node_id, port in self._ports.items()}

    def advertise(self, node_id: int, port: int) -> None:
        """Have the other nodes reach a controller on another port; call it before the start."""
        self._advertised[node_id] = port

    def _port_to(self, node_id: int) -> int:
        return self._advertised.get(node_id, self._ports[node_id].number)

    def settings_of(self, node_id: int, address: str) -> dict[str, str]:
        """Return the settings of a node with its listener for clients at this address."""
        controllers = ",".join(f"{HOST}:{self._port_to(one)}" for one in self._ports)
        settings = {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{address}",
            "controller.listener.names": LISTENER,
            "controller.quorum.bootstrap.servers": controllers,
        }
        port = self._ports.get(node_id)
        if port is not None:
            settings["process.roles"] = "broker,controller"
            settings["listeners"] += f",{LISTENER}://{HOST}:{port.number}"
        return settings

    def advertised_listeners(self, node_id: int, address: str) -> str:
        """Return the listeners of a node, as others reach it; clients do at this address."""
        listeners = f"PLAINTEXT://{address}"
        if node_id in self._ports:
            listeners += f",{LISTENER}://{HOST}:{self._port_to(node_id)}"
        return listeners

    def format(self, node_id: int) -> None:
        """Format the directory of a node before its start, unless it is formatted.

        The first call formats all controllers. Later, a controller is not formatted any more: with
        an empty disk it would vote without the data.
        """
        if not self._is_formatted:
            self._format_controllers()
        is_marked = (self._data_dir(node_id) / META_PROPERTIES_FILE).exists()
        if node_id not in self._ports and not is_marked:
            self._format(node_id, SystemRandomness().uuid(), None)

    def format_to_join(self, node_id: int) -> None:
        """Format the empty directory of a controller: it follows the quorum, and may join it again.

        Only for a controller that lost its disk while the others kept theirs.
        """
        self._format(node_id, SystemRandomness().uuid(), None)

    def _begin(self, brokers: int, base_port: int) -> None:
        self.cluster_id = uuid_to_text(SystemRandomness().uuid())
        controllers = CONTROLLERS_MAX if brokers >= CONTROLLERS_MAX else 1
        for node_id in range(1, controllers + 1):
            wanted = base_port + node_id - 1 + PORT_DISTANCE if base_port else 0
            self._hold(node_id, _port(wanted))
        self._is_formatted = False

    def _format_controllers(self) -> None:
        randomness = SystemRandomness()
        directories = {node_id: randomness.uuid() for node_id in self._ports}
        voters = VoterSet(
            tuple(
                Voter(
                    ReplicaKey(node_id, directory_id),
                    (Endpoint(LISTENER, HOST, self._port_to(node_id)),),
                )
                for node_id, directory_id in directories.items()
            )
        )
        for node_id, directory_id in directories.items():
            self._format(node_id, directory_id, voters)
        kept = {"cluster_id": self.cluster_id, "port_by_controller": self.ports}
        write_atomically(self._folder / QUORUM_FILE, json.dumps(kept))
        self._is_formatted = True

    def _continue(self, kept: Mapping[str, object], brokers: int) -> None:
        self.cluster_id = str(kept["cluster_id"])
        ports = kept["port_by_controller"]
        assert isinstance(ports, dict)
        if len(ports) > brokers:
            raise ClusterError(
                f"the cluster in {self._folder} has {len(ports)} controllers,"
                f" and cannot run with {brokers} brokers"
            )
        for node_id, port in ports.items():
            self._hold(int(node_id), ReservedPort(port))

    def _hold(self, node_id: int, port: ReservedPort) -> None:
        self._ports[node_id] = port
        self._reserved.append(port)

    def _format(self, node_id: int, directory_id: bytes, voters: VoterSet | None) -> None:
        folder = str(self._data_dir(node_id))
        records: list[MetadataRecord] = [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in first_levels().items()
        ]
        format_metadata_dir(
            KernelDisk(),
            [folder],
            folder,
            cluster_id=self.cluster_id,
            node_id=BrokerId(node_id),
            directory_ids={folder: directory_id},
            records=records,
            voters=voters,
            now_ms=SystemClock().now_ms(),
        )

    def _data_dir(self, node_id: int) -> Path:
        return self._folder / f"broker-{node_id}"


def refuse_quorum(folder: Path) -> None:
    """Raise ClusterError if the cluster of the directory has a quorum of controllers."""
    if (folder / QUORUM_FILE).exists():
        raise ClusterError(f"{folder} has a cluster with a quorum of controllers")


def _port(wanted: int) -> ReservedPort:
    """Return the wanted port, or another if it is taken or 0."""
    if 0 < wanted <= PORT_MAX:
        with suppress(ClusterError):
            return ReservedPort(wanted)
    return ReservedPort()
