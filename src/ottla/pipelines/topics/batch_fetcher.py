"""Fetches batches from the leader of one partition, with the next fetch in flight."""

import asyncio
from typing import Final, NamedTuple, Self

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import READ_COMMITTED
from ottla.rpc.connection import Connection
from ottla.rpc.partition_fetcher import PartitionFetcher
from ottla.wire.messages.fetch import AbortedTransaction, FetchPartition

FETCH_BYTES: Final = 4 << 20
"""The size limit of one fetch."""
WAIT_MS: Final = 500
_UNKNOWN: Final = -1


class Fetched(NamedTuple):
    """One response's data of a partition."""

    data: memoryview
    aborted: list[AbortedTransaction]
    high_watermark: int
    last_stable_offset: int


class BatchFetcher:
    """Fetches from one partition over a separate connection. Use it in `async with`.

    A fetch is not retried: the caller handles ApiError and OSError, and may start again.
    """

    def __init__(
        self, view: ClusterView, name: TopicPartition, isolation_level: int = READ_COMMITTED
    ) -> None:
        self._view = view
        self._name = name
        self._isolation_level = isolation_level
        self._leader: tuple[Connection, PartitionFetcher] | None = None
        self._ahead: tuple[int, asyncio.Task[Fetched]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ahead is not None:
            self._ahead[1].cancel()
            await asyncio.gather(self._ahead[1], return_exceptions=True)
        if self._leader is not None:
            self._leader[0].close()

    async def fetch(self, offset: int) -> Fetched:
        """Return the data from an offset on; empty if none arrives within the wait time."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == offset:
            return await ahead[1]
        if ahead is not None:
            ahead[1].cancel()
        return await self._ask(offset)

    def fetch_ahead(self, offset: int) -> None:
        """Send the next fetch in advance."""
        if self._ahead is None:
            self._ahead = offset, asyncio.create_task(self._ask(offset))

    async def _ask(self, offset: int) -> Fetched:
        connection, fetcher = await self._connect()
        wanted = FetchPartition(
            partition=self._name.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        timeout_ms = self._view.settings.request_timeout_ms
        try:
            row = await fetcher.fetch(connection, wanted, timeout_ms=timeout_ms)
        except ApiError:
            self._view.forget([self._name.topic])
            raise
        if row is None:
            return Fetched(memoryview(b""), [], _UNKNOWN, _UNKNOWN)
        return Fetched(
            memoryview(row.records or b""),
            list(row.aborted_transactions or ()),
            row.high_watermark,
            row.last_stable_offset,
        )

    async def _connect(self) -> tuple[Connection, PartitionFetcher]:
        if self._leader is None or not self._leader[0].is_open:
            topic = await self._view.topic(self._name.topic)
            partition = await self._view.partition(self._name)
            fetcher = PartitionFetcher(
                name=self._name,
                topic_id=topic.topic_id,
                wait_ms=WAIT_MS,
                isolation_level=self._isolation_level,
            )
            self._leader = await self._view.own_connection_to(partition.leader_id), fetcher
        return self._leader
