"""A group member that reads the records of a load while coordinators die."""

import threading
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.cluster.load import WAIT_SECONDS_MAX, Acknowledged


class Member:
    """A consumer of librdkafka that reads until the block ends, and commits the records it got."""

    def __init__(self, servers: str, topic: str, group: str, **settings: Any) -> None:
        self.topic = topic
        self.delivered: Counter[tuple[int, int]] = Counter()
        """The number of deliveries by partition and offset."""
        self.assignments = 0
        self.refused: Counter[str] = Counter()
        """Failed commits: each record is delivered at least once, and may be repeated."""
        self.failed: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"member of {group}", daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 500,
                "partition.assignment.strategy": "cooperative-sticky",
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.ms": 50,
                "log_level": 0,
                "error_cb": self._notice,
                **settings,
            }
        )

    def __enter__(self) -> Self:
        self._consumer.subscribe([self.topic], on_assign=self._assigned)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def _read(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.05):
                self._take(message)
            self._commit()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.delivered[message.partition(), message.offset()] += 1
        elif self.delivered or error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            self.failed.append(str(error))  # at first not every broker knows the new topic

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() != KafkaError._NO_OFFSET:
                self.refused[reason.name()] += 1

    def _notice(self, error: KafkaError) -> None:
        if error.fatal():
            self.failed.append(str(error))


def wait_until_all_is_read(members: list[Member], acknowledged: list[Acknowledged]) -> None:
    """Wait until the members of a group have got all records, and check that none was skipped."""
    wanted = {(one.partition, one.offset) for one in acknowledged}
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while missing := wanted.difference(*(member.delivered for member in members)):
        assert time.monotonic() < deadline, f"{len(missing)} not delivered, as {min(missing)}"
        time.sleep(0.05)
