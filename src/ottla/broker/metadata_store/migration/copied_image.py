"""The metadata in ZooKeeper that the log of a quorum lacks, at the beginning of an office.

ZooKeeper has the truth until a migration is finalized: every decision is committed there before it
is in the log. So the log may lack the last decisions of an earlier leader, and ZooKeeper never
lacks a decision of the log. Into an empty log this copies everything.
"""

from collections.abc import Mapping
from dataclasses import replace

from ottla.broker.metadata_store.zookeeper.migration_nodes import epoch_in_quorum
from ottla.broker.metadata_store.zookeeper.unfinished_work import is_same_life
from ottla.broker.metadata_store.zookeeper.znode_reads import Loaded
from ottla.broker.metadata_store.zookeeper.znode_writes import NEVER_HANDLED
from ottla.broker.metadata_store.zookeeper.znodes import LiveBroker, UnreadableZnodeError
from ottla.machines.controller.features import first_levels
from ottla.metadata.difference import records_between
from ottla.metadata.image import BrokerImage, ClusterImage, ZkMigrationState
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE
from ottla.metadata.records import MetadataRecord, ZkMigrationStateRecord
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.model.identifiers import ZERO_UUID, BrokerId


def copying_records(
    image: ClusterImage,
    loaded: Loaded,
    live: Mapping[BrokerId, LiveBroker],
    state: ZkMigrationState,
) -> tuple[MetadataRecord, ...]:
    """Return the records that lead from the image of the log to the content of ZooKeeper.

    The state of the migration is always among them. UnreadableZnodeError for nodes that do not fit
    together.
    """
    after = replace(copied_image(image, loaded, live), zk_migration_state=image.zk_migration_state)
    records = records_between(image, after)
    return (*records, ZkMigrationStateRecord(zk_migration_state=state))


def copied_image(
    image: ClusterImage, loaded: Loaded, live: Mapping[BrokerId, LiveBroker]
) -> ClusterImage:
    """Return the image of the log with the metadata in ZooKeeper in place of its own.

    Controllers, and brokers that have registered with the quorum, are only in the log.
    """
    try:
        found = replay(ClusterImage(image.cluster_id), loaded.records, image.end_offset)
    except UnreplayableRecordError as error:
        raise UnreadableZnodeError(f"the nodes of topics: {error}") from error
    levels = found.level_by_feature
    if METADATA_VERSION_FEATURE not in levels:
        levels = image.level_by_feature or first_levels()
    return replace(
        found,
        level_by_feature=levels,
        brokers={one.broker_id: one for one in _brokers(image, loaded, live)},
        controllers=image.controllers,
        kept_records=image.kept_records,
    )


def _brokers(
    image: ClusterImage, loaded: Loaded, live: Mapping[BrokerId, LiveBroker]
) -> list[BrokerImage]:
    unseen = dict.fromkeys(loaded.unseen, NEVER_HANDLED)
    return [
        _broker(broker_id, epoch, image.brokers.get(broker_id), live.get(broker_id))
        for broker_id, epoch in {**loaded.seen_epochs, **unseen}.items()
    ]


def _broker(
    broker_id: BrokerId, epoch: int, known: BrokerImage | None, live: LiveBroker | None
) -> BrokerImage:
    """Return a broker as the decisions in ZooKeeper leave it.

    A live incarnation that a controller has handled is in service. A former incarnation is still to
    be fenced, so that it leaves its ISRs. A registration with the quorum that did not get into the
    log has left the ISRs already, and was not answered.
    """
    registered = epoch_in_quorum(epoch)
    if registered is not None:
        if known is not None and not known.is_in_zookeeper and known.broker_epoch == registered:
            return known
        return BrokerImage(broker_id, registered, ZERO_UUID, (), is_fenced=True)
    earlier = BrokerImage(broker_id, epoch, ZERO_UUID, (), is_in_zookeeper=True)
    if live is not None and is_same_life(earlier, live):
        return replace(live.broker, is_in_zookeeper=True)
    return earlier
