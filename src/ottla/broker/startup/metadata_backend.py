"""Chooses where a broker's metadata is: on its own disk, in ZooKeeper, or in a quorum's log.

The modes differ in when logs may be opened, how a broker registers, which broker decides, and in
the shutdown sequence. The assembly is independent of the choice.
"""

from concurrent.futures import Executor

from ottla.broker.startup.embedded_mode import Embedded
from ottla.broker.startup.environment import Environment
from ottla.broker.startup.metadata_mode import MetadataMode
from ottla.broker.startup.observability import Operations
from ottla.broker.startup.quorum.quorum_mode import InQuorum
from ottla.broker.startup.quorum.quorum_node import NodeWorld, QuorumNode
from ottla.broker.startup.zookeeper_mode import InZooKeeper
from ottla.concurrency.notifier import Notifier
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.log_dirs.log_dirs import LogDirs


async def open_metadata(
    config: BrokerConfig,
    environment: Environment,
    notifier: Notifier,
    threads: Executor,
    log_dirs: LogDirs,
    operations: Operations,
) -> MetadataMode:
    """Open the metadata at its configured place.

    With ZooKeeper this waits until a server responds, with a quorum until it has a leader.
    ForeignLogDirError if the log dirs belong to
    another cluster, and the errors of `EmbeddedMetadataStore.open` and
    `ZooKeeperMetadataStore.open`.
    """
    if config.is_in_quorum:
        world = NodeWorld(config, environment, threads, operations.meters, operations.cold_reads)
        node = await QuorumNode.open(world)
        return await InQuorum.open(node, config, environment, notifier, threads, log_dirs)
    if config.zookeeper_connect is None:
        return Embedded.open(config, environment, threads, log_dirs)
    return await InZooKeeper.open(config, environment, notifier, threads, log_dirs)
