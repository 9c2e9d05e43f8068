"""The identity of a node in a quorum: `ottla storage format` has written it to its directories.

A node does not format its directories by itself: a majority of controllers with empty disks would
elect a leader without the data.
"""

import posixpath
from dataclasses import dataclass

from ottla.broker.metadata_store.meta_properties import ForeignLogDirError
from ottla.environment.disk import Disk
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.files.checkpoints import (
    META_PROPERTIES_FILE,
    CorruptCheckpointError,
    read_meta_properties,
)


class UnformattedLogDirError(ForeignLogDirError):
    """The directory of the metadata log has no meta.properties, or not all of it."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The cluster id of a node, and the id of the directory with its metadata log."""

    cluster_id: str
    directory_id: bytes


def node_identity(disk: Disk, config: BrokerConfig) -> NodeIdentity:
    """Read the identity of a node.

    UnformattedLogDirError if its directory is not formatted, ForeignLogDirError if it belongs to
    another node.
    """
    folder = config.metadata_folder
    try:
        mark = read_meta_properties(disk, posixpath.join(folder, META_PROPERTIES_FILE))
    except CorruptCheckpointError as error:
        raise ForeignLogDirError(f"the owner of this log dir cannot be read: {error}") from error
    if mark is None:
        raise UnformattedLogDirError(
            f"{folder} is not formatted for node {config.node_id}: run `ottla storage format` once"
        )
    if mark.node_id not in {None, config.node_id}:
        raise ForeignLogDirError(
            f"{folder} belongs to node {mark.node_id}, not to {config.node_id}"
        )
    if mark.cluster_id is None or mark.directory_id is None:
        raise UnformattedLogDirError(
            f"{folder} has no cluster.id or no directory.id in its meta.properties:"
            " run `ottla storage format` once"
        )
    return NodeIdentity(mark.cluster_id, mark.directory_id)
