"""Records on their way from a cluster: one request at a time to every leader, side by side."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.clients.admin_offsets import by_topic
from ottla.clients.cluster_view import ClusterView, pause
from ottla.clients.errors import RETRIABLE, NoAnswerError, UnreachableError, check
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.records.batch import RecordBatch, batches
from ottla.wire.records.control import ControlType, control_type_of
from ottla.wire.records.record import Record, records_of

BY_NAME_VERSION_MAX: Final = 12
"""Later versions of Fetch know topics by their ids alone."""
_NO_SESSION: Final = -1


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """How much is fetched at once, and how long a broker may wait for it."""

    wait_ms: int = 500
    bytes_min: int = 1
    bytes_max: int = 16 << 20
    partition_bytes_max: int = 4 << 20
    is_committed_only: bool = False
    """Leave out what transactions that were aborted, or are still open, have written."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came from one partition: whole batches, of which some may begin before `offset`."""

    partition: TopicPartition
    offset: int
    """Where reading was to go on."""
    end_offset: int
    """Where it goes on next."""
    high_watermark: int
    batches: list[RecordBatch]
    first_offset_by_aborted: dict[int, list[int]] = field(default_factory=dict)
    """By producer, where transactions begin that were aborted; only for committed reading."""

    def records(self) -> Iterator[Record]:
        """Go through the records that an application is to see; damage is a ProtocolError."""
        return (record for _, record in self.records_with_epoch())

    def records_with_epoch(self) -> Iterator[tuple[int, Record]]:
        """Go through the same records, each with the leader epoch that it was written in."""
        for batch in self.data_batches():
            batch.check_crc()
            for record in records_of(batch):
                if record.offset >= self.offset:
                    yield batch.partition_leader_epoch, record

    def data_batches(self) -> Iterator[RecordBatch]:
        """Go through the batches, without brokers' own and those of aborted transactions."""
        begins = {key: list(offsets) for key, offsets in self.first_offset_by_aborted.items()}
        aborted: set[int] = set()
        for batch in self.batches:
            starting = begins.get(batch.producer_id, [])
            if starting and starting[0] <= batch.last_offset:
                starting.pop(0)
                aborted.add(batch.producer_id)
            if batch.is_control:
                if control_type_of(batch) is ControlType.ABORT:
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                yield batch


class Fetcher:
    """Reads partitions from given offsets on, for as long as it is asked to."""

    def __init__(
        self,
        view: ClusterView,
        offset_by_partition: Mapping[TopicPartition, int],
        settings: FetcherSettings | None = None,
    ) -> None:
        self._view = view
        self._offsets = dict(offset_by_partition)
        self._settings = settings or FetcherSettings()
        self._asking: dict[int, asyncio.Task[FetchResponse]] = {}
        self._asked: dict[int, dict[TopicPartition, int]] = {}
        self._failing_since: float | None = None
        self._failure: ApiError | UnreachableError | NoAnswerError | None = None

    @property
    def offset_by_partition(self) -> Mapping[TopicPartition, int]:
        """Where reading goes on, in every partition that is read."""
        return self._offsets

    def drop(self, partition: TopicPartition) -> None:
        """Read this partition no further; what is on its way is left out."""
        self._offsets.pop(partition, None)

    async def poll(self) -> list[Fetched]:
        """Return what the next broker to answer has sent, which may be nothing.

        Leaders that move, or are away for a while, are looked for as long as a call may take.
        """
        assert self._offsets, "nothing is left to read"
        try:
            if self._failure is not None:
                raise self._failure
            await self._ask_idle_leaders()
            done, _ = await asyncio.wait(self._asking.values(), return_when=asyncio.FIRST_COMPLETED)
        except (ApiError, UnreachableError, NoAnswerError) as error:
            await self._recover(error)
            return []
        fetched = []
        for leader in [leader for leader, task in self._asking.items() if task in done]:
            fetched += self._take(self._asked.pop(leader), self._asking.pop(leader))
        if self._failure is None:
            self._failing_since = None
        return fetched

    async def close(self) -> None:
        """Wait for no answer any more."""
        asking, self._asking = list(self._asking.values()), {}
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask_idle_leaders(self) -> None:
        by_leader = await self._view.by_leader(self._offsets)
        busy = {name for names in self._asked.values() for name in names}
        for leader, names in by_leader.items():
            free = {name: self._offsets[name] for name in names if name not in busy}
            if leader not in self._asking and free:
                self._asked[leader] = free
                self._asking[leader] = asyncio.get_running_loop().create_task(
                    self._view.ask_broker(
                        leader,
                        self._request(free),
                        FetchResponse,
                        version_max=BY_NAME_VERSION_MAX,
                        wait_ms=self._settings.wait_ms,
                    )
                )

    def _request(self, offset_by_partition: Mapping[TopicPartition, int]) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            max_wait_ms=settings.wait_ms,
            min_bytes=settings.bytes_min,
            max_bytes=settings.bytes_max,
            isolation_level=int(settings.is_committed_only),
            session_epoch=_NO_SESSION,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=name.partition,
                            fetch_offset=offset_by_partition[name],
                            partition_max_bytes=settings.partition_bytes_max,
                        )
                        for name in names
                    ],
                )
                for topic, names in by_topic(offset_by_partition).items()
            ],
        )

    def _take(
        self, asked: Mapping[TopicPartition, int], asking: asyncio.Task[FetchResponse]
    ) -> list[Fetched]:
        """Take what a broker has sent; a failure, also of one partition, is kept for later."""
        fetched: list[Fetched] = []
        try:
            answer = asking.result()
            check(answer.error_code, "the broker refused to fetch")
        except (ApiError, UnreachableError, NoAnswerError) as error:
            self._failure = error
            return fetched
        for topic in answer.responses:
            for row in topic.partitions:
                name = TopicPartition(topic.topic, row.partition_index)
                if name not in self._offsets or name not in asked:
                    continue
                try:
                    fetched.append(self._taken(name, row))
                except ApiError as error:
                    self._failure = error
        return fetched

    def _taken(self, name: TopicPartition, row: PartitionData) -> Fetched:
        offset = self._offsets[name]
        check(row.error_code, _why(name, offset, row))
        found = list(batches(row.records or b""))
        end_offset = max(found[-1].end_offset if found else offset, offset)
        self._offsets[name] = end_offset
        aborted: dict[int, list[int]] = {}
        for transaction in sorted(row.aborted_transactions or [], key=lambda t: t.first_offset):
            aborted.setdefault(transaction.producer_id, []).append(transaction.first_offset)
        return Fetched(name, offset, end_offset, row.high_watermark, found, aborted)

    async def _recover(self, error: ApiError | UnreachableError | NoAnswerError) -> None:
        """Start over after a pause, unless it cannot help, or has not helped for too long."""
        await self.close()
        self._asked.clear()
        self._failure = None
        loop = asyncio.get_running_loop()
        self._failing_since = self._failing_since or loop.time()
        failing_ms = (loop.time() - self._failing_since) * 1000
        if failing_ms > self._view.settings.timeout_ms:
            raise error
        if isinstance(error, ApiError) and error.code not in RETRIABLE:
            raise error
        self._view.forget({name.topic for name in self._offsets})
        await pause(self._view.settings.retry_backoff_ms)


def _why(name: TopicPartition, offset: int, row: PartitionData) -> str:
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return f"partition {name} does not have offset {offset}"
    return f"partition {name}"
