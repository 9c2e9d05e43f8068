"""Real brokers: a throttled move is slow, and finishes at once when the throttle is removed."""

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition

from ottla.testing.cluster import Cluster
from tests.cluster.watching import Watcher

MOVING = "moving"
RECORDS, RECORD_BYTES = 6_000, 1_000
SLOW = 1 << 20
FAST = 1 << 40
LEADER, FOLLOWER, NEWCOMER = 1, 2, 3
SECONDS_MAX = 240
THROTTLED_SECONDS = 2
"""6 MB take longer than this at 1 MB a second."""


def alter(admin: AdminClient, kind: ConfigResource.Type, name: str, **settings: object) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


def set_rate(admin: AdminClient, bytes_per_second: int) -> None:
    broker = ConfigResource.Type.BROKER
    alter(admin, broker, str(LEADER), leader_replication_throttled_rate=bytes_per_second)
    alter(admin, broker, str(NEWCOMER), follower_replication_throttled_rate=bytes_per_second)


def fill(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for _ in range(RECORDS):
        producer.produce(MOVING, bytes(RECORD_BYTES), partition=0)
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0


def test_a_move_goes_as_fast_as_its_throttle_says(cluster: Cluster, watcher: Watcher) -> None:
    watcher.create_topic(MOVING, [[LEADER, FOLLOWER]])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    fill(cluster)
    alter(
        admin,
        ConfigResource.Type.TOPIC,
        MOVING,
        leader_replication_throttled_replicas=f"0:{LEADER}",
        follower_replication_throttled_replicas=f"0:{NEWCOMER}",
    )
    set_rate(admin, SLOW)
    everyone = [LEADER, FOLLOWER, NEWCOMER]
    began = time.monotonic()
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as mover:
        mover.alter_partition_reassignments({TopicPartition(MOVING, 0): everyone})
    in_sync = watcher.in_sync(MOVING)
    while time.monotonic() - began < THROTTLED_SECONDS:  # the state is of a moment before
        assert in_sync == {LEADER, FOLLOWER}, "the move is not throttled"
        time.sleep(0.2)
        in_sync = watcher.in_sync(MOVING)
    set_rate(admin, FAST)
    watcher.wait_until(lambda: watcher.in_sync(MOVING) == set(everyone))
