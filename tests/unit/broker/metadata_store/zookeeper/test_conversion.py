"""The metadata in ZooKeeper as the first snapshot of a quorum's log."""

from ottla.broker.metadata_store.zookeeper.conversion import read_image, write_first_snapshot
from ottla.broker.quorum.quorum_log import LogSettings
from ottla.broker.quorum.replica_files import FirstVoters, ReplicaFiles
from ottla.environment.zookeeper import Write
from ottla.machines.controller.machine import Controller
from ottla.metadata.image import ClusterImage
from ottla.metadata.log_replay import MetadataLogReplay
from ottla.metadata.record_frames import metadata_records_of
from ottla.metadata.records import NO_LEADER
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.simulation.world.disk import SimulatedDisk
from tests.metadata_building import CLUSTER_ID, new_topic, uuid_of
from tests.unit.broker.metadata_store.zookeeper.test_znode_writes import Keeper, run
from tests.unit.machines.controller.quorum_cluster import QuorumCluster, registration

EPOCH = 7
VOTERS = VoterSet((Voter(ReplicaKey(9, uuid_of(9)), (Endpoint("C", "h", 9093),)),))


def stopped_cluster() -> Keeper:
    """Return the nodes of three brokers that were killed one after the other."""
    keeper = Keeper()
    keeper.write(keeper.controller.bootstrap())
    keeper.create(new_topic("a", 2, 3, min_insync_replicas="2"), new_topic("b", 1, 1))
    keeper.write(keeper.controller.fence_broker(2))
    keeper.write(keeper.controller.allocate_producer_ids(0, 0))
    return keeper


def image_of(keeper: Keeper) -> ClusterImage:
    settings = keeper.controller.settings
    found: ClusterImage = run(lambda: read_image(keeper.session, CLUSTER_ID, EPOCH, settings))
    return found


def test_topics_settings_levels_and_producer_ids_are_as_before() -> None:
    keeper = stopped_cluster()
    before, image = keeper.controller.image, image_of(keeper)
    assert image.end_offset == EPOCH << 32
    assert (image.configs, image.next_producer_id) == (before.configs, before.next_producer_id)
    assert image.level_by_feature == before.level_by_feature
    assert image.topics.keys() == before.topics.keys()
    for name, topic in before.topics.items():
        found = image.topics[name]
        assert found.topic_id == topic.topic_id
        for old, new in zip(topic.partitions, found.partitions, strict=True):
            assert (new.replicas, new.directories) == (old.replicas, old.directories)
            assert new.leader_epoch > old.leader_epoch or old.leader == NO_LEADER
            assert new.partition_epoch > old.partition_epoch
            # No replica that had all committed records is forgotten.
            assert {*new.isr, *new.eligible_leader_replicas} <= {
                *old.isr,
                *old.eligible_leader_replicas,
            }
            assert {*new.isr, *new.eligible_leader_replicas}


def test_brokers_are_fenced_and_serve_again_once_they_register() -> None:
    image = image_of(stopped_cluster())
    assert all(broker.is_fenced for broker in image.brokers.values())
    assert all(broker.broker_epoch < image.end_offset for broker in image.brokers.values())
    assert len({broker.broker_epoch for broker in image.brokers.values()}) == 3
    cluster = QuorumCluster(Controller(image, stopped_cluster().controller.settings))
    cluster.controller.take_office(cluster.now_ms)
    for broker_id, known in image.brokers.items():
        cluster.register(registration(broker_id, previous_epoch=known.broker_epoch))
        cluster.beat(broker_id)
    for topic in cluster.image.topics.values():
        assert all(partition.leader != NO_LEADER for partition in topic.partitions)


def test_a_cluster_without_levels_gets_the_first() -> None:
    keeper = stopped_cluster()
    keeper.tree.commit(1, [Write("/feature", b"")])
    assert image_of(keeper).level_by_feature["metadata.version"] == 30


def test_a_replica_begins_with_the_snapshot() -> None:
    image = image_of(stopped_cluster())
    disk = SimulatedDisk()
    disk.make_directory("/meta")
    write_first_snapshot(disk, "/meta", image, EPOCH, VOTERS, 5)
    files = ReplicaFiles(disk, "/meta", LogSettings(), FirstVoters(), 6)
    assert (files.log.end_offset, files.outline.last_epoch) == (EPOCH << 32, EPOCH)
    assert (files.history.voters, files.history.kraft_version) == (VOTERS, 1)
    (snapshot_id,) = files.snapshots.ids()
    found = files.snapshots.data_of(snapshot_id)
    log = MetadataLogReplay(ClusterImage(CLUSTER_ID))
    log.load([one for batch in found for one in metadata_records_of(batch)], image.end_offset)
    assert log.image == image
