"""Transactions in partitions: batches and markers are appended, and readers see the outcome.

The test plays the coordinator and sends the markers itself. So the brokers are configured to accept
its batches without verification.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
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
from tests.clients.plain_socket import PlainSocket

SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "offsets.topic.num.partitions": "1",
}
COMMIT, ABORT = True, False
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator["Partition"]:
    with Partition(broker) as connection:
        yield connection


class Partition(PlainSocket):
    """Partition 0 of the topics that a test makes."""

    def write(
        self,
        topic: str,
        *values: bytes,
        producer: int,
        sequence: int = 0,
        epoch: int = 0,
        version: int = 9,
    ) -> int:
        """Produce one transactional batch, and return the error."""
        builder = BatchBuilder(
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.extend(NOW_MS, list(values))
        data = PartitionProduceData(index=0, records=bytes(builder.build()))
        request = ProduceRequest(
            transactional_id=f"transactional-{producer}",
            acks=-1,
            timeout_ms=20_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        (answered,) = self.ask(ApiKey.PRODUCE, version, request).responses
        return int(answered.partition_responses[0].error_code)

    def end(
        self,
        topic: str,
        producer: int,
        is_commit: bool,
        *,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> int:
        """Write one marker, and return the error."""
        marker = WritableTxnMarker(
            producer_id=producer,
            producer_epoch=epoch,
            transaction_result=is_commit,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        (answered,) = self.ask(ApiKey.WRITE_TXN_MARKERS, 2, request).markers
        assert answered.producer_id == producer
        return int(answered.topics[0].partitions[0].error_code)

    def fetch_committed(
        self, topic: str, offset: int = 0, bytes_max: int = 1 << 20, wait_ms: int = 0
    ) -> PartitionData:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            max_bytes=1 << 20,
            min_bytes=1,
            max_wait_ms=wait_ms,
            isolation_level=1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        (answered,) = self.ask(ApiKey.FETCH, 12, request).responses
        found: PartitionData = answered.partitions[0]
        return found

    def end_offset(self, topic: str, *, is_committed_only: bool) -> int:
        request = ListOffsetsRequest(
            isolation_level=int(is_committed_only),
            topics=[
                ListOffsetsTopic(
                    name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ],
        )
        (answered,) = self.ask(ApiKey.LIST_OFFSETS, 7, request).topics
        return int(answered.partitions[0].offset)


def write_five_transactions(client: Partition, topic: str) -> None:
    """Offsets 0 to 9: of three producers one commits, one aborts, one commits in two parts."""
    assert client.write(topic, b"kept 1", producer=11) == 0
    assert client.write(topic, b"lost 1", b"lost 2", producer=12) == 0
    assert client.write(topic, b"kept 2", producer=13) == 0
    assert client.end(topic, 12, ABORT) == 0
    assert client.write(topic, b"kept 3", producer=11, sequence=1) == 0
    assert client.end(topic, 11, COMMIT) == 0
    assert client.write(topic, b"kept 4", producer=12, sequence=2) == 0
    assert client.end(topic, 13, COMMIT) == 0
    assert client.end(topic, 12, COMMIT) == 0


def read_with_librdkafka(broker: Broker, topic: str, end_offset: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "librdkafka",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end_offset:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None
                found.append(message.value())
            if len(found) == 4:
                break
    finally:
        consumer.close()
    return found


def read_with_kafka_python(broker: Broker, topic: str, end_offset: int) -> list[bytes]:
    partition = KafkaPythonPartition(topic, 0)
    with closing(
        KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
    ) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found: list[bytes] = []
        while consumer.position(partition) < end_offset and len(found) < 4:
            for records in consumer.poll(timeout_ms=1_000).values():
                found += [record.value for record in records]
        return found


@pytest.mark.parametrize("read", [read_with_librdkafka, read_with_kafka_python])
def test_consumers_see_what_was_committed_and_nothing_else(
    broker: Broker, client: Partition, topic: str, read: Callable[[Broker, str, int], list[bytes]]
) -> None:
    client.create(topic)
    write_five_transactions(client, topic)
    expected = [b"kept 1", b"kept 2", b"kept 3", b"kept 4"]
    assert read(broker, topic, 10) == expected


def test_an_open_transaction_holds_back_all_that_follows_it(client: Partition, topic: str) -> None:
    client.create(topic)
    client.write(topic, b"first", producer=21)
    client.write(topic, b"second", producer=22)
    assert client.end(topic, 22, COMMIT) == 0
    found = client.fetch_committed(topic)
    assert (found.high_watermark, found.last_stable_offset, len(found.records)) == (3, 0, 0)
    assert client.end_offset(topic, is_committed_only=True) == 0
    assert client.end_offset(topic, is_committed_only=False) == 3
    assert client.end(topic, 21, COMMIT) == 0
    assert client.end_offset(topic, is_committed_only=True) == 4


def test_a_reader_that_waits_is_woken_by_the_marker(
    broker: Broker, client: Partition, topic: str
) -> None:
    client.create(topic)
    client.write(topic, b"first", producer=31)
    wanted = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_bytes=1 << 20,
        min_bytes=1,
        max_wait_ms=60_000,
        isolation_level=1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    with PlainSocket(broker) as reader:
        reader.send(ApiKey.FETCH, 12, request)
        client.end(topic, 31, COMMIT)
        (answered,) = reader.receive(ApiKey.FETCH, 12).responses  # well before the minute is over
    assert answered.partitions[0].last_stable_offset == 2


def test_readers_are_told_of_the_aborted_transactions_in_what_they_get(
    client: Partition, topic: str
) -> None:
    client.create(topic, index_interval_bytes="0")
    for number in range(20):
        client.write(topic, b"lost" * 50, producer=41, sequence=number)
        client.end(topic, 41, ABORT)
    everything = client.fetch_committed(topic)
    assert len(everything.aborted_transactions) == 20
    part = client.fetch_committed(topic, offset=10, bytes_max=300)
    assert [one.first_offset for one in part.aborted_transactions] == [10]


def test_markers_of_late_coordinators_and_epochs_are_refused(client: Partition, topic: str) -> None:
    client.create(topic)
    client.write(topic, b"x", producer=51, epoch=4)
    assert client.end(topic, 51, COMMIT, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (
        client.end(topic, 51, COMMIT, epoch=4, transaction_version=2)
        == ErrorCode.INVALID_PRODUCER_EPOCH
    )
    newest = {"coordinator_epoch": 7, "transaction_version": 2}
    assert client.end(topic, 51, COMMIT, epoch=5, **newest) == 0
    assert client.end(topic, 51, COMMIT, epoch=5, **newest) == 0  # asked once more
    zombie = client.end(topic, 51, ABORT, epoch=5, coordinator_epoch=6)
    assert zombie == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert client.end("no such topic", 51, ABORT) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    late = client.write(topic, b"late", producer=51, epoch=4, sequence=1)
    assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (
        client.write(topic, b"y", producer=51, epoch=5, sequence=1)
        == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert client.write(topic, b"y", producer=51, epoch=5) == 0


def test_open_transactions_are_described(client: Partition, topic: str) -> None:
    client.create(topic)
    client.write(topic, b"a", producer=61)
    client.end(topic, 61, COMMIT, coordinator_epoch=3)
    client.write(topic, b"b", producer=61, sequence=1)
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    (answered,) = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics
    (producer,) = answered.partitions[0].active_producers
    assert producer.current_txn_start_offset == 2
    assert producer.coordinator_epoch == 3


def test_a_transaction_that_no_coordinator_knows_of_is_refused(topic: str) -> None:
    with Broker() as broker, Partition(broker) as client:
        client.create(topic)
        refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        # While there is no coordinator yet, one may be created later.
        assert client.write(topic, b"x", producer=71) == ErrorCode.NOT_ENOUGH_REPLICAS
        client.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key="any", key_type=1))
        assert client.write(topic, b"x", producer=71) == refused
        assert client.write(topic, b"x", producer=71, version=12) == refused
        assert client.end_offset(topic, is_committed_only=False) == 0


def commit_offset(client: Partition, group: str, topic: str, offset: int, version: int = 3) -> int:
    position = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="note"
    )
    request = TxnOffsetCommitRequest(
        transactional_id="copier",
        group_id=group,
        producer_id=81,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[position])],
    )
    (answered,) = client.ask(ApiKey.TXN_OFFSET_COMMIT, version, request).topics
    return int(answered.partitions[0].error_code)


def committed_offset(client: Partition, group: str, topic: str, *, stable: bool) -> tuple[int, int]:
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=stable
    )
    (answered,) = client.ask(ApiKey.OFFSET_FETCH, 8, request).groups
    (found,) = answered.topics[0].partitions
    return found.committed_offset, found.error_code


def test_offsets_of_a_transaction_count_once_it_has_committed(topic: str) -> None:
    broker = Broker(SETTINGS)
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    with broker, Partition(broker) as client:
        client.create(topic)
        client.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key="copiers"))
        assert commit_offset(client, "copiers", topic, 5) == 0
        assert committed_offset(client, "copiers", topic, stable=False) == (-1, 0)
        assert committed_offset(client, "copiers", topic, stable=True) == unstable
        assert client.end("__consumer_offsets", 81, COMMIT) == 0
        assert committed_offset(client, "copiers", topic, stable=True) == (5, 0)
        assert commit_offset(client, "copiers", topic, 6) == 0
        assert client.end("__consumer_offsets", 81, ABORT) == 0
        assert committed_offset(client, "copiers", topic, stable=True) == (5, 0)
        assert commit_offset(client, "copiers", "no such topic", 1) == 3
