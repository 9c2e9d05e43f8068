"""The list of messages that the two oracles cannot check; it changes only on purpose."""

from struct import pack

import pytest
from kio.schema.index import api_key_map, schema_name_map

from ottla.wire.apis import API_BY_KEY
from ottla.wire.coordinator_records.codec import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from ottla.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.reading import decode
from ottla.wire.schema import Message
from ottla.wire.writing import encode
from tests.conformance.kafka_python_oracle import KafkaPython
from tests.conformance.kio_oracle import Kio
from tests.conformance.oracles import CONSUMER_PROTOCOL, Case, full_value, nullable_fields, plain
from tests.message_strategies import all_messages, all_versions

KIO = Kio()
KAFKA_PYTHON = KafkaPython()
COORDINATOR_RECORDS: list[Case] = [
    (cls, version)
    for kinds in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
    for kind in kinds.values()
    for cls in kind
    for version in range(cls.versions[0], cls.versions[1] + 1)
]

# Kafka 4 has dropped these versions, and with it the definitions that both oracles are made from.
# Of DescribeLogDirs, kafka-python's older definition is at odds with Kafka's, and of the newest
# BrokerHeartbeat kio's.
MESSAGES_WITHOUT_ORACLE = {
    "AlterReplicaLogDirsRequest": [0],
    "AlterReplicaLogDirsResponse": [0],
    "BrokerHeartbeatRequest": [2],
    "CreateDelegationTokenRequest": [0],
    "CreateDelegationTokenResponse": [0],
    "DescribeDelegationTokenRequest": [0],
    "DescribeDelegationTokenResponse": [0],
    "DescribeLogDirsRequest": [0],
    "ExpireDelegationTokenRequest": [0],
    "ExpireDelegationTokenResponse": [0],
    "RenewDelegationTokenRequest": [0],
    "RenewDelegationTokenResponse": [0],
    "WriteTxnMarkersRequest": [0],
    "WriteTxnMarkersResponse": [0],
}
# Coordinators keep these in topics of their own: clients have no use for them.
RECORDS_WITHOUT_ORACLE = {
    "ConsumerGroupCurrentMemberAssignmentKey": [0],
    "ConsumerGroupCurrentMemberAssignmentValue": [0],
    "ConsumerGroupMemberMetadataKey": [0],
    "ConsumerGroupMemberMetadataValue": [0],
    "ConsumerGroupMetadataKey": [0],
    "ConsumerGroupMetadataValue": [0],
    "ConsumerGroupPartitionMetadataKey": [0],
    "ConsumerGroupPartitionMetadataValue": [0],
    "ConsumerGroupRegularExpressionKey": [0],
    "ConsumerGroupRegularExpressionValue": [0],
    "ConsumerGroupTargetAssignmentMemberKey": [0],
    "ConsumerGroupTargetAssignmentMemberValue": [0],
    "ConsumerGroupTargetAssignmentMetadataKey": [0],
    "ConsumerGroupTargetAssignmentMetadataValue": [0],
    "GroupMetadataKey": [0],
    "GroupMetadataValue": [0, 1, 2, 3, 4],
    "LegacyOffsetCommitKey": [0],
    "LegacyOffsetCommitValue": [0],
    "OffsetCommitKey": [0],
    "OffsetCommitValue": [0, 1, 2, 3, 4],
    "ShareGroupCurrentMemberAssignmentKey": [0],
    "ShareGroupCurrentMemberAssignmentValue": [0],
    "ShareGroupMemberMetadataKey": [0],
    "ShareGroupMemberMetadataValue": [0],
    "ShareGroupMetadataKey": [0],
    "ShareGroupMetadataValue": [0],
    "ShareGroupStatePartitionMetadataKey": [0],
    "ShareGroupStatePartitionMetadataValue": [0],
    "ShareGroupTargetAssignmentMemberKey": [0],
    "ShareGroupTargetAssignmentMemberValue": [0],
    "ShareGroupTargetAssignmentMetadataKey": [0],
    "ShareGroupTargetAssignmentMetadataValue": [0],
    "ShareSnapshotKey": [0],
    "ShareSnapshotValue": [0],
    "ShareUpdateKey": [0],
    "ShareUpdateValue": [0],
    "StreamsGroupCurrentMemberAssignmentKey": [0],
    "StreamsGroupCurrentMemberAssignmentValue": [0],
    "StreamsGroupMemberMetadataKey": [0],
    "StreamsGroupMemberMetadataValue": [0],
    "StreamsGroupMetadataKey": [0],
    "StreamsGroupMetadataValue": [0],
    "StreamsGroupTargetAssignmentMemberKey": [0],
    "StreamsGroupTargetAssignmentMemberValue": [0],
    "StreamsGroupTargetAssignmentMetadataKey": [0],
    "StreamsGroupTargetAssignmentMetadataValue": [0],
    "StreamsGroupTopologyKey": [0],
    "StreamsGroupTopologyValue": [0],
    "TransactionLogKey": [0],
    "TransactionLogValue": [0, 1],
}
# kafka-python alone knows these, from its older definitions: Kafka 4 has dropped them.
ONLY_IN_KAFKA_PYTHON = {
    "CreateAclsRequest": [0],
    "CreateAclsResponse": [0],
    "CreateTopicsRequest": [0, 1],
    "CreateTopicsResponse": [0, 1],
    "DeleteAclsRequest": [0],
    "DeleteAclsResponse": [0],
    "DeleteTopicsRequest": [0],
    "DeleteTopicsResponse": [0],
    "DescribeAclsRequest": [0],
    "DescribeAclsResponse": [0],
    "DescribeConfigsRequest": [0],
    "DescribeConfigsResponse": [0],
    "DescribeLogDirsResponse": [0],
    "FetchRequest": [0, 1, 2, 3],
    "FetchResponse": [0, 1, 2, 3],
    "ListOffsetsRequest": [0],
    "ListOffsetsResponse": [0],
    "OffsetCommitRequest": [0, 1],
    "OffsetCommitResponse": [0, 1],
    "OffsetFetchRequest": [0],
    "OffsetFetchResponse": [0],
    "OffsetForLeaderEpochRequest": [0, 1],
    "OffsetForLeaderEpochResponse": [0, 1],
    "ProduceRequest": [0, 1, 2],
    "ProduceResponse": [0, 1, 2],
}
# Only kio knows these APIs: requests between brokers, and the newer kinds of groups.
ONLY_IN_KIO = {
    "AddRaftVoter",
    "AllocateProducerIds",
    "AlterPartition",
    "AlterShareGroupOffsets",
    "AssignReplicasToDirs",
    "BeginQuorumEpoch",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "ControllerRegistration",
    "CreateDelegationToken",
    "DeleteShareGroupOffsets",
    "DeleteShareGroupState",
    "DescribeDelegationToken",
    "DescribeShareGroupOffsets",
    "EndQuorumEpoch",
    "Envelope",
    "ExpireDelegationToken",
    "FetchSnapshot",
    "GetTelemetrySubscriptions",
    "InitializeShareGroupState",
    "PushTelemetry",
    "ReadShareGroupState",
    "ReadShareGroupStateSummary",
    "RemoveRaftVoter",
    "RenewDelegationToken",
    "ShareAcknowledge",
    "ShareFetch",
    "ShareGroupDescribe",
    "ShareGroupHeartbeat",
    "StreamsGroupDescribe",
    "StreamsGroupHeartbeat",
    "UnregisterBroker",
    "UpdateRaftVoter",
    "Vote",
    "WriteShareGroupState",
}


