"""Background compaction as clients see it; `crashes/kill_cleaner` adds crashes."""

import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker

SECONDS_MAX = 240
COMMITS = 60
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.roll.ms": "20",
    "log.cleaner.backoff.ms": "5",
    "log.cleaner.min.cleanable.ratio": "0.01",
}


def committed(address: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    (found,) = consumer.committed([TopicPartition("letters", 0)], SECONDS_MAX)
    consumer.close()
    return int(found.offset)


def test_offsets_survive_the_compaction_of_their_topic_and_a_restart(tmp_path: Path) -> None:
    folder = str(tmp_path)
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    with Broker(SETTINGS, data_dir=folder) as broker:
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "log_level": 0}
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("letters", 1, 1)])["letters"].result(SECONDS_MAX)
        deadline, offset = time.monotonic() + SECONDS_MAX, 0
        while not checkpoint.exists() or offset < COMMITS:
            assert time.monotonic() < deadline, "__consumer_offsets is not compacted"
            offset += 1
            consumer.commit(offsets=[TopicPartition("letters", 0, offset)], asynchronous=False)
            time.sleep(0.002)  # so that segments are rolled
        consumer.close()
        assert checkpoint.read_text().splitlines()[2].startswith("__consumer_offsets 0 ")
    with Broker(SETTINGS, data_dir=folder) as broker:
        assert committed(broker.bootstrap_servers, "readers") == offset
