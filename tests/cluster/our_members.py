"""Ottla consumers that read the records of a load: group members, and one without a group."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from ottla import (
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    RebalanceInProgressError,
    TopicPartition,
    aio,
)
from tests.cluster.load import WAIT_SECONDS_MAX

_POLL_SECONDS = 0.05
_IN_A_POLL = -2
"""A listener's generation during a poll is known only after the poll."""
_REFUSED = (CommitFailedError, RebalanceInProgressError)


class OurReader(ABC):
    """Reads in a thread of its own until the block ends. An exception ends it, and is recorded.

    While a partition stays assigned, no record may be skipped or delivered again.
    """

    def __init__(self, servers: str, topic: str, group: str | None, **settings: Any) -> None:
        self.servers, self.topic, self.group = servers, topic, group
        self.delivered: Counter[tuple[int, int]] = Counter()
        """The number of deliveries by partition and offset."""
        self.out_of_order = 0
        self.assigned: set[TopicPartition] = set()
        self.assignments = 0
        self.generation = _IN_A_POLL
        """The last generation that a listener has seen."""
        self.lost = 0
        """The number of partitions lost without a chance to commit."""
        self.refused: Counter[str] = Counter()
        """Commits that failed because of a rebalance."""
        self.failed: list[str] = []
        self._next: dict[int, int] = {}
        self._settings = {
            "bootstrap_servers": servers,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 30_000,
            "heartbeat_interval_ms": 500,
            "request_timeout_ms": 3_000,
            "partition_assignment_strategy": "cooperative-sticky",
            **settings,
        }
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    @abstractmethod
    def _read(self) -> None:
        """Read until `_stopping` is set, and close."""

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
        assert kind is not None or not self._thread.is_alive(), "a consumer does not end"

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - the story ends with it
            self.failed.append(repr(error))

    def _take(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            self.delivered[record.partition, record.offset] += 1
            expected = self._next.get(record.partition, record.offset)
            self.out_of_order += record.offset != expected
            self._next[record.partition] = record.offset + 1

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        self.generation = _IN_A_POLL
        self.assigned.update(partitions)
        for name in partitions:
            self._next.pop(name.partition, None)

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        self.assigned.difference_update(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        self.lost += len(partitions)
        self.assigned.difference_update(partitions)

    @property
    def is_settled(self) -> bool:
        """Whether the listeners have been called for the whole current generation."""
        return self.generation != _IN_A_POLL

    @property
    def troubles(self) -> tuple[int, int, int]:
        """The counts of rebalances, lost partitions and refused commits."""
        return self.assignments, self.lost, self.refused.total()

    @property
    def _listeners(self) -> dict[str, Any]:
        return {
            "on_assigned": self._on_assigned,
            "on_revoked": self._on_revoked,
            "on_lost": self._on_lost,
        }


class OurMember(OurReader):
    """`ottla.Consumer` in a group; it commits the records it got before it polls again."""

    def _read(self) -> None:
        with Consumer(**self._settings) as consumer:
            consumer.subscribe([self.topic], **self._listeners)
            while not self._stopping.is_set():
                records = consumer.poll(timeout=_POLL_SECONDS)
                self.generation = consumer.group_metadata().generation_id
                self._take(records)
                if records:
                    self._commit(consumer)

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit()
        except _REFUSED as error:
            self.refused[error.code.name] += 1


class OurAsyncMember(OurReader):
    """`ottla.aio.Consumer` in a group."""

    def _read(self) -> None:
        asyncio.run(self._read_in_loop())

    async def _read_in_loop(self) -> None:
        async with aio.Consumer(**self._settings) as consumer:
            await consumer.subscribe([self.topic], **self._listeners)
            while not self._stopping.is_set():
                records = await consumer.poll(timeout=_POLL_SECONDS)
                self.generation = consumer.group_metadata().generation_id
                self._take(records)
                if records:
                    await self._commit(consumer)

    async def _commit(self, consumer: aio.Consumer) -> None:
        try:
            await consumer.commit()
        except _REFUSED as error:
            self.refused[error.code.name] += 1


class OurLoneReader(OurReader):
    """`ottla.Consumer` with manual assignment of all partitions: it gets each record once."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        super().__init__(servers, topic, None)
        self._partitions = partitions

    def _read(self) -> None:
        with Consumer(**self._settings) as consumer:
            consumer.assign([(self.topic, number) for number in range(self._partitions)])
            while not self._stopping.is_set():
                self._take(consumer.poll(timeout=_POLL_SECONDS))
