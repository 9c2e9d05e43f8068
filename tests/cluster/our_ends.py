"""The two ends of a copy with Ottla's clients: a transactional producer, and a consumer."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count

from ottla import Consumer, Producer, TopicPartition, TransactionAbortableError
from tests.cluster.load import WAIT_SECONDS_MAX

PARTITIONS = 4
ABORTED_EVERY = 5
_RECORDS_OF_A_PARTITION = 10
"""The records of a partition in one transaction."""
_PAUSE_SECONDS = 0.2
_POLL_SECONDS = 0.1
_REQUEST_MS = 3_000


class End(ABC):
    """Works in a thread of its own until it is closed. An exception ends it, and is recorded."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic = servers, topic
        self.values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.values))

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(2 * WAIT_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"
        assert not self.failed, self.failed

    @abstractmethod
    def _work(self) -> None:
        """Work until `_stopping` is set."""

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - the story ends with it
            self.failed.append(repr(error))


class Feeder(End):
    """Writes in transactions, and aborts some of them. `values` has only committed values."""

    def _work(self) -> None:
        with Producer(
            bootstrap_servers=self.servers,
            transactional_id=self.topic,
            request_timeout_ms=_REQUEST_MS,
        ) as producer:
            producer.init_transactions()
            for number in count():
                if self._stopping.wait(_PAUSE_SECONDS):
                    break
                if number % ABORTED_EVERY == 0:
                    self._regret(producer)
                while not self._is_written(producer):
                    pass

    def _regret(self, producer: Producer) -> None:
        producer.begin_transaction()
        sent = [
            producer.send(self.topic, b"never written", partition=row) for row in range(PARTITIONS)
        ]
        producer.flush(WAIT_SECONDS_MAX)
        assert all(one.done() for one in sent)
        producer.abort_transaction()

    def _is_written(self, producer: Producer) -> bool:
        begin = len(self.values[0])
        numbers = range(begin, begin + _RECORDS_OF_A_PARTITION)
        more = [[b"%d of partition %d" % (n, row) for n in numbers] for row in range(PARTITIONS)]
        try:
            with producer.transaction():
                for row, value in [(row, one) for row, new in enumerate(more) for one in new]:
                    producer.send(self.topic, value, partition=row)
        except TransactionAbortableError:
            return False
        for values, new in zip(self.values, more, strict=True):
            values.extend(new)
        return True


class CommittedReader(End):
    """Reads committed records, from the start of all partitions."""

    def _work(self) -> None:
        with Consumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            request_timeout_ms=_REQUEST_MS,
        ) as consumer:
            consumer.assign([TopicPartition(self.topic, row) for row in range(PARTITIONS)])
            while not self._stopping.is_set():
                for record in consumer.poll(timeout=_POLL_SECONDS):
                    self.values[record.partition].append(record.value)


def wait_until(is_so: Callable[[], bool], look: Callable[[], object]) -> None:
    """Wait for a condition, and call `look` before each check to fail early."""
    deadline = time.monotonic() + 2 * WAIT_SECONDS_MAX
    while not is_so():
        look()
        assert time.monotonic() < deadline, "it does not come to be so"
        time.sleep(0.02)
