"""A transactional producer of librdkafka that works while coordinators move."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.cluster.load import WAIT_SECONDS_MAX

ABORTED_EVERY = 4
RECORDS = 5
"""The records of one transaction."""
_PAUSE_SECONDS = 0.05


class TransactionalWriter:
    """Commits transactions until the block ends, and aborts some on purpose."""

    def __init__(self, servers: str, topic: str) -> None:
        self.committed: list[bytes] = []
        self.failed: list[str] = []
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": topic,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "connections.max.idle.ms": 3_000,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(2 * WAIT_SECONDS_MAX)

    def _run(self) -> None:
        try:
            self._producer.init_transactions(WAIT_SECONDS_MAX)
            number = 0
            while not self._stopping.wait(_PAUSE_SECONDS):
                values = [b"%d-%d" % (number, index) for index in range(RECORDS)]
                self._write(values, is_aborted=number % ABORTED_EVERY == 0)
                number += 1
        except KafkaException as error:
            self.failed.append(str(error))

    def _write(self, values: list[bytes], *, is_aborted: bool) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value)
        if is_aborted:
            self._retried(self._producer.flush)
            self._retried(self._producer.abort_transaction)
            return
        self._retried(self._producer.commit_transaction)
        self.committed += values

    def _retried(self, call: Callable[[float], object]) -> None:
        """Repeat a call as long as librdkafka asks for it; other errors are the application's."""
        while True:
            try:
                call(WAIT_SECONDS_MAX)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if not error.retriable():
                    raise
            else:
                return
