"""Reads records of a topic without a group: consumers for single requests, and their limit."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.model.identifiers import TopicPartition
from ottla.rest.rest_errors import RestError
from ottla.wire.records.consumer_record import ConsumerRecord

READERS_MAX: Final = 64
"""Requests that read at the same time without a consumer instance."""
FETCHED_BYTES_MAX: Final = 2 << 20
"""Prefetched records of one consumer, from each broker."""
RECORDS_BYTES_MAX: Final = 16 << 20
"""Keys and values in one response; `max_bytes` may be less."""
RECORDS_MAX: Final = 10_000
"""Records in one response."""
WAIT_MS_MAX: Final = 60_000
"""A longer `timeout` is cut to this."""
RECORD_BYTES: Final = 64
"""Counted for each record besides its key, value and headers."""


class Readers:
    """Opens consumers for single requests."""

    def __init__(self, settings: Mapping[str, Any], readers_max: int = READERS_MAX) -> None:
        self._settings = settings
        self._readers_max = readers_max
        self._count = 0
        self._closing: set[asyncio.Future[None]] = set()

    def check(self) -> None:
        """RestError 429 if too many requests read."""
        if self._count >= self._readers_max:
            raise RestError(429, f"{self._readers_max} requests already read: repeat it later.")

    @asynccontextmanager
    async def open(self, partitions: Sequence[TopicPartition]) -> AsyncIterator[AsyncConsumer]:
        """Read these partitions; RestError 429 if too many requests do."""
        self.check()
        self._count += 1
        try:
            consumer = AsyncConsumer(reader_settings(self._settings))
            try:
                consumer.assign(partitions)
                yield consumer
            finally:
                # A task of its own: a request may be cancelled twice, by its peer and by a stop.
                closing = asyncio.ensure_future(consumer.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
                await asyncio.shield(closing)
        finally:
            self._count -= 1

    async def close(self) -> None:
        """Wait until the consumers of ended requests are closed."""
        await asyncio.gather(*self._closing, return_exceptions=True)


def reader_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer with bounded memory."""
    return {
        **settings,
        "auto.offset.reset": "none",
        "fetch.max.bytes": FETCHED_BYTES_MAX,
        "allow.auto.create.topics": False,
    }


def record_bytes(record: ConsumerRecord) -> int:
    """Return how many bytes a record counts towards limits."""
    headers = sum(len(key) + len(value or b"") for key, value in record.headers)
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


async def take_records(
    consumer: AsyncConsumer, seconds: float, bytes_max: int, records_max: int = RECORDS_MAX
) -> list[ConsumerRecord]:
    """Return records that are there, waiting for the first.

    At least one, and no more once their bytes reach the limit. The rest is returned by the next
    call, and commits do not cover it.
    """
    taken: list[ConsumerRecord] = []
    size = 0
    unyielded = consumer.core.state.unyielded
    if not unyielded:
        unyielded.extend(await consumer.poll(timeout=seconds))
    while unyielded and size < bytes_max and len(taken) < records_max:
        record = unyielded.popleft()
        taken.append(record)
        size += record_bytes(record)
        if not unyielded and size < bytes_max:
            unyielded.extend(await consumer.poll(timeout=0))
    return taken
