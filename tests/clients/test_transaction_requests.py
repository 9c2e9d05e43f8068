"""Transactions request by request: cases that no client library here produces, or not correctly.

Above all their second version (KIP-890): a write adds its partition to the transaction, and every
end returns a new epoch.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
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
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.records.builder import BatchBuilder
from tests.clients.plain_socket import PlainSocket
from tests.clients.test_transactions import read_until

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.two.phase.commit.enable": "true",
}
SECONDS_MAX = 240
DOWNGRADE, UPGRADE = 2, 1


class Told(NamedTuple):
    """The producer id and epoch that the coordinator returned."""

    producer_id: int
    producer_epoch: int


class Transactional(PlainSocket):
    """A producer with all features of Kafka's newest."""

    def until_over(self, key: ApiKey, version: int, request: Any) -> Any:
        """Ask until no earlier transaction is about to end."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            answer = self.ask(key, version, request)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return answer
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def init(self, transactional_id: str) -> Told:
        find = FindCoordinatorRequest(key=transactional_id, key_type=1)
        assert self.ask(ApiKey.FIND_COORDINATOR, 3, find).error_code == 0
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        answer = self.until_over(ApiKey.INIT_PRODUCER_ID, 5, request)
        assert answer.error_code == 0
        return Told(answer.producer_id, answer.producer_epoch)

    def write(self, topic: str, told: Told, value: bytes, sequence: int = 0) -> int:
        """Produce one batch in version 12, which adds the partition; return the error."""
        builder = BatchBuilder(
            producer_id=told.producer_id,
            producer_epoch=told.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.extend(int(time.time() * 1000), [value])
        data = PartitionProduceData(index=0, records=bytes(builder.build()))
        request = ProduceRequest(
            transactional_id=topic,
            acks=-1,
            timeout_ms=20_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            (answered,) = self.ask(ApiKey.PRODUCE, 12, request).responses
            code = int(answered.partition_responses[0].error_code)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return code
            assert time.monotonic() < deadline

    def end(self, topic: str, told: Told, *, is_commit: bool) -> Any:
        request = EndTxnRequest(transactional_id=topic, committed=is_commit, **told._asdict())
        return self.until_over(ApiKey.END_TXN, 5, request)

    def set_level(self, level: int, upgrade_type: int) -> int:
        update = FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
        )
        request = UpdateFeaturesRequest(timeout_ms=20_000, feature_updates=[update])
        return int(self.ask(ApiKey.UPDATE_FEATURES, 1, request).error_code)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Transactional]:
    with Transactional(broker) as connection:
        yield connection


def test_every_end_brings_a_new_epoch_and_a_repetition_the_same_response(
    broker: Broker, client: Transactional, topic: str
) -> None:
    client.create(topic)
    first = client.init(topic)
    assert client.write(topic, first, b"one") == 0
    ended = client.end(topic, first, is_commit=True)
    assert (ended.error_code, ended.producer_epoch) == (0, first.producer_epoch + 1)
    again = client.end(topic, first, is_commit=True)
    assert (again.error_code, again.producer_epoch) == (0, first.producer_epoch + 1)
    contrary = client.end(topic, first, is_commit=False)
    assert contrary.error_code == ErrorCode.INVALID_TXN_STATE
    second = Told(ended.producer_id, ended.producer_epoch)
    assert client.write(topic, second, b"two") == 0
    assert client.end(topic, second, is_commit=False).error_code == 0
    read_until(broker.bootstrap_servers, topic, [b"one"])


def test_a_batch_that_comes_after_the_end_of_its_transaction_is_refused(
    broker: Broker, client: Transactional, topic: str
) -> None:
    client.create(topic)
    first = client.init(topic)
    assert client.write(topic, first, b"in time") == 0
    assert client.end(topic, first, is_commit=True).error_code == 0
    read_until(broker.bootstrap_servers, topic, [b"in time"])  # its marker is written
    late = client.write(topic, first, b"late", sequence=1)
    assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    read_until(broker.bootstrap_servers, topic, [b"in time"])


def test_offsets_join_a_transaction_by_being_committed(client: Transactional, topic: str) -> None:
    client.create(topic)
    group = f"group-{topic}"
    find = FindCoordinatorRequest(key=group)
    assert client.ask(ApiKey.FIND_COORDINATOR, 3, find).error_code == 0
    told = client.init(topic)
    one = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=42, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id=topic,
        group_id=group,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[one])],
        **told._asdict(),
    )
    (answered,) = client.ask(ApiKey.TXN_OFFSET_COMMIT, 5, request).topics
    assert answered.partitions[0].error_code == 0
    assert _committed(client, group, topic) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert client.end(topic, told, is_commit=True).error_code == 0
    client.init(topic)  # which has to wait for the markers
    assert _committed(client, group, topic) == (42, 0)


def _committed(client: Transactional, group: str, topic: str) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
    request = OffsetFetchRequest(groups=[asked], require_stable=True)
    (found,) = client.ask(ApiKey.OFFSET_FETCH, 9, request).groups
    partition = found.topics[0].partitions[0]
    return partition.committed_offset, partition.error_code


def test_of_a_transaction_all_partitions_are_added_or_none(
    client: Transactional, topic: str
) -> None:
    client.create(topic)
    told = client.init(topic)
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0, 7])]
    one = AddPartitionsToTxnTransaction(transactional_id=topic, topics=topics, **told._asdict())
    request = AddPartitionsToTxnRequest(transactions=[one])
    (result,) = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, request).results_by_transaction
    codes = [each.partition_error_code for each in result.topic_results[0].results_by_partition]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_the_next_transaction_waits_for_the_markers_without_an_error(
    client: Transactional, topic: str
) -> None:
    client.create(topic)
    told = client.init(topic)
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic,
        v3_and_below_producer_id=told.producer_id,
        v3_and_below_producer_epoch=told.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    ending = EndTxnRequest(transactional_id=topic, committed=True, **told._asdict())
    client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, adding)
    for _ in range(3):
        client.send(ApiKey.END_TXN, 1, ending)
        client.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, adding)
        assert client.receive(ApiKey.END_TXN, 1).error_code == ErrorCode.NONE
        answer = client.receive(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
        (added,) = answer.results_by_topic_v3_and_below
        assert added.results_by_partition[0].partition_error_code == ErrorCode.NONE


def test_another_producer_may_keep_a_prepared_transaction(
    broker: Broker, client: Transactional, topic: str
) -> None:
    client.create(topic)
    told = client.init(topic)
    assert client.write(topic, told, b"prepared") == 0
    request = InitProducerIdRequest(
        transactional_id=topic,
        transaction_timeout_ms=60_000,
        enable2_pc=True,
        keep_prepared_txn=True,
    )
    kept = client.ask(ApiKey.INIT_PRODUCER_ID, 6, request)
    assert kept.error_code == 0
    assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == told
    successor = Told(kept.producer_id, kept.producer_epoch)
    assert client.end(topic, successor, is_commit=True).error_code == 0
    read_until(broker.bootstrap_servers, topic, [b"prepared"])


def test_a_cluster_can_go_back_to_the_first_version_of_transactions(topic: str) -> None:
    with Broker(SETTINGS) as broker, Transactional(broker) as client:
        client.create(topic)
        assert _level(client) == 2
        assert client.set_level(0, DOWNGRADE) == 0
        told = client.init(topic)
        assert client.write(topic, told, b"one") == 0
        ended = client.end(topic, told, is_commit=True)
        assert (ended.error_code, ended.producer_epoch) == (0, -1)
        assert client.set_level(2, UPGRADE) == 0
        assert client.write(topic, told, b"two", sequence=1) == 0
        ended = client.end(topic, told, is_commit=True)
        assert (ended.error_code, ended.producer_epoch) == (0, told.producer_epoch + 1)
        read_until(broker.bootstrap_servers, topic, [b"one", b"two"])


def _level(client: Transactional) -> int:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = client.ask(ApiKey.API_VERSIONS, 4, request)
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    return int(levels["transaction.version"])
