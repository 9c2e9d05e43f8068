"""Every API in every version that the broker offers gets a response, for old clients too."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader
from ottla.wire.messages import alter_configs, incremental_alter_configs
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
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
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.schema import Message
from tests.old_messages import message

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
        of_transactions = FindCoordinatorRequest(key="t", key_type=1)
        ask(running, ApiKey.FIND_COORDINATOR, 1, of_transactions)
        (wanted,) = _incremental_alter_configs(running, 1)
        ask(running, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, wanted)
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
        for version in range(api.min_version, api.max_version + 1):
            for request in _requests(broker, ApiKey(api.api_key), version):
                ask(broker, api.api_key, version, request)
                asked += 1
    assert asked > 100


def _requests(broker: Broker, key: ApiKey, version: int) -> list[Message]:
    """Return requests for existing objects, where there are any, and for missing ones."""
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


def _offset_commit(broker: Broker, version: int) -> list[Message]:
    partitions = [OffsetCommitRequestPartition(partition_index=number) for number in (0, 99)]
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    if version >= 10:
        topic = OffsetCommitRequestTopic(topic_id=_topic_id(broker), partitions=partitions)
    return [OffsetCommitRequest(group_id=GROUP, topics=[topic])]


def _offset_delete(_: Broker, version: int) -> list[Message]:
    partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 99)]
    topic = OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)
    return [OffsetDeleteRequest(group_id=group, topics=[topic]) for group in (GROUP, "nobody")]


def _offset_fetch(broker: Broker, version: int) -> list[Message]:
    if version >= 8:
        wanted_topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 99])
        if version >= 10:
            wanted_topic.topic_id = _topic_id(broker)
        return [
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
            for topics in ([wanted_topic], None)
        ]
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
    records = bytes(builder.build()) if version >= 3 else message(0, magic=version // 2)
    data = PartitionProduceData(index=index, records=records)
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


def _delete_records(_: Broker, version: int) -> list[Message]:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in (0, 99)]
    return [DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=partitions)])]


def _offset_for_leader_epoch(_: Broker, version: int) -> list[Message]:
    partitions = [OffsetForLeaderPartition(partition=index) for index in (0, 99)]
    topic = OffsetForLeaderTopic(topic=TOPIC, partitions=partitions)
    return [OffsetForLeaderEpochRequest(topics=[topic])]


def _describe_producers(_: Broker, version: int) -> list[Message]:
    return [DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0, 99])])]


def _write_txn_markers(_: Broker, version: int) -> list[Message]:
    topics = [WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 99])]
    return [WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=9, topics=topics)])]


def _txn_offset_commit(_: Broker, version: int) -> list[Message]:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=number, committed_metadata="")
        for number in (0, 99)
    ]
    topic = TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    return [
        TxnOffsetCommitRequest(transactional_id="t", group_id=group, producer_id=9, topics=[topic])
        for group in (GROUP, "")
    ]


def _init_producer_id(_: Broker, version: int) -> list[Message]:
    return [
        InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        for name in (None, "t", "")
    ]


def _producer(broker: Broker) -> dict[str, Any]:
    """Return the fields of a request that identify a transactional producer."""
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    deadline = time.monotonic() + 60
    while True:
        told: Any = ask(broker, ApiKey.INIT_PRODUCER_ID, 5, request)
        if not told.error_code:
            break
        # A transaction that another version has begun is aborted first.
        assert told.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert time.monotonic() < deadline
    return {
        "transactional_id": "t",
        "producer_id": told.producer_id,
        "producer_epoch": told.producer_epoch,
    }


def _add_partitions_to_txn(broker: Broker, version: int) -> list[Message]:
    producer = _producer(broker)
    requests: list[Message] = []
    for partitions in ([0], [0, 99]):
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)]
        if version >= 4:
            one = AddPartitionsToTxnTransaction(**producer, topics=topics)
            requests.append(AddPartitionsToTxnRequest(transactions=[one]))
            continue
        old = {f"v3_and_below_{name}": value for name, value in producer.items()}
        requests.append(AddPartitionsToTxnRequest(**old, v3_and_below_topics=topics))
    return requests


def _add_offsets_to_txn(broker: Broker, version: int) -> list[Message]:
    return [AddOffsetsToTxnRequest(**_producer(broker), group_id=GROUP), AddOffsetsToTxnRequest()]


def _end_txn(broker: Broker, version: int) -> list[Message]:
    return [EndTxnRequest(**_producer(broker), committed=False), EndTxnRequest()]


def _describe_transactions(_: Broker, version: int) -> list[Message]:
    return [DescribeTransactionsRequest(transactional_ids=["t", "nobody", ""])]


def _describe_configs(_: Broker, version: int) -> list[Message]:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in [(2, TOPIC), (2, "nowhere"), (4, "1"), (4, ""), (8, "1"), (32, GROUP)]
    ]
    return [
        DescribeConfigsRequest(
            resources=resources, include_synonyms=True, include_documentation=version >= 3
        )
    ]


def _alter_configs(_: Broker, version: int) -> list[Message]:
    resources = [
        alter_configs.AlterConfigsResource(
            resource_type=2,
            resource_name=name,
            configs=[alter_configs.AlterableConfig(name="flush.ms", value="1000")],
        )
        for name in (TOPIC, "nowhere")
    ]
    return [alter_configs.AlterConfigsRequest(resources=resources)]


def _incremental_alter_configs(_: Broker, version: int) -> list[Message]:
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[incremental_alter_configs.AlterableConfig(name=setting, value=value)],
        )
        for kind, name, setting, value in [
            (2, TOPIC, "flush.ms", "1000"),
            (2, "nowhere", "flush.ms", "1000"),
            (16, "all", "metrics", "*"),  # without which telemetry is not offered
        ]
    ]
    return [incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources)]


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
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
}
