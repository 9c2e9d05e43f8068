"""OffsetFetch v1-v10: the committed offsets of groups.

A request has several groups since version 8, and topic ids since version 10. Offsets for an earlier
topic of the same name are not shown. Without topics in the request all committed offsets are
returned, except those for topics without an id where ids are used. A group's latest commit is
returned once the in-sync replicas have it. Since version 7 a client can ask for stable offsets:
UNSTABLE_OFFSET_COMMIT where an open transaction may change them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.machines.decision import Decision
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.machine import GroupMachine
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

VERSIONS = range(1, 11)
_GROUP_ERROR_SINCE = 2
_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
PARTITIONS_AT_ONCE: Final = 500
"""The number of partitions that a group's machine looks up per time check."""
# Consumers before Kafka 3.9 do not expect COORDINATOR_NOT_AVAILABLE.
_TOLD_BY_CODE = {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR}


@dataclass(frozen=True, slots=True)
class OffsetFetchHandler:
    """Answers OffsetFetch."""

    coordinator: GroupCoordinator
    store: MetadataStore
    slices: TimeSlices

    async def handle(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> OffsetFetchResponse:
        """Look up every group."""
        version = context.api_version
        if version >= _MANY_GROUPS_SINCE:
            has_ids = version >= _TOPIC_IDS_SINCE
            found = [
                await self._fetch(group, has_ids=has_ids, is_stable_only=request.require_stable)
                for group in request.groups
            ]
            return OffsetFetchResponse(groups=found)
        wanted = _as_group(request)
        group = await self._fetch(wanted, has_ids=False, is_stable_only=request.require_stable)
        if group.error_code and version < _GROUP_ERROR_SINCE:
            code = ErrorCode(group.error_code)
            group.topics = [_without_offsets(topic, code) for topic in wanted.topics or ()]
        return _as_one_group(group)

    async def _fetch(
        self, wanted: OffsetFetchRequestGroup, *, has_ids: bool, is_stable_only: bool
    ) -> OffsetFetchResponseGroup:
        is_all = wanted.topics is None
        unknown: list[OffsetFetchResponseTopics] = []
        if wanted.topics is not None:
            known, unknown = await self._named(wanted.topics, has_ids)
            wanted = OffsetFetchRequestGroup(group_id=wanted.group_id, topics=known)
        try:
            group = await self._looked_up(wanted, is_stable_only=is_stable_only)
            await self.coordinator.wait_replicated_for_reader(wanted.group_id)
        except ApiError as error:
            code = _TOLD_BY_CODE.get(error.code, error.code)
            return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=code)
        group.topics = self._with_ids(group.topics) if is_all and has_ids else group.topics
        group.topics += unknown
        return group

    async def _looked_up(
        self, wanted: OffsetFetchRequestGroup, *, is_stable_only: bool
    ) -> OffsetFetchResponseGroup:
        """Query the group's machine for some partitions; ApiError if it is not here."""
        found = OffsetFetchResponseGroup(group_id=wanted.group_id)
        budget = self.slices.begin(steps_per_look=1)
        for topics in [None] if wanted.topics is None else _parts(wanted.topics):
            part = OffsetFetchRequestGroup(group_id=wanted.group_id, topics=topics)
            group = self.coordinator.execute(
                wanted.group_id,
                partial(_decide_fetch, wanted=part, is_stable_only=is_stable_only),
            )
            if group.error_code:
                return group
            if found.topics and group.topics and found.topics[-1].name == group.topics[0].name:
                found.topics[-1].partitions += group.topics.pop(0).partitions
            found.topics += group.topics
            await budget.yield_if_spent()
        return found

    async def _named(
        self, topics: Sequence[OffsetFetchRequestTopics], has_ids: bool
    ) -> tuple[list[OffsetFetchRequestTopics], list[OffsetFetchResponseTopics]]:
        """Add name and id to every topic; unknown topics get their error here."""
        image = self.store.image
        known = []
        unknown = []
        budget = self.slices.begin(steps_per_look=1)
        for topic in topics:
            found = (
                image.topics_by_id.get(topic.topic_id) if has_ids else image.topics.get(topic.name)
            )
            if found is not None:
                topic.name, topic.topic_id = found.name, found.topic_id
            if has_ids and found is None:
                answered = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
                unknown.append(answered)
                for (part,) in _parts([topic]):
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                    answered.partitions += _without_offsets(part, code).partitions
                    await budget.yield_if_spent()
            else:
                known.append(topic)
        return known, unknown

    def _with_ids(
        self, topics: Sequence[OffsetFetchResponseTopics]
    ) -> list[OffsetFetchResponseTopics]:
        image = self.store.image
        for topic in topics:
            found = image.topics.get(topic.name)
            topic.topic_id = ZERO_UUID if found is None else found.topic_id
        return [topic for topic in topics if topic.topic_id != ZERO_UUID]


def _decide_fetch(
    machine: GroupMachine, wanted: OffsetFetchRequestGroup, *, is_stable_only: bool
) -> Decision[GroupRecord, OffsetFetchResponseGroup]:
    return machine.decide_fetch(wanted, is_stable_only=is_stable_only)


def _parts(topics: list[OffsetFetchRequestTopics]) -> Iterator[list[OffsetFetchRequestTopics]]:
    """Split the requested topics into parts with few partitions, at least one part."""
    part: list[OffsetFetchRequestTopics] = []
    left = PARTITIONS_AT_ONCE
    for topic in topics:
        indexes = topic.partition_indexes
        start = 0
        while len(indexes) - start > left:
            part.append(_some_of(topic, indexes[start : start + left]))
            yield part
            start += left
            part, left = [], PARTITIONS_AT_ONCE
        part.append(_some_of(topic, indexes[start:]) if start else topic)
        left -= max(len(indexes) - start, 1)
        if left <= 0:
            yield part
            part, left = [], PARTITIONS_AT_ONCE
    if part or not topics:
        yield part


def _some_of(topic: OffsetFetchRequestTopics, indexes: list[int]) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(
        name=topic.name, topic_id=topic.topic_id, partition_indexes=indexes
    )


def _without_offsets(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Read the request as if it were one of several groups."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes)
            for t in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_one_group(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Convert to the response format from before multiple groups."""
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
