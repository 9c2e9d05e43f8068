"""A process that copies a topic exactly once; it may be killed at any moment and restarted.

Run as `python -m tests.clients.copying_process SERVERS SOURCE TARGET COUNT`. It reads with
librdkafka and writes with Ottla's producer; the read position is committed in the same transaction.
Each line on stdin starts one transaction; the process prints a line after its commit.
"""

import sys
from contextlib import closing

from confluent_kafka import Consumer, Message, TopicPartition

from ottla.clients.producer.producer import Producer

SECONDS_MAX = 240
PER_TRANSACTION = 20


def copy(servers: str, source: str, target: str, count: int) -> None:
    settings = {
        "bootstrap.servers": servers,
        "group.id": source,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    producer = Producer(bootstrap_servers=servers, transactional_id=source)
    with closing(Consumer(settings)) as consumer, producer:
        producer.init_transactions()  # ends the transaction of the previous process
        (committed,) = consumer.committed([TopicPartition(source, 0)], SECONDS_MAX)
        position = max(committed.offset, 0)
        consumer.assign([TopicPartition(source, 0, position)])
        while position < count and sys.stdin.readline():
            messages = consumer.consume(PER_TRANSACTION, SECONDS_MAX)
            position = (messages[-1].offset() or 0) + 1
            with producer.transaction():
                write(producer, target, messages)
                producer.send_offsets_to_transaction({(source, 0): position}, source)
            sys.stdout.write(f"{position}\n")
            sys.stdout.flush()


def write(producer: Producer, target: str, messages: list[Message]) -> None:
    for message in messages:
        assert message.error() is None, message.error()
        producer.send(target, b"copy of " + (message.value() or b""), partition=0)


if __name__ == "__main__":
    copy(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
