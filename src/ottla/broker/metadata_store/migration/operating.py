"""An operator's view of a migration, and the operator's steps, by way of ZooKeeper.

status: the nodes of the migration, and the sessions of brokers
finalize: note the wish; the active controller fulfils or refuses it
roll back: take the office from the quorum, and leave it to the brokers
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.broker.metadata_store.zookeeper.migration_nodes import (
    MIGRATION,
    MigrationPhase,
    epoch_in_quorum,
    migration_data,
    read_migration,
)
from ottla.broker.metadata_store.zookeeper.znode_reads import get_or_none, live_brokers
from ottla.broker.metadata_store.zookeeper.znodes import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    SEEN_EPOCHS,
    read_cluster_id,
    read_controller,
    read_number,
    seen_epoch_path,
)
from ottla.environment.zookeeper import Delete, Operation, Write, ZooKeeperSession
from ottla.model.identifiers import BrokerId

NOT_BEGUN: Final = "not begun"
_NEXT_STEP: Final = {
    None: "start controllers with zookeeper.connect and zookeeper.metadata.migration.enable=true",
    MigrationPhase.COPYING: "wait until the controllers have copied the metadata",
    MigrationPhase.FINALIZING: "wait for the active controller",
    MigrationPhase.FINALIZED: "remove zookeeper.connect and zookeeper.metadata.migration.enable"
    " from the settings of the controllers, and restart them one by one; then stop ZooKeeper",
    MigrationPhase.ROLLED_BACK: "stop the controllers, if any runs; format them again to begin"
    " another migration",
}


class MigrationStepError(Exception):
    """The migration is not where this step is possible; the sentence names the missing step."""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A migration as ZooKeeper knows it."""

    cluster_id: str
    phase: MigrationPhase | None
    controller_id: int | None
    in_zookeeper: tuple[BrokerId, ...]
    """The brokers with a session in ZooKeeper."""
    in_quorum: tuple[BrokerId, ...]
    """The brokers that have registered with the quorum last, whether they run or not."""

    @property
    def phase_name(self) -> str:
        """The phase as an operator reads it."""
        return NOT_BEGUN if self.phase is None else self.phase.value

    @property
    def next_step(self) -> str:
        """The next step of the operator."""
        if self.phase is not MigrationPhase.DUAL:
            return _NEXT_STEP[self.phase]
        if self.in_zookeeper:
            return (
                f"restart the brokers {listed(self.in_zookeeper)} one by one with"
                " process.roles=broker and controller.quorum.bootstrap.servers"
            )
        return "look at the cluster; then ottla cluster migration finalize"


async def read_status(session: ZooKeeperSession) -> MigrationStatus:
    """Read how far the migration is; MigrationStepError if there is no cluster."""
    cluster = await get_or_none(session, CLUSTER_ID)
    if cluster is None:
        raise MigrationStepError("this ZooKeeper has no cluster")
    known = await get_or_none(session, MIGRATION)
    holder = await get_or_none(session, CONTROLLER)
    in_zookeeper = tuple(sorted(await live_brokers(session)))
    in_quorum = []
    for name in await session.children(SEEN_EPOCHS):
        broker_id = BrokerId(int(name))
        node = await session.get(seen_epoch_path(broker_id))
        epoch = epoch_in_quorum(read_number(SEEN_EPOCHS, node.data))
        if epoch is not None and broker_id not in in_zookeeper:
            in_quorum.append(broker_id)
    return MigrationStatus(
        read_cluster_id(cluster.data),
        None if known is None else read_migration(known.data),
        None if holder is None else read_controller(holder.data),
        in_zookeeper,
        tuple(sorted(in_quorum)),
    )


def check_may_finalize(status: MigrationStatus) -> None:
    """Raise MigrationStepError unless both kinds of metadata are written, and no broker is left."""
    if status.phase is MigrationPhase.FINALIZED:
        raise MigrationStepError("the migration is finalized already")
    if status.phase not in {MigrationPhase.DUAL, MigrationPhase.FINALIZING}:
        raise MigrationStepError(f"the migration is {status.phase_name}: {status.next_step}")
    if status.in_zookeeper:
        raise MigrationStepError(
            f"the brokers {listed(status.in_zookeeper)} have their metadata in ZooKeeper:"
            " restart them with process.roles=broker first"
        )


def check_may_roll_back(status: MigrationStatus) -> None:
    """Raise MigrationStepError unless a migration is going on."""
    if status.phase is MigrationPhase.FINALIZED:
        raise MigrationStepError(
            "the migration is finalized: ZooKeeper lacks all decisions since then"
        )
    if status.phase is None or status.phase is MigrationPhase.ROLLED_BACK:
        raise MigrationStepError(f"the migration is {status.phase_name}: there is no way back")


async def ask_to_finalize(session: ZooKeeperSession) -> None:
    """Note the wish; MigrationStepError, or ZooKeeperError if the phase changes meanwhile."""
    check_may_finalize(await read_status(session))
    node = await session.get(MIGRATION)
    data = migration_data(MigrationPhase.FINALIZING)
    await session.commit([Write(MIGRATION, data, node.stat.version)])


async def roll_back(session: ZooKeeperSession) -> None:
    """Let the brokers elect the controller in ZooKeeper again, and fence the quorum's leader.

    MigrationStepError, or ZooKeeperError if a controller writes at the same time.
    """
    check_may_roll_back(await read_status(session))
    node = await session.get(MIGRATION)
    epoch_node = await session.get(CONTROLLER_EPOCH)
    epoch = read_number(CONTROLLER_EPOCH, epoch_node.data) + 1
    holder = await get_or_none(session, CONTROLLER)
    operations: list[Operation] = [
        Write(CONTROLLER_EPOCH, b"%d" % epoch, epoch_node.stat.version),
        Write(MIGRATION, migration_data(MigrationPhase.ROLLED_BACK), node.stat.version),
    ]
    if holder is not None:
        operations.append(Delete(CONTROLLER, holder.stat.version))
    await session.commit(operations)


def listed(ids: Iterable[int]) -> str:
    """Return `1, 2, 3`."""
    return ", ".join(map(str, ids))
