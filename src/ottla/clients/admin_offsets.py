"""Offsets of partitions: found by time, and moved forward by deleting what is before them."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.clients.cluster_view import ClusterView
from ottla.clients.errors import check
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.protocol_error import ProtocolError

LATEST: Final = -1
EARLIEST: Final = -2
NO_OFFSET: Final = -1
CONSUMER: Final = -1
READ_COMMITTED: Final = 1


class FoundOffset(NamedTuple):
    """Where a time was found, or -1 if the log has nothing so late."""

    offset: int
    timestamp_ms: int


class OffsetAdmin:
    """Calls about offsets. Each goes to the leaders, and is tried again where they have moved."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def find(
        self, time_by_partition: Mapping[TopicPartition, int], *, is_committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Find the first offset at or after a time, in milliseconds; LATEST and EARLIEST are times.

        The end is the high watermark, or the last stable offset for committed records only.
        """
        found: dict[TopicPartition, FoundOffset] = {}

        async def ask() -> None:
            missing = [name for name in time_by_partition if name not in found]
            by_leader = await self._view.by_leader(missing)
            await asyncio.gather(
                *(
                    self._find_at(
                        leader,
                        {name: time_by_partition[name] for name in names},
                        found,
                        READ_COMMITTED if is_committed_only else 0,
                    )
                    for leader, names in by_leader.items()
                )
            )

        await self._view.retried(ask)
        _check_complete(time_by_partition, found)
        return found

    async def ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the start offset and the end offset of each partition."""
        names = list(partitions)
        earliest, latest = await asyncio.gather(
            self.find(dict.fromkeys(names, EARLIEST)), self.find(dict.fromkeys(names, LATEST))
        )
        return {name: (earliest[name].offset, latest[name].offset) for name in names}

    async def delete_before(
        self, offset_by_partition: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; return where each log begins now."""
        start_by_partition: dict[TopicPartition, int] = {}

        async def ask() -> None:
            missing = [name for name in offset_by_partition if name not in start_by_partition]
            for leader, names in (await self._view.by_leader(missing)).items():
                cuts = {name: offset_by_partition[name] for name in names}
                start_by_partition.update(await self._delete_at(leader, cuts))

        await self._view.retried(ask)
        _check_complete(offset_by_partition, start_by_partition)
        return start_by_partition

    async def _find_at(
        self,
        leader: int,
        time_by_partition: Mapping[TopicPartition, int],
        found: dict[TopicPartition, FoundOffset],
        isolation_level: int,
    ) -> None:
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=name.partition, timestamp=time_by_partition[name]
                        )
                        for name in names
                    ],
                )
                for topic, names in by_topic(time_by_partition).items()
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
        )
        answer = await self._view.ask_broker(leader, request, ListOffsetsResponse)
        for topic in answer.topics:
            for row in topic.partitions:
                name = TopicPartition(topic.name, row.partition_index)
                check(row.error_code, f"partition {name}")
                found[name] = FoundOffset(row.offset, row.timestamp)

    async def _delete_at(
        self, leader: int, offset_by_partition: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=name.partition, offset=offset_by_partition[name]
                        )
                        for name in names
                    ],
                )
                for topic, names in by_topic(offset_by_partition).items()
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
        )
        answer = await self._view.ask_broker(leader, request, DeleteRecordsResponse)
        start_by_partition = {}
        for topic in answer.topics:
            for row in topic.partitions:
                name = TopicPartition(topic.name, row.partition_index)
                check(row.error_code, f"partition {name}")
                start_by_partition[name] = row.low_watermark
        return start_by_partition


def _check_complete(
    asked: Iterable[TopicPartition], answered: Mapping[TopicPartition, object]
) -> None:
    missing = [str(name) for name in asked if name not in answered]
    if missing:
        raise ProtocolError(f"the broker answered nothing about {', '.join(missing)}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Sort partitions by their topic, as requests want them."""
    partitions_by_topic: dict[str, list[TopicPartition]] = {}
    for name in partitions:
        partitions_by_topic.setdefault(name.topic, []).append(name)
    return partitions_by_topic
