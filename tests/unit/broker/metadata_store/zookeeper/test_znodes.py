"""Znodes are compatible with Kafka: Ottla reads Kafka's, and Kafka could read Ottla's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.metadata_store.zookeeper.znodes import (
    PERSISTENT_PATHS,
    LiveBroker,
    UnreadableZnodeError,
    broker_data,
    cluster_id_data,
    config_data,
    config_path,
    config_resource,
    controller_data,
    features_data,
    producer_ids_data,
    read_broker,
    read_cluster_id,
    read_config,
    read_controller,
    read_features,
    read_number,
    read_producer_ids,
    read_topic,
    state_data,
    topic_data,
)
from ottla.metadata.image import (
    BrokerImage,
    ConfigResource,
    Endpoint,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from tests.metadata_building import uuid_of

ID = "AAAAAAAAAAAAAAAAAAAABw"


def test_a_broker_comes_back_as_it_registered() -> None:
    broker = BrokerImage(
        broker_id=3,
        broker_epoch=77,
        incarnation_id=uuid_of(5),
        endpoints=(Endpoint("IN", "10.0.0.3", 9092, 0), Endpoint("OUT", "::1", 443, 3)),
        rack="r1",
        log_dirs=(uuid_of(8), uuid_of(9)),
        levels_by_feature={"metadata.version": (1, 29)},
    )
    for has_lost_tail in (False, True):
        live = LiveBroker(broker, has_lost_tail, min_insync_replicas=2)
        data = broker_data(live, 1000)
        assert read_broker(3, data, 77) == live
    told = json.loads(data)
    assert (told["version"], told["host"], told["port"]) == (5, "10.0.0.3", 9092)
    assert told["endpoints"] == ["IN://10.0.0.3:9092", "OUT://::1:443"]
    assert told["listener_security_protocol_map"] == {"IN": "PLAINTEXT", "OUT": "SASL_SSL"}


def test_a_broker_of_kafkas_is_read_and_not_trusted_to_have_its_tail() -> None:
    data = (
        b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1",'
        b'"endpoints":["PLAINTEXT://h:9092"],'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}'
    )
    live = read_broker(1, data, 5)
    assert live.broker.endpoints == (Endpoint("PLAINTEXT", "h", 9092, 0),)
    assert live.has_lost_tail
    assert live.min_insync_replicas is None


def test_a_topic_of_kafkas_is_read_with_its_states() -> None:
    data = (
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAABw","partitions":{"1":[2,3],"0":[1,2]},'
        b'"adding_replicas":{"1":[3]},"removing_replicas":{}}'
    )
    state = b'{"controller_epoch":4,"leader":2,"version":1,"leader_epoch":6,"isr":[2]}'
    topic = read_topic("t", data, {0: (state, 9)})
    assert topic.topic_id == uuid_of(7)
    led, unled = topic.partitions
    assert (led.leader, led.leader_epoch, led.isr, led.partition_epoch) == (2, 6, (2,), 9)
    assert (unled.leader, unled.isr, unled.adding_replicas) == (-1, (2, 3), (3,))


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    replicas = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)))
    some = st.lists(st.sampled_from(replicas), unique=True).map(tuple)
    directory = st.sampled_from([uuid_of(1), uuid_of(20), uuid_of(21)])
    return PartitionImage(
        replicas=replicas,
        isr=draw(some),
        leader=draw(st.sampled_from([-1, *replicas])),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 9)),
        adding_replicas=draw(some),
        removing_replicas=draw(some),
        directories=tuple(draw(directory) for _ in replicas),
        leader_recovery_state=draw(st.integers(0, 1)),
        eligible_leader_replicas=draw(some),
        last_known_elr=draw(some),
    )


@given(st.lists(partitions(), max_size=12))
def test_a_topic_comes_back_from_its_nodes(found: list[PartitionImage]) -> None:
    topic = TopicImage("t", uuid_of(7), tuple(found))
    states = {number: (state_data(one, 5), one.partition_epoch) for number, one in enumerate(found)}
    assert read_topic("t", topic_data(topic), states) == topic


def test_the_small_nodes_come_back() -> None:
    assert read_controller(controller_data(7, 1)) == 7
    assert read_cluster_id(cluster_id_data(ID)) == ID
    assert read_config("/x", config_data({"a": "1"})) == {"a": "1"}
    assert read_features(features_data({"f": 3})) == {"f": 3}
    assert read_producer_ids(producer_ids_data(1, 3000, 1000)) == 3000
    assert json.loads(producer_ids_data(1, 3000, 1000))["block_start"] == "2000"
    assert read_number("/controller_epoch", b"12") == 12


def test_nodes_that_were_only_made_say_nothing() -> None:
    assert read_features(b"") == {}
    assert read_producer_ids(b"") == 0


@given(st.sampled_from(ResourceType), st.text())
def test_every_resource_has_a_node_of_its_own(kind: ResourceType, name: str) -> None:
    resource = ConfigResource(kind, name)
    folder, _, node = config_path(resource).rpartition("/")
    assert folder in PERSISTENT_PATHS
    assert node not in {"", ".", ".."}
    assert node.isascii()
    assert config_resource(kind, node) == resource


def test_the_default_of_all_brokers_is_where_kafka_has_it() -> None:
    assert config_path(ConfigResource(ResourceType.BROKER, "")) == "/config/brokers/<default>"
    assert config_path(ConfigResource(ResourceType.BROKER, "7")) == "/config/brokers/7"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"7", b"{}", b'{"partitions":7}', b'{"partitions":{"1":[1]}}', b"\xff"],
)
def test_what_kafka_would_not_write_is_one_error_with_the_place(data: bytes) -> None:
    reads = [
        (read_controller, "/controller"),
        (read_cluster_id, "/cluster/id"),
        (lambda data: read_broker(3, data, 1), "/brokers/ids/3"),
        (lambda data: read_topic("t", data, {}), "/brokers/topics/t"),
        (lambda data: read_number("/n", data + b"x"), "/n"),
    ]
    for read, place in reads:
        with pytest.raises(UnreadableZnodeError, match=place):
            read(data)


@pytest.mark.parametrize("value", [[2], {"2": 2}, "two"])
def test_a_registration_whose_numbers_are_none_is_one_error(value: object) -> None:
    data = json.dumps({"endpoints": [], "ottla_min_insync_replicas": value}).encode()
    with pytest.raises(UnreadableZnodeError, match="/brokers/ids/3"):
        read_broker(3, data, 1)


def test_a_state_that_cannot_be_read_is_one_error() -> None:
    data = topic_data(TopicImage("t", uuid_of(1), (PartitionImage((1,), (1,)),)))
    for state in (b"{}", b"", b'{"isr":7,"leader":1,"leader_epoch":0}'):
        with pytest.raises(UnreadableZnodeError, match="/brokers/topics/t"):
            read_topic("t", data, {0: (state, 0)})
