"""Elections, moves and the quorum, where one broker is the whole cluster."""

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.clients.raw_requests import ask

TOPIC = "letters"
BROKER = 1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running, admin_of(running) as admin:
        admin.create_topics({TOPIC: {"num_partitions": 2, "replication_factor": 1}})
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with admin_of(broker) as client:
        yield client


def admin_of(broker: Broker) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed_where_the_first_replica_leads(broker: Broker, version: int) -> None:
    wanted = [TopicPartitions(topic=TOPIC, partitions=[0, 1, 2])]
    request = ElectLeadersRequest(topic_partitions=wanted)
    answer = ask(broker.bootstrap_servers, ApiKey.ELECT_LEADERS, version, request)
    (topic,) = answer.replica_election_results
    assert [(result.partition_id, result.error_code) for result in topic.partition_result] == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (1, ErrorCode.ELECTION_NOT_NEEDED),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_election_everywhere_tells_nothing_of_partitions_that_need_none(broker: Broker) -> None:
    request = ElectLeadersRequest(topic_partitions=None)
    answer = ask(broker.bootstrap_servers, ApiKey.ELECT_LEADERS, 2, request)
    assert answer.error_code == 0
    assert answer.replica_election_results == []


def test_a_kind_of_election_that_there_is_not_is_refused(broker: Broker) -> None:
    request = ElectLeadersRequest(election_type=7, topic_partitions=None)
    answer = ask(broker.bootstrap_servers, ApiKey.ELECT_LEADERS, 2, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_partition_that_is_told_to_stay_where_it_is_does_not_move(
    admin: KafkaAdminClient,
) -> None:
    partition = TopicPartition(TOPIC, 0)
    assert admin.alter_partition_reassignments({partition: [BROKER]}) == {partition: None}
    assert admin.list_partition_reassignments() == {}


@pytest.mark.parametrize("version", range(2))
def test_a_move_to_a_broker_that_is_not_there_is_refused(broker: Broker, version: int) -> None:
    moves = [
        ReassignablePartition(partition_index=0, replicas=[99]),
        ReassignablePartition(partition_index=1),  # the end of a move that never began
        ReassignablePartition(partition_index=2, replicas=[BROKER]),
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=TOPIC, partitions=moves)]
    )
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    (topic,) = ask(broker.bootstrap_servers, key, version, request).responses
    assert [result.error_code for result in topic.partitions] == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_moves_are_listed_by_name_and_there_are_none(broker: Broker) -> None:
    topics = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 99])
        for name in (TOPIC, "nowhere")
    ]
    request = ListPartitionReassignmentsRequest(topics=topics)
    answer = ask(broker.bootstrap_servers, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
    assert (answer.error_code, answer.topics) == (0, [])


@pytest.mark.parametrize("version", range(3))
def test_the_broker_is_a_quorum_of_one(broker: Broker, version: int) -> None:
    wanted = [DescribeQuorumRequestPartition(partition_index=number) for number in (0, 1)]
    topics = [
        DescribeQuorumRequestTopic(topic_name=name, partitions=wanted)
        for name in ("__cluster_metadata", TOPIC)
    ]
    request = DescribeQuorumRequest(topics=topics)
    answer = ask(broker.bootstrap_servers, ApiKey.DESCRIBE_QUORUM, version, request)
    found, *others = [partition for topic in answer.topics for partition in topic.partitions]
    assert (found.error_code, found.leader_id) == (0, BROKER)
    assert [voter.replica_id for voter in found.current_voters] == [BROKER]
    assert found.current_voters[0].log_end_offset == found.high_watermark > 0
    assert {other.error_code for other in others} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    nodes = [listener.port for node in answer.nodes for listener in node.listeners]
    assert nodes == ([broker.port] if version == 2 else [])


def test_a_broker_does_not_unregister_itself(broker: Broker) -> None:
    request = UnregisterBrokerRequest(broker_id=BROKER)
    answer = ask(broker.bootstrap_servers, ApiKey.UNREGISTER_BROKER, 0, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    request = UnregisterBrokerRequest(broker_id=99)
    answer = ask(broker.bootstrap_servers, ApiKey.UNREGISTER_BROKER, 0, request)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
    ],
)
def test_a_broker_that_is_alone_does_not_listen_to_others(broker: Broker, key: ApiKey) -> None:
    request = API_BY_KEY[key].request
    with pytest.raises(AssertionError, match="the broker hung up"):
        ask(broker.bootstrap_servers, key, request.versions[1], request())