def versions_by_name(
    cases: list[Case], *, in_kio: bool, in_kafka_python: bool
) -> dict[str, list[int]]:
    """Return the cases that each oracle knows, or does not know."""
    found: dict[str, list[int]] = {}
    for cls, version in cases:
        known = (KIO.knows(cls, version), KAFKA_PYTHON.knows(cls, version))
        if known == (in_kio, in_kafka_python):
            found.setdefault(cls.__name__, []).append(version)
    return found


def test_these_messages_have_no_oracle() -> None:
    cases = all_versions() + CONSUMER_PROTOCOL
    found = versions_by_name(cases, in_kio=False, in_kafka_python=False)
    assert found == MESSAGES_WITHOUT_ORACLE


def test_coordinator_records_have_no_oracle() -> None:
    found = versions_by_name(COORDINATOR_RECORDS, in_kio=False, in_kafka_python=False)
    assert found == RECORDS_WITHOUT_ORACLE


def test_these_messages_only_kafka_python_knows() -> None:
    found = versions_by_name(all_versions(), in_kio=False, in_kafka_python=True)
    assert found == ONLY_IN_KAFKA_PYTHON


def test_these_messages_only_kio_knows() -> None:
    found = versions_by_name(all_versions(), in_kio=True, in_kafka_python=False)
    assert set(found) == {api + side for api in ONLY_IN_KIO for side in ("Request", "Response")}


def test_ottla_lacks_no_api_or_version_that_kio_has() -> None:
    assert set(API_BY_KEY) == set(api_key_map)
    for key, name in api_key_map.items():
        assert max(schema_name_map[name]) <= API_BY_KEY[key].request.versions[1], name


@pytest.mark.parametrize(
    "cls",
    [
        cls
        for cls in all_messages()
        if MESSAGES_WITHOUT_ORACLE.get(cls.__name__) == [0]
        and "WriteTxnMarkers" not in cls.__name__
    ],
)
def test_a_version_0_without_oracle_looks_like_version_1(cls: type[Message]) -> None:
    """In Kafka's definitions they differ in a broker's behaviour, and not in their fields."""
    assert KIO.knows(cls, 1)
    assert encode(full_value(KIO, cls, 0), 0) == encode(full_value(KIO, cls, 1), 1)
    assert nullable_fields(cls, 0) == nullable_fields(cls, 1)


def test_version_0_of_write_txn_markers_is_as_kafka_defined_it() -> None:
    raw = pack(">iqh?ih6siiii", 1, 3, 4, True, 1, 6, b"orders", 2, 1, 2, 5)
    request = decode(WriteTxnMarkersRequest, 0, memoryview(raw))
    marker = {
        "producer_id": 3,
        "producer_epoch": 4,
        "transaction_result": True,
        "topics": [{"name": "orders", "partition_indexes": [1, 2]}],
        "coordinator_epoch": 5,
    }
    assert plain(request, 0) == {"markers": [marker]}
    assert encode(request, 0) == raw

    raw = pack(">iqih6siih", 1, 3, 1, 6, b"orders", 1, 1, 7)
    response = decode(WriteTxnMarkersResponse, 0, memoryview(raw))
    topic = {"name": "orders", "partitions": [{"partition_index": 1, "error_code": 7}]}
    assert plain(response, 0) == {"markers": [{"producer_id": 3, "topics": [topic]}]}
    assert encode(response, 0) == raw
