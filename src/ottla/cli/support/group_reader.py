"""Reads as a member of a group, and commits exactly the records that were shown."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.state.offsets import OffsetAndMetadata

COMMIT_SECONDS: Final = 5.0
StartOffsets = Callable[[Sequence[TopicPartition]], Awaitable[dict[TopicPartition, int]]]


class ReadingMember:
    """A member; call `mark` whenever all polled records have been shown.

    Shown records are committed every few seconds, before a revocation, and when the consumer is
    closed: at least once, as Kafka's console consumer does.
    """

    def __init__(self, consumer: AsyncConsumer, start_offsets: StartOffsets) -> None:
        self._consumer = consumer
        self._start_offsets = start_offsets
        self._marked: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed_at = asyncio.get_running_loop().time()
        self.has_partitions = False
        """Whether the group has assigned partitions to this member."""

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Join; partitions without a commit start at the offsets of start_offsets."""
        await self._consumer.subscribe(
            topics, on_assigned=self._begin, on_revoked=self._end, on_lost=self._lose
        )

    async def mark(self) -> None:
        """Mark all polled records as shown."""
        self._marked = self._consumer.core.offsets_to_commit(None)
        now = asyncio.get_running_loop().time()
        if self._marked and now - self._committed_at > COMMIT_SECONDS:
            self._committed_at = now
            await self._consumer.commit_async(self._marked)

    async def _begin(self, partitions: list[TopicPartition]) -> None:
        known = await self._consumer.committed(partitions) if partitions else {}
        unknown = [name for name in partitions if name not in known]
        for name, offset in (await self._start_offsets(unknown) if unknown else {}).items():
            self._consumer.seek(name, offset)
        self.has_partitions = True

    async def _end(self, partitions: list[TopicPartition]) -> None:
        self.has_partitions = False
        marked = {name: self._marked[name] for name in partitions if name in self._marked}
        self._marked = {}
        if marked:
            with suppress(
                ApiError, OSError
            ):  # the generation is over: another member reads it again
                await self._consumer.commit(marked)

    def _lose(self, _: list[TopicPartition]) -> None:
        self.has_partitions = False
        self._marked = {}
