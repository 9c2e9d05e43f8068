"""How long writes are impossible when a broker stops or dies, seen by a client of librdkafka."""

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, TopicMetadata

from benchmarks.cluster_starts import BROKERS, LOOK_SECONDS, MeasuredCluster

SECONDS_MAX: Final = 120
WRITES_AFTERWARDS: Final = 20
IMPATIENT: Final = {
    "retry.backoff.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.interval.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "linger.ms": 0,
}
"""Prevents that a client's own waiting hides the brokers' delays: by default it asks once a second
for the leader, and the figure would be that second."""
CALM: Final = {
    **IMPATIENT,
    "topic.metadata.refresh.interval.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 250,
}
"""For topics so large that the responses alone would keep brokers busy."""


def await_replicas(cluster: MeasuredCluster, topic: str) -> None:
    """Return when all replicas of a topic are in sync."""
    deadline = time.monotonic() + SECONDS_MAX
    admin = AdminClient(_client(cluster))
    while time.monotonic() < deadline:
        partitions = _described(admin, topic).partitions.values()
        if partitions and all(len(one.isrs) == BROKERS for one in partitions):
            return
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"{cluster.name}: replicas of {topic} are not in sync")


def longest_silence(
    cluster: MeasuredCluster, topic: str, end: Callable[[MeasuredCluster, int], None]
) -> float:
    """Write records while a leader stops or dies; return the longest time without an ack.

    The topic has one partition. Writes continue until the broker is gone, and a little longer.
    Afterwards the broker is restarted, and is in sync again.
    """
    leader = _leaders(cluster, topic)[0]
    producer = Producer({**_client(cluster), **IMPATIENT})
    for _ in range(WRITES_AFTERWARDS):
        _write(producer, topic)
    longest, writes_after = 0.0, 0
    acknowledged = time.perf_counter()
    end(cluster, leader)
    while writes_after < WRITES_AFTERWARDS:
        writes_after += not cluster.nodes[leader].is_running
        _write(producer, topic)
        now = time.perf_counter()
        longest, acknowledged = max(longest, now - acknowledged), now
    cluster.start_again(leader)
    await_replicas(cluster, topic)
    return longest


def seconds_to_write_everywhere(cluster: MeasuredCluster, topic: str) -> float:
    """Kill a broker; return when each partition that it led has acknowledged a record again.

    Afterwards the broker is restarted, and is in sync again.
    """
    leaders = _leaders(cluster, topic)
    broker_id = leaders[0]
    producer = Producer({**_client(cluster), **CALM})
    producer.list_topics(topic, timeout=SECONDS_MAX)
    began = time.perf_counter()
    cluster.kill(broker_id)
    for number, leader in leaders.items():
        if leader == broker_id:
            producer.produce(topic, b"after", partition=number, on_delivery=_check)
    assert producer.flush(SECONDS_MAX) == 0, f"{cluster.name}: somebody leads no more"
    seconds = time.perf_counter() - began
    cluster.start_again(broker_id)
    await_replicas(cluster, topic)
    return seconds


def _leaders(cluster: MeasuredCluster, topic: str) -> dict[int, int]:
    """Return the leader of each partition, from a client's metadata."""
    described = _described(AdminClient(_client(cluster)), topic)
    return {number: one.leader for number, one in described.partitions.items()}


def _write(producer: Producer, topic: str) -> None:
    producer.produce(topic, b"again", partition=0, on_delivery=_check)
    assert producer.flush(SECONDS_MAX) == 0, "no broker answers"


def _check(error: KafkaError | None, _: Message) -> None:
    assert error is None, error


def _described(admin: AdminClient, topic: str) -> TopicMetadata:
    return admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic]


def _client(cluster: MeasuredCluster) -> dict[str, str | float | bool]:
    return {"bootstrap.servers": cluster.servers, "log_level": 0}
