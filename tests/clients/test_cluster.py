"""Cluster metadata as clients see it: brokers, topics, features, and advertised addresses."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.clients.raw_requests import ask

NOT_ASKED = -(2**31)
TOPIC_BITS = 0b110111111000
CLUSTER_BITS = 0b1111110100000
LAGGED = {"apples": 3, "berries": 1, "cherries": 2}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    settings = {"broker.rack": "cellar", "offsets.topic.num.partitions": "3"}
    with Broker(settings) as broker:
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in LAGGED.items()
        ]
        request = CreateTopicsRequest(topics=topics)
        ask(broker.bootstrap_servers, ApiKey.CREATE_TOPICS, 7, request)
        yield broker.bootstrap_servers


# -- DescribeCluster ------------------------------------------------------------------------------


def test_the_cluster_is_described_to_every_version(servers: str) -> None:
    for version in range(3):
        answer = ask(servers, ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest())
        (broker,) = answer.brokers
        assert f"{broker.host}:{broker.port}" == servers
        assert (broker.rack, broker.broker_id) == ("cellar", answer.controller_id)
        assert len(answer.cluster_id) == 22
        assert answer.cluster_authorized_operations == NOT_ASKED
        assert answer.error_code == 0


def test_authorized_operations_are_returned_on_request(servers: str) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=True, include_fenced_brokers=True
    )
    answer = ask(servers, ApiKey.DESCRIBE_CLUSTER, 2, request)
    assert answer.cluster_authorized_operations == CLUSTER_BITS
    assert [broker.is_fenced for broker in answer.brokers] == [False]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_lists_brokers_only(servers: str, endpoint_type: int, code: ErrorCode) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    answer = ask(servers, ApiKey.DESCRIBE_CLUSTER, 1, request)
    assert (answer.error_code, answer.brokers) == (code, [])
    assert answer.error_message


def test_librdkafka_describes_the_cluster(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    found = admin.describe_cluster(include_authorized_operations=True).result(20)
    assert [f"{node.host}:{node.port}" for node in found.nodes] == [servers]
    assert len(found.authorized_operations) == 7


# -- DescribeTopicPartitions ----------------------------------------------------------------------


def page(servers: str, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> Any:
    topics = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(
        topics=topics, response_partition_limit=limit, cursor=cursor
    )
    return ask(servers, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)


def listed(answer: Any) -> list[tuple[str, int]]:
    return [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]


def test_topics_come_in_the_order_of_their_names_and_in_pages(servers: str) -> None:
    everything = [(name, index) for name in sorted(LAGGED) for index in range(LAGGED[name])]
    for limit in (1, 2, 3, 4, 6, 100):
        found: list[tuple[str, int]] = []
        cursor = None
        while True:
            answer = page(servers, "cherries", "apples", "berries", limit=limit, cursor=cursor)
            found += listed(answer)
            assert len(listed(answer)) <= limit
            cursor = answer.next_cursor
            if cursor is None:
                break
        assert found == everything


def test_paging_continues_at_the_place_of_a_deleted_topic(servers: str) -> None:
    gone = Cursor(topic_name="bananas", partition_index=7)
    names = {name for name, _ in listed(page(servers, cursor=gone))}
    assert {"berries", "cherries"} <= names
    assert "apples" not in names


def test_a_partition_is_described_with_all_that_is_known(servers: str) -> None:
    (topic,) = page(servers, "berries").topics
    (partition,) = topic.partitions
    assert partition.replica_nodes == partition.isr_nodes == [partition.leader_id]
    assert partition.offline_replicas == partition.eligible_leader_replicas == []
    assert topic.topic_authorized_operations == TOPIC_BITS
    assert not topic.is_internal


def test_each_topic_has_its_own_error(servers: str) -> None:
    answer = page(servers, "no such topic!", "nothing", "berries")
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "no such topic!": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "berries": ErrorCode.NONE,
    }


@pytest.mark.parametrize(("name", "index"), [("cherries", 0), ("berries", -1)])
def test_a_cursor_that_cannot_be_is_refused(servers: str, name: str, index: int) -> None:
    cursor = Cursor(topic_name=name, partition_index=index)
    answer = page(servers, "apples", "berries", cursor=cursor)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST] * 2


# -- Metadata -------------------------------------------------------------------------------------


def metadata(servers: str, version: int, topics: list[Any] | None, **flags: bool) -> Any:
    wanted = None
    if topics is not None:
        wanted = [
            MetadataRequestTopic(topic_id=one, name=None)
            if isinstance(one, bytes)
            else MetadataRequestTopic(name=one)
            for one in topics
        ]
    return ask(servers, ApiKey.METADATA, version, MetadataRequest(topics=wanted, **flags))


def codes(answer: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in answer.topics]


def test_no_list_means_all_and_an_empty_one_none_but_in_version_0(servers: str) -> None:
    assert {t.name for t in metadata(servers, 0, []).topics} >= set(LAGGED)
    assert metadata(servers, 1, []).topics == []
    assert {t.name for t in metadata(servers, 13, None).topics} >= set(LAGGED)


def test_topics_are_made_on_use_and_described_at_once(servers: str) -> None:
    for version in (0, 3, 4, 13):
        (topic,) = metadata(servers, version, [f"made-{version}"]).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 1)
        assert topic.partitions[0].error_code == 0


def test_no_topic_is_created_without_permission(servers: str) -> None:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(2):
        answer = metadata(servers, 4, ["unmade"], allow_auto_topic_creation=False)
        assert codes(answer) == [("unmade", missing)]


def test_a_name_that_no_topic_can_have_is_told_apart(servers: str) -> None:
    for allowed in (True, False):
        answer = metadata(servers, 12, ["no such topic!"], allow_auto_topic_creation=allowed)
        assert codes(answer) == [("no such topic!", ErrorCode.INVALID_TOPIC_EXCEPTION)]


def test_topics_are_found_by_id(servers: str) -> None:
    (berries,) = metadata(servers, 10, ["berries"]).topics
    answer = metadata(servers, 12, [berries.topic_id, b"?" * 16])
    assert codes(answer) == [("berries", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert answer.topics[1].topic_id == b"?" * 16


def test_an_id_goes_before_a_name(servers: str) -> None:
    (berries,) = metadata(servers, 10, ["berries"]).topics
    for name in ("", "apples"):
        wanted = [MetadataRequestTopic(topic_id=berries.topic_id, name=name)]
        answer = ask(servers, ApiKey.METADATA, 12, MetadataRequest(topics=wanted))
        assert codes(answer) == [("berries", 0)]


def test_ids_are_refused_where_the_version_has_none(servers: str) -> None:
    for version in (10, 11):
        wanted = [MetadataRequestTopic(topic_id=b"?" * 16, name="berries")]
        answer = ask(servers, ApiKey.METADATA, version, MetadataRequest(topics=wanted))
        assert codes(answer) == [("berries", ErrorCode.INVALID_REQUEST)]


def test_a_topic_named_twice_is_described_once(servers: str) -> None:
    assert codes(metadata(servers, 9, ["berries", "berries"])) == [("berries", 0)]


def test_operations_are_returned_only_on_request(servers: str) -> None:
    silent = metadata(servers, 10, ["berries"])
    asked = metadata(
        servers,
        10,
        ["berries"],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert silent.cluster_authorized_operations == NOT_ASKED
    assert silent.topics[0].topic_authorized_operations == NOT_ASKED
    assert asked.cluster_authorized_operations == CLUSTER_BITS
    assert asked.topics[0].topic_authorized_operations == TOPIC_BITS


def test_an_internal_topic_is_made_by_its_own_settings(servers: str) -> None:
    (offsets,) = metadata(servers, 12, ["__consumer_offsets"]).topics
    assert offsets.is_internal
    assert len(offsets.partitions) == 3
    answer = metadata(servers, 12, ["__transaction_state"])
    assert answer.topics[0].is_internal


def test_brokers_are_told_with_their_racks(servers: str) -> None:
    (broker,) = metadata(servers, 1, []).brokers
    assert (f"{broker.host}:{broker.port}", broker.rack) == (servers, "cellar")


# -- features -------------------------------------------------------------------------------------


def features(servers: str, version: int = 4) -> Any:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
    return ask(servers, ApiKey.API_VERSIONS, version, request)


def test_features_are_told_as_they_are(servers: str) -> None:
    for version in (3, 4):
        answer = features(servers, version)
        supported = {
            feature.name: (feature.min_version, feature.max_version)
            for feature in answer.supported_features
        }
        finalized = {
            feature.name: (feature.min_version_level, feature.max_version_level)
            for feature in answer.finalized_features
        }
        assert finalized == {"metadata.version": (30, 30), "transaction.version": (2, 2)}
        # Older clients take a level of 0 for a fault.
        from_zero = {
            "eligible.leader.replicas.version": (0, 1),
            "kraft.version": (0, 1),
            "transaction.version": (0, 2),
        }
        shown = from_zero if version >= 4 else {}
        assert supported == {"metadata.version": (7, 30), **shown}
    before = features(servers).finalized_features_epoch
    metadata(servers, 12, ["makes-records"])
    assert features(servers).finalized_features_epoch > before >= 0


def test_a_client_has_to_introduce_itself_in_plain_letters(servers: str) -> None:
    for name in ("", "-", "two words", "ends-with."):
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        answer = ask(servers, ApiKey.API_VERSIONS, 3, request)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def update(servers: str, name: str, level: int, version: int = 1, **more: Any) -> Any:
    key = FeatureUpdateKey(feature=name, max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=[key], **more)
    return ask(servers, ApiKey.UPDATE_FEATURES, version, request)


def test_a_feature_that_is_not_there_cannot_be_switched_on(servers: str) -> None:
    for name in ("group.version", "share.version", "no.such"):
        for version in range(3):
            answer = update(servers, name, 1, version)
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert name in answer.error_message
    assert len(features(servers).finalized_features) == 2


def test_a_feature_can_be_set_to_the_level_it_has(servers: str) -> None:
    answer = update(servers, "metadata.version", 30)
    assert (answer.error_code, [result.feature for result in answer.results]) == (
        0,
        ["metadata.version"],
    )
    assert update(servers, "metadata.version", 31).error_code
    assert update(servers, "metadata.version", 7, validate_only=True).error_code


# -- advertised.listeners -------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "0.0.0.0", ""])
def test_clients_reach_a_broker_that_was_told_nothing_to_advertise(host: str) -> None:
    with Broker({"listeners": f"PLAINTEXT://{host}:0"}) as broker:
        (told,) = metadata(f"127.0.0.1:{broker.port}", 12, []).brokers
        assert told.port == broker.port
        assert told.host == (host if host in {"localhost", "127.0.0.1"} else "localhost")
        producer = Producer({"bootstrap.servers": f"{told.host}:{told.port}", "log_level": 0})
        producer.produce("reached", b"value")
        assert producer.flush(20) == 0
