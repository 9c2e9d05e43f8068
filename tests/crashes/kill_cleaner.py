"""Kill a broker in the middle of compaction, while librdkafka writes and reads.

python -m tests.crashes.kill_cleaner --rounds 30

A model keeps all acknowledged records: the value at each offset, and the last offset of each key.
After every kill the whole topic is read again and compared with the model. While the broker runs, a
consumer follows, and must see the written records in order.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "letters"
KEYS = 40
SECONDS_MAX = 240
SETTINGS = {
    "log.cleaner.backoff.ms": "5",
    "log.cleaner.threads": "2",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "ottla.schema.registry.listener": "",
}
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "40",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "200",
}


@dataclass
class Model:
    """The written records: acknowledged ones, and unacknowledged ones from before a kill."""

    value_by_offset: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    last_offset_by_key: dict[bytes, int] = field(default_factory=dict)
    unanswered: dict[bytes, set[bytes | None]] = field(default_factory=dict)

    def acknowledged(self, offset: int, key: bytes, value: bytes | None) -> None:
        self.value_by_offset[offset] = key, value
        self.last_offset_by_key[key] = max(offset, self.last_offset_by_key.get(key, -1))

    def unsure(self, key: bytes, value: bytes | None) -> None:
        self.unanswered.setdefault(key, set()).add(value)

    def check_seen(self, message: Message) -> None:
        """Compare a message with the record that was written at its offset."""
        key, value, offset = message.key(), message.value(), message.offset()
        known = self.value_by_offset.get(offset)
        if known is None:
            assert value in self.unanswered.get(key, ()), f"nobody wrote {key!r} at {offset}"
            self.acknowledged(offset, key, value)
        else:
            assert known == (key, value), f"offset {offset} is {(key, value)}, not {known}"

    def check_all(self, messages: list[Message]) -> None:
        """Compare the whole topic with the last value of each key."""
        for message in messages:
            self.check_seen(message)
        last = {message.key(): message.offset() for message in messages}
        for key, offset in self.last_offset_by_key.items():
            is_deleted = self.value_by_offset[offset][1] is None
            if not (is_deleted and key not in last):
                assert last.get(key) == offset, f"{key!r} is at {last.get(key)}, not {offset}"


class BrokerProcess:
    """`ottla start` on one log dir, again and again."""

    def __init__(self, folder: Path) -> None:
        options = [word for pair in SETTINGS.items() for word in ("-X", "=".join(pair))]
        command = [sys.executable, "-m", "ottla.cli.main", "start", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, "--data-dir", str(folder), *options], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if match := re.search(r"listening on (\S+)", line):
                self.address = match[1]
                return
        raise AssertionError("".join(lines))

    def end(self, number: int) -> str:
        """Send a signal; return the broker's output since it began to listen."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=SECONDS_MAX)
        assert self.process.returncode == (-number if number == signal.SIGKILL else 0), said
        assert "Traceback" not in said, said
        return said


def consumer_of(address: str, **settings: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    return consumer


def read_all(address: str) -> list[Message]:
    """Read the topic from its beginning to its current end."""
    consumer = consumer_of(address, **{"enable.partition.eof": True})
    found: list[Message] = []
    while True:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"nothing after {len(found)} messages"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        found.append(message)
    consumer.close()
    offsets = [message.offset() for message in found]
    assert offsets == sorted(set(offsets)), "out of order"
    return found


def write_and_read(address: str, model: Model, dice: Random, count: int) -> None:
    """Produce this many records while a consumer reads."""
    consumer = consumer_of(address)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "log_level": 0})
    seen: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        model.acknowledged(message.offset(), message.key(), message.value())

    for number in range(count):
        key = b"key %d" % dice.randrange(KEYS)
        value = None if dice.random() < 0.1 else dice.randbytes(dice.randrange(1, 400))
        model.unsure(key, value)
        producer.produce(TOPIC, value, key, on_delivery=delivered)
        producer.poll(0)
        if number % 50 == 0:
            assert producer.flush(SECONDS_MAX) == 0
            seen += consumer.consume(1000, 0.02)
    assert producer.flush(SECONDS_MAX) == 0
    consumer.close()
    last_offset = -1
    for message in seen:
        assert message.error() is None, message.error()
        assert message.offset() > last_offset, "out of order"
        last_offset = message.offset()
        model.check_seen(message)


def compacted(address: str, model: Model) -> list[Message]:
    """Wait until compaction has made progress; return the remaining messages."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        left = read_all(address)
        model.check_all(left)
        if len(left) < len(model.value_by_offset) / 2:
            return left
        assert time.monotonic() < deadline, f"{len(left)} records are left"


def run_rounds(folder: Path, rounds: int, seed: int, records: int = 1500) -> tuple[int, int]:
    """Kill this many brokers; return the numbers of written and of remaining records."""
    dice, model = Random(seed), Model()
    left: list[Message] = []
    for number in range(rounds + 1):
        broker = BrokerProcess(folder)
        try:
            if number == 0:
                admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
                topic = NewTopic(TOPIC, 1, 1, config=TOPIC_CONFIG)
                admin.create_topics([topic])[TOPIC].result(SECONDS_MAX)
            left = read_all(broker.address)
            model.check_all(left)
            model.unanswered.clear()
            if number < rounds:
                write_and_read(broker.address, model, dice, dice.randrange(records // 2, records))
                time.sleep(dice.random() * 0.2)  # at some moment of a compaction
            else:
                left = compacted(broker.address, model)
        except AssertionError as error:
            error.add_note(f"round {number} with seed {seed}, in {folder}")
            raise
        finally:
            is_last = number == rounds
            said = broker.end(signal.SIGTERM if is_last or dice.random() < 0.3 else signal.SIGKILL)
        assert "is not compacted any more" not in said, said
    return len(model.value_by_offset), len(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    with tempfile.TemporaryDirectory() as folder:
        written, left = run_rounds(Path(folder), options.rounds, seed)
    sys.stdout.write(
        f"{options.rounds} brokers ended (seed {seed}): of {written} records {left} are left,"
        " with the last of every key\n"
    )


if __name__ == "__main__":
    main()
