"""librdkafka, through confluent-kafka, against a real broker over a real socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.testing import Broker

SECONDS_MAX = 20
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


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


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_in_any_codec_is_consumed(servers: str, codec: str) -> None:
    topic = f"codec-{codec}"
    create(servers, topic)
    values = [f"{codec} {number}".encode() for number in range(500)]
    produce(servers, topic, [*values], compression_type=codec)
    messages = consume(servers, topic, 500)
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(500))
    assert messages[0].key() == b"key"
    assert messages[0].headers() == [("from", b"Prague")]
    assert messages[0].timestamp()[1] == 1_700_000_000_000


def test_an_idempotent_producer_gets_an_id_and_writes_in_order(servers: str) -> None:
    create(servers, "idempotent")
    values = [str(number).encode() for number in range(1000)]
    produce(servers, "idempotent", [*values], enable_idempotence=True, batch_num_messages=10)
    assert [m.value() for m in consume(servers, "idempotent", 1000)] == values


def test_a_tombstone_is_kept_as_one(servers: str) -> None:
    create(servers, "tombstones", cleanup_policy="compact")
    produce(servers, "tombstones", [b"value", None])
    assert [m.value() for m in consume(servers, "tombstones", 2)] == [b"value", None]


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


def test_offsets_are_found_by_time_and_at_both_ends(servers: str) -> None:
    create(servers, "times")
    produce(servers, "times", [b"a", b"b", b"c"])
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    partition = TopicPartition("times", 0)
    assert consumer.get_watermark_offsets(partition, SECONDS_MAX) == (0, 3)
    wanted = [TopicPartition("times", 0, 1_699_999_999_999), TopicPartition("times", 0, 1 << 42)]
    assert consumer.offsets_for_times(wanted[:1], SECONDS_MAX)[0].offset == 0
    assert consumer.offsets_for_times(wanted[1:], SECONDS_MAX)[0].offset == -1
    consumer.close()


def test_a_topic_grows_and_goes(servers: str) -> None:
    create(servers, "grows")
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions("grows", 3)])["grows"].result(SECONDS_MAX)
    assert len(admin.list_topics(timeout=SECONDS_MAX).topics["grows"].partitions) == 3
    admin.delete_topics(["grows"])["grows"].result(SECONDS_MAX)
    assert "grows" not in admin.list_topics(timeout=SECONDS_MAX).topics


def test_a_topic_is_not_made_twice(servers: str) -> None:
    create(servers, "once")
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        create(servers, "once")


def test_a_record_that_is_too_large_is_refused_and_nobody_else_is_disturbed(servers: str) -> None:
    create(servers, "small-only", max_message_bytes="1000")
    producer = Producer({"bootstrap.servers": servers})
    failures: list[KafkaError] = []
    producer.produce("small-only", b"x" * 5000, on_delivery=lambda e, _: failures.append(e))
    producer.flush(SECONDS_MAX)
    assert [failure.code() for failure in failures] == [KafkaError.MSG_SIZE_TOO_LARGE]
    produce(servers, "small-only", [b"small"])
    assert [m.value() for m in consume(servers, "small-only", 1)] == [b"small"]


def test_records_and_topics_survive_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)) as broker:
        create(broker.bootstrap_servers, "kept", partitions=2)
        produce(broker.bootstrap_servers, "kept-too", [b"one", b"two"])
    with Broker(data_dir=str(tmp_path)) as broker:
        assert [m.value() for m in consume(broker.bootstrap_servers, "kept-too", 2)] == [
            b"one",
            b"two",
        ]
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(
            timeout=SECONDS_MAX
        )
        assert len(metadata.topics["kept"].partitions) == 2
        produce(broker.bootstrap_servers, "kept-too", [b"three"])
        assert consume(broker.bootstrap_servers, "kept-too", 1, offset=2)[0].value() == b"three"
