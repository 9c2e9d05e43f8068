"""Fetches raw batches from the leader of one partition, with the next fetch in flight."""

import asyncio
from typing import Final, NamedTuple, Self

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import check, only
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.model.isolation_level import READ_COMMITTED
from ottla.rpc.connection import Connection
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ottla.wire.schema import EVERY_VERSION

FETCH_BYTES: Final = 4 << 20
"""The size limit of one fetch."""
WAIT_MS: Final = 500
_BY_NAME_VERSION_MAX: Final = 12
_NO_SESSION_EPOCH: Final = -1


class Fetched(NamedTuple):
    """One response's data of a partition."""

    data: memoryview
    aborted: list[AbortedTransaction]
    high_watermark: int
    last_stable_offset: int


class RawFetcher:
    """Fetches from one partition over a separate connection. Use it in `async with`.

    A fetch is not retried: the caller handles ApiError and OSError, and may start again.
    """

    def __init__(
        self, view: ClusterView, name: TopicPartition, isolation_level: int = READ_COMMITTED
    ) -> None:
        self._view = view
        self._name = name
        self._isolation_level = isolation_level
        self._connection: Connection | None = None
        self._topic_id = ZERO_UUID
        self._ahead: tuple[int, asyncio.Task[Fetched]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ahead is not None:
            self._ahead[1].cancel()
            await asyncio.gather(self._ahead[1], return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

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
        connection = await self._connected()
        version_max = _BY_NAME_VERSION_MAX if self._topic_id == ZERO_UUID else EVERY_VERSION
        answer = await connection.ask(
            self._request(offset),
            FetchResponse,
            timeout_ms=self._view.settings.request_timeout_ms + WAIT_MS,
            version_max=version_max,
        )
        check(answer.error_code, f"a fetch from {self._name}")
        row = only(only(answer.responses, "a topic").partitions, "a partition")
        if row.error_code != ErrorCode.NONE:
            self._view.forget([self._name.topic])
        check(row.error_code, f"a fetch from {self._name}")
        return Fetched(
            memoryview(row.records or b""),
            list(row.aborted_transactions or ()),
            row.high_watermark,
            row.last_stable_offset,
        )

    def _request(self, offset: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self._name.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation_level,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[
                FetchTopic(topic=self._name.topic, topic_id=self._topic_id, partitions=[partition])
            ],
        )

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            topic = await self._view.topic(self._name.topic)
            partition = await self._view.partition(self._name)
            self._topic_id = topic.topic_id
            self._connection = await self._view.own_connection_to(partition.leader_id)
        return self._connection
