"""Commit and look up offsets, as a group member or without membership."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from ottla.clients.admin.admin_groups import BY_NAME_VERSION_MAX
from ottla.clients.admin.per_item_results import in_time
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.group.group_requests import GroupRequests
from ottla.clients.consumer.group.membership_machine import Generation
from ottla.clients.consumer.state.offsets import OffsetAndMetadata
from ottla.clients.errors import NoResponseError, check, only
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, numbers_by_topic, partitions_by_topic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_GROUPS_IN_A_LIST_SINCE: Final = 8
_STABLE_SINCE: Final = 7
_FINAL: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


class OffsetCommits:
    """Sends one commit at a time, so that a retried commit cannot overwrite a later one."""

    def __init__(self, requests: GroupRequests, view: ClusterView) -> None:
        self._requests = requests
        self._view = view
        """Not the group's own view: its connection may be blocked by a pending JoinGroup."""
        self._turn = asyncio.Lock()

    async def commit(
        self,
        generation: Generation,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets, with retries within the timeout; ApiError if that fails."""
        if not offsets:
            return
        request = self._commit_request(generation, offsets)

        async def ask() -> None:
            await self._know_brokers()
            response = await self._view.ask_coordinator(
                self._requests.group_id,
                request,
                OffsetCommitResponse,
                version_max=BY_NAME_VERSION_MAX,
            )
            for topic in response.topics:
                for row in topic.partitions:
                    where = f"the offset of {topic.name}-{row.partition_index}"
                    self._check(row.error_code, where)

        await self._take_turn(timeout_ms or self._view.settings.timeout_ms)
        try:
            await in_time(self._view, ask, final=_FINAL, timeout_ms=timeout_ms)
        finally:
            self._turn.release()

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets, after waiting for pending transactional commits."""
        if not partitions:
            return {}
        return await in_time(self._view, lambda: self._ask_committed(partitions))

    async def _take_turn(self, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._turn.acquire()
        except TimeoutError:
            raise NoResponseError("an earlier commit has not been answered yet") from None

    def _check(self, number: int, detail: str = "") -> None:
        try:
            self._requests.check(number, detail)
        except ApiError:
            self._view.forget_coordinator(self._requests.group_id)
            raise

    async def _know_brokers(self) -> None:
        """Load the broker list if it is empty, so that a lost broker has alternatives."""
        if not self._view.broker_ids:
            await self._view.refresh([])

    def _commit_request(
        self, generation: Generation, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=self._requests.group_id,
            generation_id_or_member_epoch=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._requests.instance_id if generation.is_member else None,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic, partitions=[_committed_partition(name, offsets) for name in names]
                )
                for topic, names in partitions_by_topic(sorted(offsets)).items()
            ],
        )

    async def _ask_committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        await self._know_brokers()
        group_id = self._requests.group_id
        connection = await self._view.coordinator_connection(group_id)
        version = connection.version_for(OffsetFetchRequest, BY_NAME_VERSION_MAX)
        response = await self._view.ask_coordinator(
            group_id,
            self._fetch_request(partitions, version),
            OffsetFetchResponse,
            version_max=BY_NAME_VERSION_MAX,
        )
        found = only(response.groups, "a group") if version >= _GROUPS_IN_A_LIST_SINCE else response
        self._check(found.error_code)
        committed = {}
        for topic in found.topics:
            for row in topic.partitions:
                check(row.error_code, f"the offset of {topic.name}-{row.partition_index}")
                if row.committed_offset >= 0:
                    name = TopicPartition(topic.name, row.partition_index)
                    committed[name] = OffsetAndMetadata(
                        row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                    )
        return committed

    def _fetch_request(
        self, partitions: Collection[TopicPartition], version: int
    ) -> OffsetFetchRequest:
        group_id = self._requests.group_id
        wanted = numbers_by_topic(partitions)
        if version < _GROUPS_IN_A_LIST_SINCE:
            return OffsetFetchRequest(
                group_id=group_id,
                topics=[
                    OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                    for topic, numbers in wanted.items()
                ],
                require_stable=version >= _STABLE_SINCE,
            )
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in wanted.items()
        ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        return OffsetFetchRequest(groups=[group], require_stable=True, topics=[])


def _committed_partition(
    name: TopicPartition, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequestPartition:
    committed = offsets[name]
    return OffsetCommitRequestPartition(
        partition_index=name.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )
