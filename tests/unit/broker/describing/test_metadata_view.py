"""Cluster metadata from a broker that may no longer belong to the cluster."""

from ottla.broker.describing.metadata_view import UNKNOWN_LEADER, CurrentLeaders, MetadataView
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from tests.log_building import new_log
from tests.metadata_building import CLUSTER_ID, ENDPOINT

NAME = TopicPartition("orders", 0)
TOPIC_ID = b"\1" * 16
PARTITION = PartitionImage(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=3, partition_epoch=0)


def view(*brokers: int, is_sure: bool) -> MetadataView:
    topic = TopicImage("orders", TOPIC_ID, (PARTITION,))
    image = ClusterImage(
        CLUSTER_ID,
        topics={"orders": topic},
        brokers={number: BrokerImage(number, 1, b"\0" * 16, (ENDPOINT,)) for number in brokers},
    )
    partitions = HostedPartitions()
    partitions.add(Partition(NAME, TOPIC_ID, new_log(), lambda _: None))
    return MetadataView(1, lambda: image, partitions, is_sure=lambda: is_sure)


def told(of: MetadataView) -> set[int]:
    return {one.broker.broker_id for one in of.brokers("PLAINTEXT") if not one.broker.is_fenced}


def test_a_broker_that_is_sure_of_itself_sends_clients_to_itself() -> None:
    sure = view(1, 2, is_sure=True)
    assert told(sure) == {1, 2}
    assert sure.state_of(sure.image, NAME, PARTITION).leader == 1
    assert CurrentLeaders(lambda: sure.image).find(NAME, "PLAINTEXT").leader_id == 1


def test_a_broker_that_is_not_sure_sends_clients_to_others() -> None:
    unsure = view(1, 2, is_sure=False)
    assert told(unsure) == {2}
    state = unsure.state_of(unsure.image, NAME, PARTITION)
    assert (state.error_code, state.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert CurrentLeaders(lambda: unsure.image).find(NAME, "PLAINTEXT") == UNKNOWN_LEADER


def test_a_leader_whose_disk_has_failed_leads_nothing() -> None:
    broken = view(1, 2, is_sure=True)
    broken.partitions.get(NAME).log.take_offline(OSError("no such device"))
    state = broken.state_of(broken.image, NAME, PARTITION)
    assert (state.leader, state.offline_replicas) == (-1, [1])


def test_a_leader_whose_log_could_not_be_opened_leads_nothing() -> None:
    broken = view(1, 2, is_sure=True)
    broken.partitions.remove(NAME)
    broken.partitions.offline[NAME] = "no such device"
    state = broken.state_of(broken.image, NAME, PARTITION)
    assert (state.leader, state.offline_replicas) == (-1, [1])


def test_a_broker_that_is_alone_and_not_sure_still_says_where_it_is() -> None:
    assert told(view(1, is_sure=False)) == {1}
