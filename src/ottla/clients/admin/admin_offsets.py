"""Offsets of partitions: lookup by time, and deletion of records."""

import asyncio
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.clients.admin.per_item_results import ask_leaders, for_each, outcome_of
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model import isolation_level
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, partitions_by_topic
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

NO_OFFSET: Final = -1
CONSUMER: Final = -1
HIGH_WATERMARK: Final = -1
"""The offset that makes delete_before delete up to the high watermark."""


class OffsetSpec(IntEnum):
    """Special positions that can be looked up instead of a time."""

    LATEST = isolation_level.LATEST
    """The offset of the next record; for committed records only, the last stable offset."""
    EARLIEST = isolation_level.EARLIEST
    MAX_TIMESTAMP = -3
    """The record with the greatest timestamp, which may not be the last record."""
    EARLIEST_LOCAL = -4
    """The first offset on the broker's local disk."""
    LATEST_TIERED = -5
    """The last offset in tiered storage."""
    EARLIEST_PENDING_UPLOAD = -6
    """The first offset whose upload to tiered storage is pending."""


class FoundOffset(NamedTuple):
    """The result of a lookup; -1 if all records are earlier."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


_Found = dict[TopicPartition, FoundOffset | ApiError]


class OffsetAdmin:
    """Offset calls. Requests go to the leaders, and are retried after leader changes."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def find(
        self,
        time_by_partition: Mapping[TopicPartition, int],
        *,
        is_committed_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, FoundOffset]:
        """Find the first offset at or after a time, in milliseconds, or at an OffsetSpec.

        The end is the high watermark, or the last stable offset for committed records only. The
        call waits for a partition without a leader, for `default.api.timeout.ms` unless a timeout
        is given.
        """
        level = (
            isolation_level.READ_COMMITTED
            if is_committed_only
            else isolation_level.READ_UNCOMMITTED
        )

        async def ask(leader: int, names: list[TopicPartition]) -> _Found:
            wanted = {name: time_by_partition[name] for name in names}
            return await self._find_at(leader, wanted, level)

        return await for_each(
            self._view,
            time_by_partition,
            lambda names: ask_leaders(self._view, names, ask),
            timeout_ms=timeout_ms,
        )

    async def ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the start offset and the end offset of each partition."""
        names = list(partitions)
        earliest, latest = await asyncio.gather(
            self.find(dict.fromkeys(names, OffsetSpec.EARLIEST)),
            self.find(dict.fromkeys(names, OffsetSpec.LATEST)),
        )
        return {name: (earliest[name].offset, latest[name].offset) for name in names}

    async def delete_before(
        self, offset_by_partition: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; return the new log start offsets.

        HIGH_WATERMARK as offset deletes all committed records.
        """

        async def ask(
            leader: int, names: list[TopicPartition]
        ) -> dict[TopicPartition, int | ApiError]:
            return await self._delete_at(
                leader, {name: offset_by_partition[name] for name in names}
            )

        return await for_each(
            self._view, offset_by_partition, lambda names: ask_leaders(self._view, names, ask)
        )

    async def _find_at(
        self, leader: int, time_by_partition: Mapping[TopicPartition, int], isolation_level: int
    ) -> _Found:
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
                for topic, names in partitions_by_topic(time_by_partition).items()
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
        )
        response = await self._view.ask_broker(leader, request, ListOffsetsResponse)
        return {
            (name := TopicPartition(topic.name, row.partition_index)): outcome_of(
                row.error_code,
                f"partition {name}",
                FoundOffset(row.offset, row.timestamp, row.leader_epoch),
            )
            for topic in response.topics
            for row in topic.partitions
        }

    async def _delete_at(
        self, leader: int, offset_by_partition: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | ApiError]:
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
                for topic, names in partitions_by_topic(offset_by_partition).items()
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
        )
        response = await self._view.ask_broker(leader, request, DeleteRecordsResponse)
        return {
            (name := TopicPartition(topic.name, row.partition_index)): outcome_of(
                row.error_code, f"partition {name}", row.low_watermark
            )
            for topic in response.topics
            for row in topic.partitions
        }


async def are_local(view: ClusterView, name: TopicPartition, offset: int) -> bool:
    """Return whether the leader has the records from an offset onwards on its own disk.

    If not, its fetch responses may be empty while it loads them from tiered storage.
    """
    try:
        found = await OffsetAdmin(view).find({name: OffsetSpec.EARLIEST_LOCAL})
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return True  # it has no remote storage
        raise
    return found[name].offset <= offset
