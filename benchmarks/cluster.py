"""The cluster metadata in the measured messages."""

from typing import NamedTuple
from uuid import UUID

BASE_OFFSET = 1_234_567
LOG_START_OFFSET = 1_000
LEADER_EPOCH = 7


class Broker(NamedTuple):
    """The address of a broker."""

    node_id: int
    host: str
    port: int


class Topic(NamedTuple):
    """A topic, and the brokers that have each of its partitions, the leader first."""

    name: str
    topic_id: UUID
    replicas: list[list[int]]


BROKERS = [Broker(node_id, f"broker-{node_id}.example", 9092) for node_id in (1, 2, 3)]
TOPICS = [
    Topic(f"orders-{number:03}", UUID(int=number + 1), [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2)
    for number in range(100)
]
