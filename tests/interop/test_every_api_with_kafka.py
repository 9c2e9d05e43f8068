"""The APIs that Kafka offers, and its responses where the feature of an API is disabled."""

from collections.abc import Iterator
from typing import Final

import pytest

from ottla.broker.handlers.unsupported import VERSIONS_AND_REFUSALS
from ottla.broker.requests.response_error_codes import error_finder
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
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.schema import Message
from tests.clients.kafka_apis import OFFERED_BY_KAFKA, offered_by, request_of
from tests.clients.raw_requests import ask
from tests.interop.kafka_node import kafka_node

FEATURES: Final = ("group.version", "share.version", "streams.version")
NAMING_SOMETHING: Final[dict[ApiKey, Message]] = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeRequest(group_ids=["a", "b"]),
    ApiKey.SHARE_GROUP_DESCRIBE: ShareGroupDescribeRequest(group_ids=["a", "b"]),
    ApiKey.STREAMS_GROUP_DESCRIBE: StreamsGroupDescribeRequest(group_ids=["a", "b"]),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id="a", topics=None)]
    ),
    ApiKey.READ_SHARE_GROUP_STATE: ReadShareGroupStateRequest(
        group_id="a",
        topics=[ReadStateData(topic_id=b"t" * 16, partitions=[PartitionData(partition=0)])],
    ),
}
"""Requests with error codes only per group or partition in their responses."""
VOTERS: Final = {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
"""This node has a dynamic quorum, and so another response."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_node(
        tmp_path_factory.mktemp("kafka"),
        settings={"group.coordinator.rebalance.protocols": "classic"},
        disabled=FEATURES,
    ) as node:
        yield node.start().bootstrap_server


@pytest.fixture(scope="module")
def ottla() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_the_list_of_apis_is_that_of_kafka(kafka: str) -> None:
    assert offered_by(kafka) == {int(key): versions for key, versions in OFFERED_BY_KAFKA.items()}


@pytest.mark.parametrize("key", sorted(VERSIONS_AND_REFUSALS.keys() - VOTERS))
def test_a_disabled_feature_is_refused_as_by_kafka(kafka: str, ottla: str, key: ApiKey) -> None:
    find = error_finder(key)
    versions, _ = VERSIONS_AND_REFUSALS[key]
    assert (versions[0], versions[-1]) == OFFERED_BY_KAFKA[key]
    request = NAMING_SOMETHING.get(key) or request_of(key)
    codes = [list(find(ask(servers, key, versions[-1], request))) for servers in (kafka, ottla)]
    assert codes[0] == codes[1]
