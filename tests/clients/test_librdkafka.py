"""Stories for librdkafka alone, through confluent-kafka, over a real socket."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker

SECONDS_MAX = 240


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "2"}) as broker:
        yield broker.bootstrap_servers


def create(servers: str, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, partitions, 1, config=settings)
    admin.create_topics([topic])[name].result(SECONDS_MAX)


def produce(servers: str, topic: str, values: list[bytes | None], **config: object) -> None:
    producer = Producer({"bootstrap.servers": servers, **_dotted(config)})
    failures: list[KafkaError] = []
    for value in values:
        producer.produce(
            topic,
            value,
            key=b"key",
            headers=[("from", b"Prague")],
            timestamp=1_700_000_000_000,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert failures == []


def consume(servers: str, topic: str, count: int, *, offset: int = 0, **config: object) -> list:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            **_dotted(config),
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages = []
    while len(messages) < count:
        found = consumer.consume(count - len(messages), SECONDS_MAX)
        assert found, f"only {len(messages)} of {count} came"
        assert not any(message.error() for message in found)
        messages += found
    consumer.close()
    return messages


def _dotted(config: dict[str, object]) -> dict[str, object]:
    return {key.replace("_", "."): value for key, value in config.items()}


def test_a_topic_that_is_merely_used_is_made_with_the_defaults(servers: str) -> None:
    produce(servers, "made-by-use", [b"first"])
    metadata = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=SECONDS_MAX)
    assert len(metadata.topics["made-by-use"].partitions) == 2


def test_a_consumer_that_came_too_early_is_woken_by_the_next_record(servers: str) -> None:
    create(servers, "patience")
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10_000,
        }
    )
    consumer.assign([TopicPartition("patience", 0, 0)])
    assert consumer.poll(0.2) is None
    produce(servers, "patience", [b"at last"])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    assert message.value() == b"at last"
    consumer.close()


def test_both_ends_of_a_partition_are_told(servers: str) -> None:
    create(servers, "ends")
    produce(servers, "ends", [b"a", b"b", b"c"])
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition("ends", 0), SECONDS_MAX) == (0, 3)
    consumer.close()


def test_a_topic_is_not_made_twice(servers: str) -> None:
    create(servers, "once")
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        create(servers, "once")


def test_only_a_record_that_is_too_large_is_refused(servers: str) -> None:
    create(servers, "small-only", max_message_bytes="1000")
    producer = Producer({"bootstrap.servers": servers})
    failures: list[KafkaError] = []
    producer.produce("small-only", b"x" * 5000, on_delivery=lambda e, _: failures.append(e))
    producer.flush(SECONDS_MAX)
    assert [failure.code() for failure in failures] == [KafkaError.MSG_SIZE_TOO_LARGE]
    produce(servers, "small-only", [b"small"])
    assert [m.value() for m in consume(servers, "small-only", 1)] == [b"small"]
