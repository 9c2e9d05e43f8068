"""Writers that work while brokers die, and the final count of their records.

A record is identified by its key and its number within that key. All records of a key are in one
partition, and are written in the order of their numbers.
"""

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

WAIT_SECONDS_MAX = 240
ROUND_SECONDS = 0.05
_RECORDS_OF_A_KEY = 4
"""The records of one round."""
_READ_SECONDS_MAX = 240
QUEUE_MAX = 2_000


def say(sentence: str) -> None:
    """Print a line to the output of the tests (`-s`, or a failed test)."""
    sys.stdout.write(f"{sentence}\n")


class Acknowledged(NamedTuple):
    """An acknowledged record, with the times of its sending and its acknowledgement."""

    key: int
    number: int
    partition: int
    offset: int
    sent_at: float
    at: float


class Place(NamedTuple):
    """The position of a record that was read."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Counts:
    """The outcome of all records of a load."""

    acknowledged: int
    read: int
    lost: int
    elsewhere: int
    duplicated: int
    out_of_order: int
    failed: int

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} acknowledged, {self.read} read, {self.lost} lost,"
            f" {self.elsewhere} elsewhere than promised, {self.duplicated} duplicated,"
            f" {self.out_of_order} out of order, {self.failed} failed"
        )

    @property
    def is_perfect(self) -> bool:
        """Return whether records were written, and no violation was found."""
        wrong = (self.lost, self.elsewhere, self.duplicated, self.out_of_order, self.failed)
        return self.acknowledged > 0 and not any(wrong)


def count(
    acknowledged: list[Acknowledged], read: list[tuple[int, int, Place]], failed: int = 0
) -> Counts:
    """Compare acknowledged with read records; `read` is in the order of each partition."""
    places: dict[tuple[int, int], Place] = {}
    last: dict[int, int] = {}
    duplicated = out_of_order = 0
    for key, number, place in read:
        if (key, number) in places:
            duplicated += 1
            continue
        places[key, number] = place
        out_of_order += number < last.get(key, -1)
        last[key] = number
    lost = sum((one.key, one.number) not in places for one in acknowledged)
    elsewhere = sum(
        places.get((one.key, one.number), (one.partition, one.offset))
        != (one.partition, one.offset)
        for one in acknowledged
    )
    return Counts(len(acknowledged), len(read), lost, elsewhere, duplicated, out_of_order, failed)


@dataclass
class Writing(ABC):
    """Idempotent producers with acks=all that write until the block ends.

    At the end, all records are sent and have their responses.
    """

    servers: str
    topic: str
    partitions: int
    keys_per_partition: int = 2
    request_timeout_ms: int = 3_000
    """How long a request may wait for its response; 30 s is librdkafka's default."""
    acknowledged: list[Acknowledged] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Errors that the library raised in the application."""
    noticed: Counter[str] = field(default_factory=Counter)
    """Errors that the library logged and handled itself."""

    def __post_init__(self) -> None:
        self._keys = list(range(self.partitions * self.keys_per_partition))
        self._numbers: Counter[int] = Counter()
        self._stopping = threading.Event()
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Make the producers."""

    @abstractmethod
    def _start(self) -> None:
        """Start writing, in other threads, until `_stopping` is set."""

    @abstractmethod
    def _end(self, *, is_whole: bool) -> None:
        """Return when all responses have arrived, or soon if `is_whole` is false."""

    def __enter__(self) -> Self:
        self._start()
        self.wait_for(self.first_after(time.monotonic()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._end(is_whole=kind is None)

    def goes_on(self) -> float:
        """Wait until every partition acknowledges a new record; return the seconds."""
        began = time.monotonic()
        self.wait_for(self.first_after(began))
        return time.monotonic() - began

    def first_after(self, moment: float) -> Callable[[], bool]:
        """Return a check that all partitions have acknowledged a record sent after a moment."""
        begin = len(self.acknowledged)

        def is_there() -> bool:
            recent = self.acknowledged[begin:]
            return {one.partition for one in recent if one.sent_at >= moment} == set(
                range(self.partitions)
            )

        return is_there

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, f"writing has stopped; {dict(self.noticed)}"
            time.sleep(0.01)

    def seconds_to_next(self, moment: float, partition: int) -> float:
        """Return how long after a moment a write that was begun after it was acknowledged."""
        moments = (
            one.at
            for one in self.acknowledged
            if one.partition == partition and one.sent_at >= moment
        )
        return min(moments) - moment

    def longest_silence(self) -> float:
        """Return the longest time in which some partition acknowledged nothing."""
        longest = 0.0
        for partition in range(self.partitions):
            moments = [one.at for one in self.acknowledged if one.partition == partition]
            gaps = pairwise(moments)
            longest = max(longest, *(later - earlier for earlier, later in gaps))
        return longest

    def counts(self) -> Counts:
        """Read all records, and compare."""
        read = [
            (int(message.key()), int(message.value()), Place(message.partition(), message.offset()))
            for message in read_all(self.servers, self.topic)
        ]
        return count(self.acknowledged, read, len(self.failed))

    def next_round(self, keys: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the next numbers of each key, in their order."""
        for key in keys * _RECORDS_OF_A_KEY:
            yield key, self._numbers[key]
            self._numbers[key] += 1

    def answer(self, key: int, number: int, place: Place, sent_at: float) -> None:
        """Record an acknowledgement."""
        self.acknowledged.append(Acknowledged(key, number, *place, sent_at, time.monotonic()))


class Load(Writing):
    """A producer of librdkafka."""

    def _prepare(self) -> None:
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "request.timeout.ms": self.request_timeout_ms,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
                "error_cb": self._notice,
            }
        )

    def _start(self) -> None:
        self._thread.start()

    def _end(self, *, is_whole: bool) -> None:
        self._thread.join()
        left = self._producer.flush(WAIT_SECONDS_MAX if is_whole else 1)
        assert not (left and is_whole), f"{left} records were never answered"

    def _write(self) -> None:
        while not self._stopping.wait(ROUND_SECONDS):
            if len(self._producer) < QUEUE_MAX:
                for key, number in self.next_round(self._keys):
                    self._send(key, number)
            self._producer.poll(0)

    def _send(self, key: int, number: int) -> None:
        sent_at = time.monotonic()

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed.append(str(error))
                return
            self.answer(key, number, Place(message.partition(), message.offset()), sent_at)

        self._producer.produce(
            self.topic,
            value=str(number),
            key=str(key),
            partition=key % self.partitions,
            on_delivery=answered,
        )

    def _notice(self, error: KafkaError) -> None:
        self.noticed[error.name()] += 1
        if error.fatal():
            self.failed.append(str(error))


def read_all(servers: str, topic: str) -> Iterator[Message]:
    """Read a topic from its beginning to its current end."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        yield from _messages(consumer, topic)
    finally:
        consumer.close()


def _messages(consumer: Consumer, topic: str) -> Iterator[Message]:
    described = consumer.list_topics(topic, timeout=_READ_SECONDS_MAX).topics[topic]
    ends: dict[int, int] = {}
    for partition in described.partitions:
        asked = TopicPartition(topic, partition)
        _, end = consumer.get_watermark_offsets(asked, timeout=_READ_SECONDS_MAX)
        ends[partition] = end
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    missing = {partition for partition, end in ends.items() if end}
    deadline = time.monotonic() + _READ_SECONDS_MAX
    while missing:
        assert time.monotonic() < deadline, f"cannot read to the end of {missing}"
        for message in consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            yield message
            if message.offset() + 1 >= ends[message.partition()]:
                missing.discard(message.partition())
