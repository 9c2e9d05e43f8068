"""The content of ZooKeeper in the log of a quorum, as the offline conversion has it."""

from dataclasses import replace

import pytest

from ottla.broker.metadata_store.migration.copied_image import copying_records
from ottla.broker.metadata_store.zookeeper.conversion import read_image
from ottla.broker.metadata_store.zookeeper.migration_nodes import seen_in_quorum
from ottla.broker.metadata_store.zookeeper.znodes import LiveBroker, seen_epoch_path
from ottla.environment.zookeeper import Write
from ottla.machines.controller.machine import Controller
from ottla.metadata.image import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    ZkMigrationState,
)
from ottla.metadata.records import NO_LEADER
from ottla.metadata.replay import replay
from ottla.model.identifiers import BrokerId, Offset
from ottla.wire.messages.delete_topics import DeleteTopicState
from tests.metadata_building import CLUSTER_ID, new_topic, uuid_of
from tests.unit.broker.metadata_store.zookeeper.test_conversion import EPOCH, stopped_cluster
from tests.unit.broker.metadata_store.zookeeper.test_znode_writes import Keeper, run

BEGUN = ZkMigrationState.MIGRATION


def copied(
    keeper: Keeper, image: ClusterImage, live: dict[BrokerId, LiveBroker] | None = None
) -> ClusterImage:
    """Return the image of a log after the first decision of an office."""
    records = copying_records(image, keeper.loaded(), live or {}, BEGUN)
    return replay(image, records, Offset(image.end_offset + len(records)))


def empty() -> ClusterImage:
    return ClusterImage(CLUSTER_ID)


def test_the_copy_is_equal_to_the_offline_conversion() -> None:
    keeper = stopped_cluster()
    settings = keeper.controller.settings
    oracle: ClusterImage = run(lambda: read_image(keeper.session, CLUSTER_ID, EPOCH, settings))
    controller = Controller(copied(keeper, empty()), settings)
    # No session is there: the office fences the brokers as the conversion does.
    gone = frozenset(controller.image.brokers)
    for broker_id in sorted(gone):
        records = controller.fence_broker(broker_id, gone).records
        controller.replay(records, Offset(controller.image.end_offset + len(records)))
    found = controller.image
    assert found.topics == oracle.topics
    assert found.configs == oracle.configs
    assert found.level_by_feature == oracle.level_by_feature
    assert found.next_producer_id == oracle.next_producer_id
    assert found.topic_name_by_folded == oracle.topic_name_by_folded
    assert found.partition_count == oracle.partition_count
    assert found.brokers.keys() == oracle.brokers.keys()
    assert all(one.is_fenced for one in found.brokers.values())
    assert (found.zk_migration_state, oracle.zk_migration_state) == (BEGUN, 0)


def test_the_copy_of_the_same_content_has_no_records_but_the_state() -> None:
    keeper = stopped_cluster()
    image = copied(keeper, empty())
    assert len(copying_records(image, keeper.loaded(), {}, BEGUN)) == 1


def test_decisions_that_the_log_lacks_are_completed() -> None:
    keeper = stopped_cluster()
    image = copied(keeper, empty())
    keeper.create(new_topic("c", 3, 2, retention_ms="7"))
    keeper.write(keeper.controller.delete_topics([DeleteTopicState(name="b")]))
    keeper.write(keeper.controller.fence_broker(1))
    keeper.write(keeper.controller.unfence_broker(2))
    keeper.write(keeper.controller.allocate_producer_ids(0, 0))
    again = copied(keeper, image)
    assert again.topics == keeper.controller.image.topics
    assert again.configs == keeper.controller.image.configs
    assert again.next_producer_id == keeper.controller.image.next_producer_id


def test_no_epoch_of_a_partition_goes_back() -> None:
    keeper = stopped_cluster()
    found = copied(keeper, empty())
    for name, topic in keeper.controller.image.topics.items():
        assert found.topics[name].partitions == topic.partitions


def registered(broker_id: int, epoch: int, *, in_zookeeper: bool) -> BrokerImage:
    endpoint = Endpoint("PLAINTEXT", f"h{broker_id}", 9092, 0)
    return BrokerImage(
        BrokerId(broker_id),
        epoch,
        uuid_of(broker_id),
        (endpoint,),
        is_in_zookeeper=in_zookeeper,
    )


def with_brokers(image: ClusterImage, *brokers: BrokerImage) -> ClusterImage:
    return replace(image, brokers={one.broker_id: one for one in brokers})


def note(keeper: Keeper, broker_id: int, seen: int) -> None:
    keeper.tree.commit(1, [Write(seen_epoch_path(BrokerId(broker_id)), b"%d" % seen)])


def test_a_live_broker_that_was_handled_stays_in_service() -> None:
    keeper = stopped_cluster()
    note(keeper, 1, 77)
    live = LiveBroker(registered(1, 77, in_zookeeper=False), has_lost_tail=False)
    found = copied(keeper, empty(), {BrokerId(1): live}).brokers[BrokerId(1)]
    assert (found.broker_epoch, found.is_fenced, found.is_in_zookeeper) == (77, False, True)
    assert found.endpoints == live.broker.endpoints


def test_a_broker_of_the_quorum_keeps_its_registration() -> None:
    keeper = stopped_cluster()
    note(keeper, 1, seen_in_quorum(78))
    own = registered(1, 78, in_zookeeper=False)
    image = with_brokers(copied(keeper, empty()), own)
    assert copied(keeper, image).brokers[BrokerId(1)] == own


@pytest.mark.parametrize("known", [None, 70])
def test_a_registration_that_is_not_in_the_log_leaves_a_fenced_broker(known: int | None) -> None:
    keeper = stopped_cluster()
    note(keeper, 1, seen_in_quorum(78))
    image = copied(keeper, empty())
    brokers = [] if known is None else [registered(1, known, in_zookeeper=True)]
    found = copied(keeper, with_brokers(image, *brokers)).brokers[BrokerId(1)]
    assert (found.broker_epoch, found.is_fenced, found.is_in_zookeeper) == (78, True, False)


def test_a_former_incarnation_is_still_to_be_fenced() -> None:
    keeper = stopped_cluster()
    note(keeper, 1, 77)
    found = copied(keeper, empty()).brokers[BrokerId(1)]
    assert (found.is_fenced, found.is_in_zookeeper) == (False, True)
    assert any(one.leader != NO_LEADER for one in keeper.controller.image.topics["a"].partitions)
