"""`ottla cluster convert`: moves the metadata of a stopped cluster from ZooKeeper to a quorum."""

import asyncio
import posixpath
import socket
from typing import Annotated

import typer

from ottla.broker.metadata_store.meta_properties import (
    ForeignLogDirError,
    claim_log_dirs,
    read_owners,
)
from ottla.broker.metadata_store.zookeeper.controller_term import win
from ottla.broker.metadata_store.zookeeper.conversion import read_image, write_first_snapshot
from ottla.broker.metadata_store.zookeeper.migration_nodes import (
    MIGRATION,
    MigrationPhase,
    read_migration,
)
from ottla.broker.metadata_store.zookeeper.znode_reads import get_or_none, live_brokers
from ottla.broker.metadata_store.zookeeper.znodes import (
    CLUSTER_ID,
    UnreadableZnodeError,
    read_cluster_id,
)
from ottla.broker.quorum.formatting import METADATA_PARTITION
from ottla.cli.quorum.node_formatting import World, directories_of, standalone_voters
from ottla.cli.quorum.node_options import Config, NodeSettings, node_config
from ottla.cli.support.exit_codes import CommandError, one_sentence, say
from ottla.cli.support.standard_input import Consent, DryRun, Yes, confirm_at, counted
from ottla.environment.zookeeper import ZooKeeperError, ZooKeeperSession
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import ClusterImage
from ottla.model.settings.broker_config import BrokerConfig
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness
from ottla.storage.files.checkpoints import CorruptCheckpointError
from ottla.zookeeper.sessions import connect

_SESSION_SECONDS = 10.0


def convert(
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", metavar="HOSTS", help="zookeeper.connect of the brokers.")
    ],
    config: Config = None,
    settings: NodeSettings = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Move the metadata of a stopped cluster from ZooKeeper into the directory of a controller.

    Stop all brokers first. Give the settings of the controller: it begins a quorum alone, and
    others may join it later. Then start it, and the brokers with process.roles=broker and
    controller.quorum.bootstrap.servers: topics, settings, offsets and producer ids are as before.
    ZooKeeper keeps its nodes, for the way back until the first change.
    """
    world = World(KernelDisk(), SystemRandomness(), SystemClock().now_ms(), socket.gethostname())
    with one_sentence(
        CorruptCheckpointError, ForeignLogDirError, UnreadableZnodeError, ZooKeeperError
    ):
        found = node_config(config, settings)
        asyncio.run(_convert(world, found, zookeeper, Consent(yes, dry_run)))


async def _convert(world: World, config: BrokerConfig, hosts: str, consent: Consent) -> None:
    _check_directory(world, config)
    session = await connect(hosts, _SESSION_SECONDS)
    try:
        cluster_id = await _check_cluster(session, hosts)
        read_owners(world.disk, directories_of(config), config.node_id, cluster_id)
        standalone_voters(world, config, b"")  # complains before anything is changed
        effects = [
            "end every term of its controller in ZooKeeper: a broker that still runs is fenced",
            f"write its metadata into {config.metadata_folder}, as controller {config.node_id}",
        ]
        if await confirm_at(f"cluster {cluster_id} at {hosts}", effects, consent):
            image = await _take_over(session, world, config, cluster_id)
            _report(config, image)
    finally:
        await session.close()


def _check_directory(world: World, config: BrokerConfig) -> None:
    folder = posixpath.join(config.metadata_folder, str(METADATA_PARTITION))
    if world.disk.exists(folder) and world.disk.list_directory(folder):
        raise CommandError(f"{folder} is there already: it has the metadata of a quorum")


async def _check_cluster(session: ZooKeeperSession, hosts: str) -> str:
    """Return the id of the cluster; CommandError if there is none, or if a broker is running."""
    node = await get_or_none(session, CLUSTER_ID)
    if node is None:
        raise CommandError(f"there is no cluster in the ZooKeeper at {hosts}")
    known = await get_or_none(session, MIGRATION)
    if known is not None and read_migration(known.data) is not MigrationPhase.ROLLED_BACK:
        raise CommandError(
            f"the migration of the cluster in the ZooKeeper at {hosts} is"
            f" {read_migration(known.data).value}: see ottla cluster migration status"
        )
    running = sorted(await live_brokers(session))
    if running:
        raise CommandError(
            f"the brokers {', '.join(map(str, running))} are running: stop all brokers first"
        )
    return read_cluster_id(node.data)


async def _take_over(
    session: ZooKeeperSession, world: World, config: BrokerConfig, cluster_id: str
) -> ClusterImage:
    office = await win(session, config.node_id, world.now_ms)
    if office is None:
        raise CommandError("a broker is the controller in ZooKeeper: stop all brokers first")
    settings = ControllerSettings.from_config(config)
    image = await read_image(session, cluster_id, office.epoch, settings)
    paths = directories_of(config)
    identity = claim_log_dirs(world.disk, paths, config.node_id, world.randomness, cluster_id)
    directory_id = dict(zip(paths, identity.directory_ids, strict=True))[config.metadata_folder]
    voters = standalone_voters(world, config, directory_id)
    write_first_snapshot(
        world.disk, config.metadata_folder, image, office.epoch, voters, world.now_ms
    )
    return image


def _report(config: BrokerConfig, image: ClusterImage) -> None:
    say(
        f"{config.metadata_folder} has the metadata of {counted(len(image.topics), 'topic')} with"
        f" {counted(image.partition_count, 'partition')}: start controller {config.node_id}, then"
        " the brokers"
    )
