"""A `_schemas` log in memory that several registries share, with faults to order."""

import asyncio
from collections.abc import AsyncIterator, Callable

from ottla.concurrency.sleep import pause
from ottla.registry.schemas_log import (
    EndMovedError,
    Leadership,
    NotLeaderError,
    OutcomeUnknownError,
    SchemasRecord,
)


class SharedLog:
    """The replicated log; `leader` is the number of the broker that leads it."""

    def __init__(self) -> None:
        self.records: list[SchemasRecord] = []
        self.leader: int | None = None
        self.epoch = 0
        self.epoch_start = 0
        self._grown = asyncio.Event()

    def elect(self, broker: int | None) -> None:
        """Begin an epoch."""
        self.leader = broker
        self.epoch += 1
        self.epoch_start = len(self.records)

    def add(self, *records: tuple[bytes, bytes | None]) -> int:
        """Commit records; return the new end."""
        for key, value in records:
            offset = len(self.records)
            self.records.append(SchemasRecord(offset, 1_700_000_000_000 + offset, key, value))
        self._grown.set()
        self._grown = asyncio.Event()
        return len(self.records)

    async def grown(self) -> None:
        """Wait for more records."""
        await self._grown.wait()


class SchemasLogTwin:
    """One broker's view of a shared log.

    `delay_ms` is asked before each step; `fate` before each append, and answers "", "lost" (the
    records are committed, the outcome is unknown) or "refused" (nothing is committed).
    """

    def __init__(
        self,
        shared: SharedLog,
        broker: int = 0,
        delay_ms: Callable[[], float] = lambda: 0,
        fate: Callable[[], str] = lambda: "",
    ) -> None:
        self.shared = shared
        self.broker = broker
        self.failing: OSError | None = None
        self.topic_requests = 0
        self.urls = True
        self._delay_ms = delay_ms
        self._fate = fate

    async def ensure_topic(self) -> None:
        self.topic_requests += 1
        await self._pause()
        if self.shared.leader is None and self.shared.epoch == 0:
            self.shared.elect(self.broker)

    def leadership(self) -> Leadership | None:
        if self.shared.leader != self.broker:
            return None
        return Leadership(self.shared.epoch, self.shared.epoch_start)

    async def append(
        self,
        records: tuple[tuple[bytes, bytes | None], ...],
        leadership: Leadership,
        end_offset: int,
    ) -> int:
        await self._pause()
        if self.failing is not None:
            raise self.failing
        fate = self._fate()
        if (self.shared.leader, self.shared.epoch) != (self.broker, leadership.epoch):
            raise NotLeaderError
        if fate == "refused":
            raise OutcomeUnknownError
        if end_offset != len(self.shared.records):
            raise EndMovedError
        end = self.shared.add(*records)
        if fate == "lost":
            raise OutcomeUnknownError
        await self._pause()
        return end

    async def end_offset(self) -> int:
        return len(self.shared.records)

    async def read(self, offset: int) -> AsyncIterator[list[SchemasRecord]]:
        while True:
            await self._pause()
            records = self.shared.records[offset:]
            if records:
                offset += len(records)
                yield records
                continue
            yield []
            if offset == len(self.shared.records):
                await self.shared.grown()

    def leader_url(self) -> str | None:
        if self.shared.leader is None or not self.urls:
            return None
        return f"http://broker-{self.shared.leader}"

    async def _pause(self) -> None:
        delay_ms = self._delay_ms()
        if delay_ms > 0:
            await pause(delay_ms)
