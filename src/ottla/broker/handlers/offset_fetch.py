"""OffsetFetch v1-v10: how far groups have come.

Several groups can be asked for since version 8, and topics are named by id since version 10. What
was committed for an earlier topic of the same name is not shown, and without topics in the request
all that is committed is, but for topics without an id where ids are wanted. What a group has just
committed is told once the replicas in sync have it. Since version 7 a reader can ask for what no
open transaction may change: UNSTABLE_OFFSET_COMMIT where there is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.request_context import RequestContext
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
# Consumers before Kafka 3.9 do not expect to be told that a coordinator is not available.
_TOLD_BY_CODE = {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR}


@dataclass(frozen=True, slots=True)
class OffsetFetchHandler:
    """Answers OffsetFetch."""

    coordinator: GroupCoordinator
    store: MetadataStore

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
            known, unknown = self._named(wanted.topics, has_ids)
            wanted = OffsetFetchRequestGroup(group_id=wanted.group_id, topics=known)
        try:
            group = self.coordinator.execute(
                wanted.group_id,
                lambda machine: machine.decide_fetch(wanted, is_stable_only=is_stable_only),
            )
            await self.coordinator.settle_for_reader(wanted.group_id)
        except ApiError as error:
            code = _TOLD_BY_CODE.get(error.code, error.code)
            return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=code)
        group.topics = self._with_ids(group.topics) if is_all and has_ids else group.topics
        group.topics += unknown
        return group

    def _named(
        self, topics: Sequence[OffsetFetchRequestTopics], has_ids: bool
    ) -> tuple[list[OffsetFetchRequestTopics], list[OffsetFetchResponseTopics]]:
        """Give every topic its name and id; what there is no topic for is answered here."""
        image = self.store.image
        known = []
        unknown = []
        for topic in topics:
            found = (
                image.topics_by_id.get(topic.topic_id) if has_ids else image.topics.get(topic.name)
            )
            if found is not None:
                topic.name, topic.topic_id = found.name, found.topic_id
            if has_ids and found is None:
                unknown.append(_without_offsets(topic, ErrorCode.UNKNOWN_TOPIC_ID))
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
    """Write the answer as it was before there could be several groups in it."""
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
