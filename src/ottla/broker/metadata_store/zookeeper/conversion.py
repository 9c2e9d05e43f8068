"""The metadata in ZooKeeper as the first snapshot of a quorum's log.

    /controller_epoch is raised to E --> read everything --> snapshot at E << 32, in epoch E

Offsets, controller epochs, leader epochs and partition epochs go on rising: brokers had seen the
metadata of earlier terms at lower offsets. No broker is running, so each is fenced in the snapshot,
in the same way as after its session has expired; it leaves ISRs, and the last replicas of a
partition stay eligible to lead.
"""

import posixpath
from collections.abc import Iterable, Sequence

from ottla.broker.metadata_store.metadata_history import first_offset
from ottla.broker.metadata_store.zookeeper.znode_reads import load
from ottla.broker.metadata_store.zookeeper.znodes import UnreadableZnodeError
from ottla.broker.quorum.formatting import KRAFT_VERSION_WITH_VOTERS, METADATA_PARTITION
from ottla.broker.quorum.snapshot_files import SnapshotFiles
from ottla.environment.disk import Disk
from ottla.environment.zookeeper import ZooKeeperSession
from ottla.machines.controller.features import first_levels
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.difference import image_records, registration_record
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE
from ottla.metadata.record_frames import batches_of
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.model.identifiers import ZERO_UUID, BrokerId
from ottla.raft.snapshots import SnapshotId, SnapshotStart, snapshot_bytes
from ottla.raft.voters import VoterSet


async def read_image(
    session: ZooKeeperSession, cluster_id: str, epoch: int, settings: ControllerSettings
) -> ClusterImage:
    """Read everything, as the controller of this epoch; no broker may be running.

    UnreadableZnodeError for a node that Kafka would not have written.
    """
    loaded = await load(session)
    brokers = sorted({*loaded.seen_epochs, *loaded.unseen})
    try:
        return converted(loaded.records, brokers, cluster_id, epoch, settings)
    except UnreplayableRecordError as error:
        raise UnreadableZnodeError(f"the nodes of topics: {error}") from error


def converted(
    records: Sequence[MetadataRecord],
    brokers: Iterable[BrokerId],
    cluster_id: str,
    epoch: int,
    settings: ControllerSettings,
) -> ClusterImage:
    """Return the image that a quorum begins with, in which every broker is fenced.

    A broker gets a new epoch: its former one may be above the offsets of the log.
    """
    end_offset = first_offset(epoch)
    known = [BrokerImage(one, end_offset - 1 - one, ZERO_UUID, ()) for one in brokers]
    all_records = [*map(registration_record, known), *records]
    image = replay(ClusterImage(cluster_id), all_records, end_offset)
    if METADATA_VERSION_FEATURE not in image.level_by_feature:
        levels = [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in first_levels().items()
        ]
        image = replay(image, levels, end_offset)
    controller = Controller(image, settings)
    gone = frozenset(broker.broker_id for broker in known)
    for broker in known:
        controller.replay(controller.fence_broker(broker.broker_id, gone).records, end_offset)
    return controller.image


def write_first_snapshot(
    disk: Disk,
    metadata_dir: str,
    image: ClusterImage,
    epoch: int,
    voters: VoterSet,
    now_ms: int,
) -> None:
    """Write the snapshot that the log begins with. Its folder has no file yet."""
    snapshot_id = SnapshotId(image.end_offset, epoch)
    start = SnapshotStart(now_ms, KRAFT_VERSION_WITH_VOTERS, voters)
    data = batches_of(image_records(image), image.metadata_version, now_ms)
    content = bytes(snapshot_bytes(snapshot_id, start, data))
    folder = posixpath.join(metadata_dir, str(METADATA_PARTITION))
    disk.make_directory(folder)
    disk.sync_directory(metadata_dir)
    SnapshotFiles(disk, folder).save(snapshot_id, content)
