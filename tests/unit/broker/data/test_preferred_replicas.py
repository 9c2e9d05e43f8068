"""Consumers are sent to the replica in their rack if it has the offset that they fetch."""

from ottla.broker.data.preferred_replicas import PreferredReplicas
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.replication.in_sync import Assignment, Follower
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import FetchPartition
from tests.log_building import NOW_MS, PARTITION, batch, new_log

RACKS = {0: "a", 1: "b", 2: "b", 3: "c"}
IMAGE = ClusterImage(
    "cluster",
    brokers={one: BrokerImage(one, 1, bytes(16), (), rack=rack) for one, rack in RACKS.items()},
)


def led(*ends: int) -> Partition:
    """Return a partition of ten records, led by broker 0; followers have these end offsets."""
    partition = Partition(PARTITION, bytes(16), new_log(), lambda _: None)
    replicas = tuple(range(len(ends) + 1))
    partition.lead(0, Assignment(0, replicas, replicas, 0))
    partition.append_as_leader(batch(10), NOW_MS)
    for broker_id, end_offset in enumerate(ends, start=1):
        follower = Follower(broker_id, 1)
        partition.read_as_follower(follower, end_offset, 100, leader_epoch=0, asked_ms=0)
    return partition


def preferred(partition: Partition, rack: str, offset: int = 0, *, is_on: bool = True) -> int:
    found = PreferredReplicas(lambda: IMAGE, is_on).find(
        partition, rack, FetchPartition(fetch_offset=offset)
    )
    if found is None:
        return 0
    assert len(found.records) == 0
    return found.preferred_replica


def test_the_replica_of_the_same_rack_is_nearest() -> None:
    assert preferred(led(10, 10, 10), "c") == 3


def test_of_several_replicas_the_replica_with_most_records_is_chosen() -> None:
    assert preferred(led(5, 10, 0), "b") == 2


def test_the_leader_is_chosen_in_its_rack_or_without_a_nearer_replica() -> None:
    partition = led(10, 10, 10)
    assert preferred(partition, "a") == 0
    assert preferred(partition, "elsewhere") == 0


def test_no_consumer_is_sent_to_a_replica_without_the_records() -> None:
    assert preferred(led(10, 10, 5), "c", offset=6) == 0


def test_without_a_rack_no_replica_is_preferred() -> None:
    assert preferred(led(10, 10, 10), "c", is_on=False) == 0


def test_a_replica_out_of_sync_is_not_preferred() -> None:
    partition = led(10, 10, 10)
    partition.lead(0, Assignment(0, (0, 1, 2, 3), (0, 1, 2), 1))
    assert preferred(partition, "c") == 0
