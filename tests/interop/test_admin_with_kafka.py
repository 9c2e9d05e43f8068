"""The admin client against an Apache Kafka broker: every call that a single broker supports."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from ottla import (
    Admin,
    Append,
    CommittedOffset,
    ConfigResource,
    ElectionType,
    ErrorCode,
    ItemsFailedError,
    OffsetSpec,
    TopicPartition,
    TransactionFilter,
)
from ottla.clients.admin.admin_offsets import HIGH_WATERMARK
from tests.clients.admin_stories import SECONDS_MAX, eventually, refused, write
from tests.interop.kafka_node import kafka_node

RECORDS = 10


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield node.start().bootstrap_server


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


def test_topics(admin: Admin) -> None:
    made = admin.topics.create("letters", partitions=3, configs={"retention.ms": "60000"})
    assert made["letters"].partitions == 3
    found = admin.topics.describe("letters")["letters"]
    assert found.topic_id == made["letters"].topic_id
    assert admin.topics.describe(found.topic_id)[found.topic_id].name == "letters"
    assert refused(lambda: admin.topics.create("letters"))[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    admin.topics.create_partitions({"letters": 4})
    eventually(lambda: len(admin.partitions.describe("letters")) == 4)
    with pytest.raises(ItemsFailedError) as failure:
        admin.topics.delete(["missing", "letters"])
    assert list(failure.value.done) == ["letters"]
    code, _ = refused(lambda: admin.topics.describe("missing"))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings(admin: Admin) -> None:
    (broker,) = admin.cluster.describe().brokers
    topic, ours = ConfigResource.topic("settings"), ConfigResource.broker(broker.broker_id)
    admin.topics.create("settings")
    admin.configs.alter(
        {topic: {"cleanup.policy": Append("compact")}, ours: {"message.max.bytes": "2000000"}}
    )

    def value(resource: ConfigResource, key: str) -> str | None:
        return admin.configs.describe(resource, with_documentation=True)[resource][key].value

    eventually(lambda: value(topic, "cleanup.policy") == "delete,compact")
    eventually(lambda: value(ours, "message.max.bytes") == "2000000")
    admin.configs.alter({topic: {"cleanup.policy": None}})
    admin.configs.replace({topic: {"retention.ms": "7"}})
    eventually(lambda: value(topic, "retention.ms") == "7")
    assert topic in admin.configs.list_resources()
    code, _ = refused(lambda: admin.configs.alter({topic: {"retention.ms": "long"}}))
    assert code is ErrorCode.INVALID_CONFIG


def test_offsets_and_records(admin: Admin, servers: str) -> None:
    name, missing = TopicPartition("offsets", 0), TopicPartition("missing", 0)
    admin.topics.create("offsets")
    write(servers, name, RECORDS)
    assert admin.offsets.ends([name]) == {name: (0, RECORDS)}
    for spec, offset in (
        (OffsetSpec.MAX_TIMESTAMP, RECORDS - 1),
        (OffsetSpec.EARLIEST_LOCAL, 0),
        (OffsetSpec.LATEST_TIERED, -1),
        (1_004, 4),
    ):
        assert admin.offsets.find({name: spec})[name].offset == offset
    with pytest.raises(ItemsFailedError) as failure:
        admin.offsets.find({name: OffsetSpec.LATEST, missing: OffsetSpec.LATEST})
    assert failure.value.done[name].offset == RECORDS
    assert admin.offsets.delete_before({name: 4}) == {name: 4}
    assert admin.offsets.delete_before({name: HIGH_WATERMARK}) == {name: RECORDS}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(admin: Admin, servers: str, protocol: str) -> None:
    topic = f"group-{protocol}"
    name = TopicPartition(topic, 0)
    admin.topics.create(topic)
    write(servers, name, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    assert consumer.poll(SECONDS_MAX) is not None
    (listed,) = admin.groups.list(types=[protocol])
    assert (listed.group_id, listed.group_type) == (topic, protocol)
    found = admin.groups.describe(topic)[topic]
    assert found.group_type == protocol
    assert found.members[0].partitions == (name,)
    assert refused(lambda: admin.groups.delete(topic))[0] is ErrorCode.NON_EMPTY_GROUP
    consumer.close()
    admin.groups.commit(topic, {name: CommittedOffset(0, -1, "again")})
    assert admin.groups.committed(topic)[name].metadata == "again"
    admin.groups.delete_offsets(topic, [name])
    assert admin.groups.committed(topic) == {}
    with pytest.raises(ItemsFailedError) as failure:
        admin.groups.delete([topic, "nobody"])
    assert list(failure.value.failed) == ["nobody"]


def test_transactions(admin: Admin, servers: str) -> None:
    name = TopicPartition("transactions", 0)
    admin.topics.create("transactions")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "payer"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("transactions", b"one")
    assert producer.flush(SECONDS_MAX) == 0
    (listed,) = admin.transactions.list(TransactionFilter(id_pattern="pay.*"))
    described = admin.transactions.describe("payer")["payer"]
    assert described.producer_id == listed.producer_id
    assert described.partitions == (name,)
    (found,) = admin.producers.describe([name])[name]
    assert admin.producers.open_since(name, 0) == found
    assert admin.transactions.hanging([found]) == ()
    admin.transactions.terminate("payer")
    assert admin.producers.describe([name])[name][0].start_offset is None
    with pytest.raises(ItemsFailedError):
        admin.transactions.describe("nobody")


def test_the_cluster(admin: Admin) -> None:
    (broker,) = admin.cluster.describe(include_fenced=True).brokers
    assert [row.path for row in admin.cluster.log_dirs()[broker.broker_id]]
    features = admin.cluster.features()
    assert features.finalized["metadata.version"] > 0
    admin.cluster.update_features({"metadata.version": features.finalized["metadata.version"]})
    assert admin.cluster.quorum().leader_id >= 0
    admin.topics.create("led")
    code, _ = refused(
        lambda: admin.partitions.elect(ElectionType.PREFERRED, [TopicPartition("led", 0)])
    )
    assert code is ErrorCode.ELECTION_NOT_NEEDED
    admin.partitions.reassign({TopicPartition("led", 0): [broker.broker_id]})
    assert admin.partitions.reassignments() == {}
