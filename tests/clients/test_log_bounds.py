"""Start and end offsets of logs, and their producers, as clients query and change them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.clients.plain_socket import SECONDS_MAX, PlainSocket, batch


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"offsets.topic.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[PlainSocket]:
    with PlainSocket(broker) as connection:
        yield connection


def delete(client: PlainSocket, topic: str, offset: int) -> tuple[int, int]:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])])
    (answered,) = client.ask(ApiKey.DELETE_RECORDS, 2, request).topics
    return answered.partitions[0].error_code, answered.partitions[0].low_watermark


def test_records_are_deleted_up_to_an_offset_and_never_come_back(client: PlainSocket) -> None:
    client.create("shortened")
    client.produce("shortened", batch(*[b"x"] * 10))
    assert delete(client, "shortened", 4) == (0, 4)
    assert client.fetch("shortened", 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.fetch("shortened", 4).log_start_offset == 4
    assert delete(client, "shortened", 2) == (0, 4)
    assert delete(client, "shortened", 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(client, "shortened", -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(client, "shortened", -1) == (0, 10)
    assert client.fetch("shortened", 10).error_code == 0


def test_what_may_not_be_deleted_is_refused(client: PlainSocket) -> None:
    client.create("kept", cleanup_policy="compact")
    client.create("both", cleanup_policy="compact,delete")
    client.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key="group"))
    assert delete(client, "kept", -1) == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(client, "both", -1) == (0, 0)
    assert delete(client, "__consumer_offsets", -1) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert delete(client, "nothing", -1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_librdkafka_deletes_records(broker: Broker, client: PlainSocket) -> None:
    client.create("by-librdkafka")
    client.produce("by-librdkafka", batch(b"x", b"y"))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = TopicPartition("by-librdkafka", 0, 1)
    (answered,) = admin.delete_records([wanted]).values()
    assert answered.result(SECONDS_MAX).low_watermark == 1


def end_of_epoch(client: PlainSocket, topic: str, epoch: int, current: int) -> tuple[int, int, int]:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    (answered,) = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request).topics
    (found,) = answered.partitions
    return found.error_code, found.leader_epoch, found.end_offset


def test_an_epoch_ends_where_the_log_ends_or_the_next_one_begins(client: PlainSocket) -> None:
    client.create("epochs")
    assert end_of_epoch(client, "epochs", 0, 0) == (0, 0, 0), "it has begun, with nothing in it"
    client.produce("epochs", batch(b"x", b"y"))
    assert end_of_epoch(client, "epochs", 0, -1) == (0, 0, 2)
    assert end_of_epoch(client, "epochs", 1, 0) == (0, -1, -1)
    assert end_of_epoch(client, "epochs", -1, 0) == (0, -1, -1)
    assert end_of_epoch(client, "epochs", 0, 3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end_of_epoch(client, "none", 0, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_a_partition_that_is_named_twice_has_no_offset(client: PlainSocket) -> None:
    client.create("twice", 2)
    client.produce("twice", batch(b"x"))
    first, *others = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in (0, 1, 0)]
    topics = [
        ListOffsetsTopic(name="twice", partitions=[first]),
        ListOffsetsTopic(name="twice", partitions=others),
    ]
    answered = client.ask(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=topics)).topics
    assert [(one.error_code, one.offset) for each in answered for one in each.partitions] == [
        (ErrorCode.INVALID_REQUEST, -1),
        (0, 0),
        (ErrorCode.INVALID_REQUEST, -1),
    ]


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)]
)
def test_each_special_time_has_a_version_since_which_it_is_there(
    client: PlainSocket, timestamp: int, since: int
) -> None:
    topic = f"times-{timestamp}"
    client.create(topic)
    client.produce(topic, batch(b"x"))
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    for version in range(1, 12):
        (answered,) = client.ask(ApiKey.LIST_OFFSETS, version, request).topics
        code = ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert answered.partitions[0].error_code == code


@pytest.mark.parametrize("timestamp", [-5, -6])
def test_nothing_is_moved_to_other_storage_or_waits_to_be(
    client: PlainSocket, timestamp: int
) -> None:
    topic = f"moved-{timestamp}"
    client.create(topic)
    client.produce(topic, batch(b"x"))
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    (answered,) = client.ask(ApiKey.LIST_OFFSETS, 11, request).topics
    (found,) = answered.partitions
    assert (found.error_code, found.offset, found.leader_epoch) == (ErrorCode.NONE, -1, -1)


def test_producers_with_an_id_are_described(client: PlainSocket) -> None:
    client.create("produced")
    client.produce("produced", batch(b"nameless"))
    client.produce("produced", batch(b"x", b"y", producer_id=7, producer_epoch=2, base_sequence=0))
    topic = TopicRequest(name="produced", partition_indexes=[0, 1])
    request = DescribeProducersRequest(topics=[topic])
    (answered,) = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics
    there, missing = answered.partitions
    (producer,) = there.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 1)
    assert producer.last_timestamp == 1_700_000_000_000
    assert producer.current_txn_start_offset == -1
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.error_message == "produced-1"


def test_a_log_begins_at_the_same_offset_after_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)) as broker, PlainSocket(broker) as client:
        client.create("kept-short")
        client.produce("kept-short", batch(*[b"x"] * 10))
        assert delete(client, "kept-short", 4) == (0, 4)
    with Broker(data_dir=str(tmp_path)) as broker, PlainSocket(broker) as client:
        assert client.fetch("kept-short", 4).log_start_offset == 4
