"""Formats the directories of a node for `storage format`, in Kafka's files.

    meta.properties                       in each directory: its cluster, its node, its own id
    bootstrap.checkpoint                  in the metadata directory: the first records of the
                                          cluster, such as the feature levels
    __cluster_metadata-0/…-….checkpoint   of offset 0: kraft.version 1 and the first voters, for
                                          the controllers that begin the quorum

A controller that joins a quorum, or that gets its voters from `controller.quorum.voters`, has no
snapshot of offset 0. The first voters belong to all controllers that begin together: two different
sets would each elect a leader.
"""

import posixpath
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.environment.disk import Disk
from ottla.metadata.record_frames import encode_record
from ottla.metadata.records import MetadataRecord
from ottla.model.identifiers import BrokerId, TopicPartition
from ottla.model.topic_names import CLUSTER_METADATA_TOPIC
from ottla.raft.snapshots import (
    PARTIAL_SUFFIX,
    SUFFIX,
    SnapshotId,
    SnapshotStart,
    snapshot_bytes,
    snapshot_data_of,
)
from ottla.raft.voters import VoterSet
from ottla.storage.files.checkpoints import (
    META_PROPERTIES_FILE,
    MetaProperties,
    remove_tree,
    write_atomically,
    write_meta_properties,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record

METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
FIRST_SNAPSHOT: Final = SnapshotId(0, 0)
KRAFT_VERSION_WITH_VOTERS: Final = 1
"""The level of kraft.version that keeps the voters in the log."""
_PART: Final = PARTIAL_SUFFIX.removeprefix(SUFFIX)


def forget_metadata_log(disk: Disk, metadata_dir: str) -> None:
    """Remove a replica of the metadata log, if there is one."""
    folder = posixpath.join(metadata_dir, str(METADATA_PARTITION))
    if disk.exists(folder):
        remove_tree(disk, folder)


class AlreadyFormattedError(Exception):
    """A directory has a meta.properties: it belongs to a node already."""


def format_metadata_dir(  # noqa: PLR0913 - the values of the files
    disk: Disk,
    log_dirs: Sequence[str],
    metadata_dir: str,
    *,
    cluster_id: str,
    node_id: BrokerId,
    directory_ids: Mapping[str, bytes],
    records: Sequence[MetadataRecord],
    voters: VoterSet | None,
    now_ms: int,
) -> None:
    """Format log dirs and the metadata directory, which may be a log dir, too.

    `directory_ids` has the id of each directory, by its path. `records` go into
    bootstrap.checkpoint. `voters` are the first voters, or None.

    AlreadyFormattedError, and nothing is written, if a directory belongs to a node. The mark of the
    metadata directory, its meta.properties, is written last: where it is, everything is.
    """
    paths = [*dict.fromkeys(path for path in log_dirs if path != metadata_dir), metadata_dir]
    for path in paths:
        if disk.exists(posixpath.join(path, META_PROPERTIES_FILE)):
            raise AlreadyFormattedError(f"{path} is formatted already")
    for path in paths:
        disk.make_directory(path)
        disk.sync_directory(posixpath.dirname(path) or ".")
    write_bootstrap(disk, metadata_dir, records, now_ms)
    if voters is not None:
        _write_first_voters(disk, metadata_dir, voters, now_ms)
    for path in paths:
        mark = MetaProperties(cluster_id, node_id, directory_ids[path])
        write_meta_properties(disk, posixpath.join(path, META_PROPERTIES_FILE), mark)


def write_bootstrap(
    disk: Disk, metadata_dir: str, records: Sequence[MetadataRecord], now_ms: int
) -> None:
    """Write the first records of a cluster, which its first active controller appends."""
    values = [
        Record(index, now_ms, None, encode_record(record)) for index, record in enumerate(records)
    ]
    batches = [build_batch(values)] if values else []
    content = snapshot_bytes(FIRST_SNAPSHOT, SnapshotStart(now_ms), batches)
    write_atomically(disk, posixpath.join(metadata_dir, BOOTSTRAP_FILE), bytes(content))


def read_bootstrap(disk: Disk, metadata_dir: str) -> list[RecordBatch]:
    """Return the batches of bootstrap.checkpoint, none if there is no such file.

    ProtocolError, which names the file, if it is damaged.
    """
    path = posixpath.join(metadata_dir, BOOTSTRAP_FILE)
    if not disk.exists(path):
        return []
    file = disk.open_file(path)
    try:
        found = snapshot_data_of(file.read_at(0, file.size_bytes()))
        for batch in found:
            batch.check_crc()
    except ProtocolError as error:
        raise ProtocolError(f"{path} cannot be read: {error.detail}", error.code) from error
    return found


def _write_first_voters(disk: Disk, metadata_dir: str, voters: VoterSet, now_ms: int) -> None:
    directory = posixpath.join(metadata_dir, str(METADATA_PARTITION))
    disk.make_directory(directory)
    disk.sync_directory(metadata_dir)
    start = SnapshotStart(now_ms, KRAFT_VERSION_WITH_VOTERS, voters)
    content = snapshot_bytes(FIRST_SNAPSHOT, start, [])
    path = posixpath.join(directory, FIRST_SNAPSHOT.file_name)
    write_atomically(disk, path, bytes(content), suffix=_PART)
