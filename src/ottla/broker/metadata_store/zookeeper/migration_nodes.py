r"""The nodes of a migration to a quorum: its phase, and the address of the quorum's leader.

    (none) --> COPYING --> DUAL --> FINALIZING --> FINALIZED: ZooKeeper is not written any more
       ^                    |  \ \<----- refused ----+
       |                    v
       +---------------- ROLLED_BACK: a broker becomes the controller

`/controller` is persistent during a migration, and has an endpoint: brokers with their metadata in
ZooKeeper follow the controller there, and none of them becomes the controller. The version of
`/controller_epoch` fences every earlier controller, of a quorum or not.
"""

import json
from enum import StrEnum
from typing import Any, Final

from ottla.broker.metadata_store.zookeeper.znodes import (
    CONTROLLER,
    UnreadableZnodeError,
)
from ottla.metadata.image import Endpoint
from ottla.model.identifiers import BrokerId, LeaderEpoch

MIGRATION: Final = "/ottla/migration"
QUORUM_LISTENER: Final = ""
"""The name of the quorum's listener for brokers, under any inter.broker.listener.name."""


_FIRST_OF_QUORUM: Final = -2


def seen_in_quorum(broker_epoch: int) -> int:
    """Return the seen epoch of a broker that has registered with the quorum: no session has it."""
    return _FIRST_OF_QUORUM - broker_epoch


def epoch_in_quorum(seen_epoch: int) -> int | None:
    """Return the epoch of a broker that has registered with the quorum last; else None."""
    return _FIRST_OF_QUORUM - seen_epoch if seen_epoch <= _FIRST_OF_QUORUM else None


class MigrationPhase(StrEnum):
    """How far a migration is; ZooKeeper has the truth until it is finalized."""

    COPYING = "copying"
    """The quorum has the office in ZooKeeper; its log may not have the copy yet."""
    DUAL = "dual writes"
    """Decisions are written to ZooKeeper, and then to the log."""
    FINALIZING = "finalizing"
    """The operator has asked for the end of the migration."""
    FINALIZED = "finalized"
    """The log has the truth. ZooKeeper is not written any more, and nothing leads back."""
    ROLLED_BACK = "rolled back"
    """Brokers elect the controller in ZooKeeper again; the log of the quorum is worthless."""


def migration_data(phase: MigrationPhase) -> bytes:
    """Encode the phase."""
    return json.dumps({"version": 1, "phase": phase.value}).encode()


def read_migration(data: bytes) -> MigrationPhase:
    """Decode the phase; UnreadableZnodeError."""
    try:
        return MigrationPhase(json.loads(data)["phase"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableZnodeError(f"{MIGRATION}: {error!r}") from None


def quorum_controller_data(
    node_id: BrokerId, epoch: LeaderEpoch, endpoint: tuple[str, int], now_ms: int
) -> bytes:
    """Encode the leader of a quorum as the controller."""
    return json.dumps(
        {
            "version": 2,
            "brokerid": node_id,
            "timestamp": str(now_ms),
            "kraftControllerEpoch": epoch,
            "ottla_endpoint": list(endpoint),
        }
    ).encode()


def read_quorum_endpoint(data: bytes) -> Endpoint | None:
    """Return where the controller listens if it is of a quorum; None if it is a broker."""
    try:
        found: Any = json.loads(data).get("ottla_endpoint")
        if found is None:
            return None
        host, port = found
        return Endpoint(QUORUM_LISTENER, str(host), int(port), 0)
    except (AttributeError, TypeError, ValueError) as error:
        raise UnreadableZnodeError(f"{CONTROLLER}: {error!r}") from None
