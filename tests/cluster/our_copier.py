"""Copies a topic exactly once with Ottla's clients, as one of several copiers of a group.

python -m tests.cluster.our_copier SERVERS SOURCE TARGET GROUP ID

It prints how many records it has copied after each transaction, and runs until SIGTERM. After a
failed commit it starts the transaction again from the group's committed offsets. A copier that was
paused for longer than the transaction timeout exits with FENCED; any other exception ends it, too.
"""

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from ottla import (
    Consumer,
    ConsumerRecord,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
)
from tests.cluster.load import say

FENCED: Final = 3
TRANSACTION_RECORDS_MAX: Final = 10
POLL_SECONDS: Final = 0.2
SESSION_MS: Final = 6_000
TRANSACTION_MS: Final = 7_000
_QUICK: Final = {"request_timeout_ms": 3_000}


def changed(value: bytes) -> bytes:
    """Return the copy of a value."""
    return b"copy of " + value


class OurCopier:
    """A transactional producer, and a member of a group that shares the source."""

    def __init__(self, servers: str, source: str, target: str, group: str, name: str) -> None:
        self._source, self._target = source, target
        common: dict[str, Any] = {"bootstrap_servers": servers, **_QUICK}
        self._producer = Producer(
            transactional_id=name, transaction_timeout_ms=TRANSACTION_MS, **common
        )
        self._consumer = Consumer(
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            max_poll_records=TRANSACTION_RECORDS_MAX,
            **common,
        )

    def copy_until(self, is_over: Callable[[], bool]) -> None:
        """Copy until `is_over` returns true."""
        copied = 0
        with self._producer, self._consumer:
            self._producer.init_transactions()
            self._consumer.subscribe([self._source])
            while not is_over():
                records = self._consumer.poll(timeout=POLL_SECONDS)
                if records and self._copy(records):
                    copied += len(records)
                    say(str(copied))

    def _copy(self, records: list[ConsumerRecord]) -> bool:
        """Copy in one transaction; False if it was aborted."""
        ends = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}
        try:
            with self._producer.transaction():
                for one in records:
                    self._producer.send(self._target, changed(one.value), partition=one.partition)
                self._producer.send_offsets_to_transaction(ends, self._consumer.group_metadata())
        except TransactionAbortableError as error:
            say(f"aborted: {error}")
            self._go_back()
            return False
        return True

    def _go_back(self) -> None:
        """Seek back to the first record that is not copied."""
        assigned = self._consumer.assignment()
        committed = self._consumer.committed(assigned)
        for name in assigned:
            place = committed.get(name)
            self._consumer.seek(name, 0 if place is None else place.offset)


def main() -> int:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        OurCopier(*sys.argv[1:]).copy_until(stopping.is_set)
    except ProducerFencedError as error:
        say(f"ends: {error}")
        return FENCED
    return 0


if __name__ == "__main__":
    sys.exit(main())
