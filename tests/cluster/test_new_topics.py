"""An auto-created topic can be used at once, on any broker that a client asks next."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ottla.model.error_code import ErrorCode
from ottla.testing.cluster import Cluster
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.clients.raw_requests import RawConnection
from tests.cluster.watching import Watcher

ROUNDS = 20
FETCH_VERSION = 11
"""The first version in which a consumer may fetch from a follower; topics are named in it."""
Connections = dict[int, RawConnection]


@pytest.fixture
def connections(cluster: Cluster, watcher: Watcher) -> Iterator[Connections]:
    """Connect to each broker, so that a request need not wait for a connection."""
    with ExitStack() as stack:
        yield {
            broker_id: stack.enter_context(RawConnection(broker.bootstrap_servers))
            for broker_id, broker in cluster.brokers.items()
        }


def topic_as_told(connection: RawConnection, name: str, *, is_creating: bool = False) -> Any:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=is_creating
    )
    (topic,) = connection.ask(ApiKey.METADATA, 9, request).topics
    return topic


def test_every_broker_knows_a_topic_that_the_controller_has_made_on_use(
    cluster: Cluster, connections: Connections
) -> None:
    controller_id = cluster.controller_id()
    others = [one for broker_id, one in connections.items() if broker_id != controller_id]
    for number in range(ROUNDS):
        name = f"used-first-on-the-controller-{number}"
        made = topic_as_told(connections[controller_id], name, is_creating=True)
        codes = [topic_as_told(other, name).error_code for other in others]
        assert [made.error_code, *codes] == [0, 0, 0]


def test_a_consumer_can_wait_on_any_replica_of_a_new_topic(connections: Connections) -> None:
    for number in range(ROUNDS):
        name = f"read-at-once-{number}"
        assert topic_as_told(connections[1], name, is_creating=True).error_code == 0
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic=name, partitions=[partition])],
        )
        for connection in connections.values():
            answer = connection.ask(ApiKey.FETCH, FETCH_VERSION, request)
            ((read,),) = (topic.partitions for topic in answer.responses)
            assert ErrorCode(read.error_code) is ErrorCode.NONE
