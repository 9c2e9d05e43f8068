"""The controller's office in ZooKeeper, in the hands of the leader of a quorum.

    check the cluster id and the phase --> raise /controller_epoch, take /controller, note the phase

All three are one transaction. Every earlier controller is fenced by it: each of its writes begins
with a check of the version of `/controller_epoch`. `/controller` does not go with the session, so
that no broker becomes the controller while the quorum elects its next leader.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.broker.metadata_store.zookeeper.migration_nodes import (
    MIGRATION,
    MigrationPhase,
    migration_data,
    quorum_controller_data,
    read_migration,
)
from ottla.broker.metadata_store.zookeeper.znode_reads import get_or_none, live_brokers
from ottla.broker.metadata_store.zookeeper.znodes import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURES,
    SEEN_EPOCHS,
    read_cluster_id,
    read_features,
    read_number,
)
from ottla.environment.zookeeper import (
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Write,
    ZooKeeperSession,
)
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE, MIGRATION_SINCE
from ottla.model.identifiers import BrokerId, LeaderEpoch

_OF_AN_EMPTY_LOG: Final = {None, MigrationPhase.COPYING, MigrationPhase.ROLLED_BACK}
_REFUSED: Final = {
    MigrationPhase.DUAL: "another quorum is migrating this cluster: roll that migration back first"
    " (ottla cluster migration rollback), or give these controllers its metadata directories",
    MigrationPhase.FINALIZING: "another quorum is about to finalize the migration of this cluster",
    MigrationPhase.FINALIZED: "another quorum has finalized the migration of this cluster",
}
"""By the phase that newly formatted controllers find."""


class MigrationRefusedError(Exception):
    """The quorum and ZooKeeper do not fit together; the sentence has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The leader of the quorum, and how far its log is."""

    hosts: str
    cluster_id: str
    node_id: BrokerId
    epoch: LeaderEpoch
    endpoint: tuple[str, int]
    """Where brokers with their metadata in ZooKeeper reach this controller."""
    has_copy: bool
    """Whether the log has a copy of the metadata in ZooKeeper."""


@dataclass(slots=True)
class ZooKeeperOffice:
    """The office of one leader, for as long as no other controller takes it."""

    session: ZooKeeperSession
    epoch: int
    version: int
    """The version of `/controller_epoch` until another controller takes the office."""
    phase: MigrationPhase

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Write as the controller; ZooKeeperError if this is not the controller any more."""
        await self.session.commit([Check(CONTROLLER_EPOCH, self.version), *operations])

    async def set_phase(self, phase: MigrationPhase) -> None:
        """Note another phase."""
        await self.commit([Write(MIGRATION, migration_data(phase))])
        self.phase = phase


async def take_office(session: ZooKeeperSession, claim: Claim, now_ms: int) -> ZooKeeperOffice:
    """Become the controller in ZooKeeper, in place of any other.

    MigrationRefusedError if this quorum may not, ZooKeeperError if the outcome is unknown, or if
    another controller was faster: the next attempt begins with reading.
    """
    await _check_cluster(session, claim)
    known = await get_or_none(session, MIGRATION)
    phase = next_phase(claim, None if known is None else read_migration(known.data))
    if not claim.has_copy:
        await _check_brokers(session)
        await _check_level(session)
    epoch_node = await session.get(CONTROLLER_EPOCH)
    epoch = read_number(CONTROLLER_EPOCH, epoch_node.data) + 1
    version = epoch_node.stat.version
    data = quorum_controller_data(claim.node_id, claim.epoch, claim.endpoint, now_ms)
    operations: list[Operation] = [Write(CONTROLLER_EPOCH, b"%d" % epoch, version)]
    operations += _holding(await get_or_none(session, CONTROLLER), data)
    if known is None:
        operations.append(Create(MIGRATION, migration_data(phase)))
    else:
        operations.append(Write(MIGRATION, migration_data(phase), known.stat.version))
    await session.commit(operations)
    return ZooKeeperOffice(session, epoch, version + 1, phase)


def next_phase(claim: Claim, phase: MigrationPhase | None) -> MigrationPhase:
    """Return the phase after a quorum has taken the office; MigrationRefusedError."""
    if not claim.has_copy:
        if phase in _OF_AN_EMPTY_LOG:
            return MigrationPhase.COPYING
        assert phase is not None, "a cluster without a migration begins one"
        raise MigrationRefusedError(f"{_REFUSED[phase]} (ZooKeeper at {claim.hosts})")
    if phase is None:
        raise MigrationRefusedError(
            f"the ZooKeeper at {claim.hosts} does not know of the migration that the metadata log"
            " of this controller has: it is not the ZooKeeper that the migration began with"
        )
    if phase is MigrationPhase.ROLLED_BACK:
        raise MigrationRefusedError(
            "the migration of this cluster was rolled back, and brokers in ZooKeeper have decided"
            " since: stop all controllers, and format them again to begin another migration"
        )
    return MigrationPhase.DUAL if phase is MigrationPhase.COPYING else phase


def _holding(holder: Node | None, data: bytes) -> list[Operation]:
    """Return the operations after which `/controller` is persistent, and has this data."""
    if holder is None:
        return [Create(CONTROLLER, data)]
    if holder.stat.owner_session == 0:
        return [Write(CONTROLLER, data, holder.stat.version)]
    return [Delete(CONTROLLER, holder.stat.version), Create(CONTROLLER, data)]


async def _check_cluster(session: ZooKeeperSession, claim: Claim) -> None:
    node = await get_or_none(session, CLUSTER_ID)
    seen = await session.exists(SEEN_EPOCHS)
    epoch = await session.exists(CONTROLLER_EPOCH)
    if node is None or seen is None or epoch is None:
        raise MigrationRefusedError(
            f"the ZooKeeper at {claim.hosts} has no cluster of Ottla brokers: zookeeper.connect"
            " must be the same as in the brokers"
        )
    found = read_cluster_id(node.data)
    if found != claim.cluster_id:
        raise MigrationRefusedError(
            f"the ZooKeeper at {claim.hosts} has the cluster {found}, and this controller is"
            f" formatted for the cluster {claim.cluster_id}: format it with --cluster-id {found}"
        )


async def _check_brokers(session: ZooKeeperSession) -> None:
    live = await live_brokers(session)
    old = sorted(broker_id for broker_id, one in live.items() if not one.follows_quorum)
    if old:
        raise MigrationRefusedError(
            f"the brokers {', '.join(map(str, old))} run a release that cannot follow a quorum:"
            " upgrade them one by one, and start the controllers again"
        )


async def _check_level(session: ZooKeeperSession) -> None:
    """Refuse a level whose records cannot say that a broker has its session in ZooKeeper."""
    levels = read_features((await session.get(FEATURES)).data)
    level = levels.get(METADATA_VERSION_FEATURE, MIGRATION_SINCE)
    if level < MIGRATION_SINCE:
        wanted = f"{METADATA_VERSION_FEATURE}={MIGRATION_SINCE}"
        raise MigrationRefusedError(
            f"{METADATA_VERSION_FEATURE} of the cluster is {level}, and a migration needs at least"
            f" {MIGRATION_SINCE}: raise it (ottla cluster features --upgrade {wanted}), and start"
            " the controllers again"
        )
