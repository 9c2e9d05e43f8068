"""Every API in every version that the broker offers is answered, for old clients too."""

import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.schema import Message

TOPIC = "versions"
GROUP = "versions-group"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"offsets.topic.num.partitions": "1"}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        producer.produce(TOPIC, b"first")
        assert producer.flush(20) == 0
        find = FindCoordinatorRequest(key=GROUP)
        ask(running, ApiKey.FIND_COORDINATOR, 1, find)
        yield running


def ask(broker: Broker, key: int, version: int, request: Message) -> Message:
    header = RequestHeader(key, version, 5, "versions")
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as connection:
        connection.sendall(b"".join(encode_request(header, request)))
        (size,) = struct.unpack(">i", _read(connection, 4))
        answer_header, answer = decode_response(key, version, memoryview(_read(connection, size)))
    assert answer_header.correlation_id == 5
    return answer


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        assert more, "the broker hung up"
        found += more
    return found


def test_every_offered_version_is_answered(broker: Broker) -> None:
    offered = ask(broker, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    asked = 0
    for api in offered.api_keys:  # type: ignore[attr-defined]
        first = 3 if api.api_key == ApiKey.PRODUCE else api.min_version
        for version in range(first, api.max_version + 1):
            for request in _requests(broker, ApiKey(api.api_key), version):
                ask(broker, api.api_key, version, request)
                asked += 1
    assert asked > 100


def _requests(broker: Broker, key: ApiKey, version: int) -> list[Message]:
    """Return requests that find something, where there is something, and that do not."""
    build = REQUESTS_BY_API.get(key)
    return [API_BY_KEY[key].request()] if build is None else build(broker, version)


def _metadata(_: Broker, version: int) -> list[Message]:
    names = [MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name="no such topic!")]
    return [MetadataRequest(topics=[]), MetadataRequest(topics=names)]


def _create_topics(_: Broker, version: int) -> list[Message]:
    topic = CreatableTopic(name=f"made-{version}", num_partitions=1, replication_factor=1)
    return [CreateTopicsRequest(topics=[topic]), CreateTopicsRequest(topics=[topic])]


def _delete_topics(_: Broker, version: int) -> list[Message]:
    if version >= 6:
        return [DeleteTopicsRequest(topics=[DeleteTopicState(name=f"made-{version}")])]
    return [DeleteTopicsRequest(topic_names=[f"made-{version}", "never made"])]


def _find_coordinator(_: Broker, version: int) -> list[Message]:
    if version >= 4:
        return [FindCoordinatorRequest(coordinator_keys=[GROUP])]
    return [FindCoordinatorRequest(key=GROUP)]


def _offset_commit(_: Broker, version: int) -> list[Message]:
    partitions = [OffsetCommitRequestPartition(partition_index=number) for number in (0, 99)]
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    return [OffsetCommitRequest(group_id=GROUP, topics=[topic])]


def _offset_fetch(_: Broker, version: int) -> list[Message]:
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 99])]
        return [OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])]
    wanted = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 99])
    return [OffsetFetchRequest(group_id=GROUP, topics=[wanted])]


def _describe_groups(_: Broker, version: int) -> list[Message]:
    return [DescribeGroupsRequest(groups=[GROUP, "no such group"])]


def _topic_id(broker: Broker) -> bytes:
    answer = ask(broker, ApiKey.METADATA, 12, MetadataRequest(topics=None))
    return next(t.topic_id for t in answer.topics if t.name == TOPIC)  # type: ignore[attr-defined]


def _produce(broker: Broker, version: int) -> list[Message]:
    return [_produce_to(broker, version, index) for index in (0, 99)]


def _produce_to(broker: Broker, version: int, index: int) -> Message:
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"value")
    data = PartitionProduceData(index=index, records=bytes(builder.build()))
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    if version >= 13:
        topic = TopicProduceData(topic_id=_topic_id(broker), partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def _fetch(broker: Broker, version: int) -> list[Message]:
    return [_fetch_from(broker, version, index) for index in (0, 99)]


def _fetch_from(broker: Broker, version: int, index: int) -> Message:
    wanted = FetchPartition(partition=index, partition_max_bytes=1000)
    topic = FetchTopic(topic=TOPIC, partitions=[wanted])
    if version >= 13:
        topic = FetchTopic(topic_id=_topic_id(broker), partitions=[wanted])
    return FetchRequest(max_bytes=1000, topics=[topic])


def _list_offsets(_: Broker, version: int) -> list[Message]:
    return [
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp)],
                )
            ]
        )
        for index in (0, 99)
        for timestamp in (-1, -2, -3, 0)
    ]


REQUESTS_BY_API: dict[ApiKey, Callable[[Broker, int], list[Message]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
}
