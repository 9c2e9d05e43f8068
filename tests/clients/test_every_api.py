"""Every API that Kafka offers gets a response: none closes the connection."""

from collections.abc import Iterator

import pytest

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.wire.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadStateData,
)
from tests.clients.kafka_apis import OFFERED_BY_KAFKA, offered_by, request_of, requests
from tests.clients.raw_requests import RawConnection, ask

NOT_OFFERED = frozenset(range(ApiKey.CONSUMER_GROUP_HEARTBEAT, 93)) - {
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_every_api_of_kafka_is_answered_in_each_of_its_versions(servers: str) -> None:
    asked = list(requests())
    with RawConnection(servers) as connection:
        for key, version in asked:
            connection.ask(ApiKey(key), version, request_of(key))
    assert len(asked) > 250


def test_only_apis_of_missing_features_are_not_offered(servers: str) -> None:
    offered = offered_by(servers)
    missing = OFFERED_BY_KAFKA.keys() - offered.keys()
    assert missing == OFFERED_BY_KAFKA.keys() & NOT_OFFERED
    for key in OFFERED_BY_KAFKA.keys() & offered.keys():
        first, last = OFFERED_BY_KAFKA[key]
        assert offered[key][0] <= first
        assert offered[key][1] >= last


def test_groups_of_the_new_protocols_are_refused_one_by_one(servers: str) -> None:
    described = ask(
        servers,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        ConsumerGroupDescribeRequest(group_ids=["a", "b"]),
    )
    groups = [
        DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in ("a", "b")
    ]
    request = DescribeShareGroupOffsetsRequest(groups=groups)
    of_offsets = ask(servers, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request)
    for answer in (described, of_offsets):
        assert [(one.group_id, one.error_code) for one in answer.groups] == [
            ("a", ErrorCode.UNSUPPORTED_VERSION),
            ("b", ErrorCode.UNSUPPORTED_VERSION),
        ]


def test_states_of_share_groups_are_refused_by_partition(servers: str) -> None:
    topic = ReadStateData(topic_id=b"t" * 16, partitions=[PartitionData(partition=3)])
    request = ReadShareGroupStateRequest(group_id="g", topics=[topic])
    (result,) = ask(servers, ApiKey.READ_SHARE_GROUP_STATE, 0, request).results
    (partition,) = result.partitions
    assert result.topic_id == b"t" * 16
    assert (partition.partition, partition.error_code) == (3, ErrorCode.NOT_COORDINATOR)
