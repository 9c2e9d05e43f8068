"""OffsetCommit v2-v10: commit offsets of a group. Topics are named by id since version 10.

Partitions that do not exist are refused one by one; the others are committed. The id of the topic
is stored with every offset, however the request names the topic: a later topic of the same name
does not inherit it.

A large commit is decided in several parts, between which other requests run. If the group goes on
to another generation meanwhile, the partitions of the later parts are refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.keyed_lock import KeyedLock
from ottla.concurrency.yield_budget import TimeSlices
from ottla.metadata.image import TopicImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

VERSIONS = range(2, 11)
PARTITIONS_AT_ONCE: Final = 500
"""The number of offsets that are committed in one decision: about 2 ms."""
_TOPIC_IDS_SINCE = 10


@dataclass(frozen=True, slots=True)
class OffsetCommitHandler:
    """Answers OffsetCommit."""

    coordinator: GroupCoordinator
    store: MetadataStore
    slices: TimeSlices
    turns: KeyedLock = field(default_factory=KeyedLock)
    """Of a group while a large commit is decided: a later commit must not be overtaken by it."""

    async def handle(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> OffsetCommitResponse:
        """Commit the offsets of existing partitions."""
        parts = list(_parts(request.topics))
        group_id = request.group_id
        response = OffsetCommitResponse()
        try:
            if len(parts) == 1 and not self.turns.is_held([group_id]):
                response.topics = self._commit(context, request, parts[0])
            else:
                async with self.turns.hold(group_id):
                    response.topics = await self._commit_in_slices(context, request, parts)
            await self.coordinator.wait_replicated(group_id)
        except ApiError as error:
            topics = (topic for part in parts for topic in part)
            response.topics = _joined([_all_with(topic, error.code) for topic in topics])
        return response

    async def _commit_in_slices(
        self,
        context: RequestContext,
        request: OffsetCommitRequest,
        parts: list[list[OffsetCommitRequestTopic]],
    ) -> list[OffsetCommitResponseTopic]:
        answered: list[OffsetCommitResponseTopic] = []
        budget = self.slices.begin(steps_per_look=1)
        for part in parts:
            answered += self._commit(context, request, part)
            await budget.yield_if_spent()
        return _joined(answered)

    def _commit(
        self,
        context: RequestContext,
        request: OffsetCommitRequest,
        asked: list[OffsetCommitRequestTopic],
    ) -> list[OffsetCommitResponseTopic]:
        """Commit some offsets of a request in one decision; a result for every partition."""
        has_ids = context.api_version >= _TOPIC_IDS_SINCE
        request.topics = [_existing(topic, self._find(topic, has_ids)) for topic in asked]
        now = self.coordinator.moment()
        response = self.coordinator.execute(
            request.group_id,
            lambda machine: machine.decide_commit(request, context.api_version, now),
        )
        return [
            _merged(topic, answered, has_ids)
            for topic, answered in zip(asked, response.topics, strict=True)
        ]

    def _find(self, topic: OffsetCommitRequestTopic, has_ids: bool) -> TopicImage | None:
        image = self.store.image
        return image.topics_by_id.get(topic.topic_id) if has_ids else image.topics.get(topic.name)


def _parts(topics: list[OffsetCommitRequestTopic]) -> Iterator[list[OffsetCommitRequestTopic]]:
    """Split the topics into parts with few partitions; at least one part."""
    part: list[OffsetCommitRequestTopic] = []
    part_count = 0
    for topic in topics:
        for start in range(0, max(len(topic.partitions), 1), PARTITIONS_AT_ONCE):
            some = topic.partitions[start : start + PARTITIONS_AT_ONCE]
            if part and part_count + len(some) > PARTITIONS_AT_ONCE:
                yield part
                part, part_count = [], 0
            part.append(
                OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=some)
            )
            part_count += max(len(some), 1)
    yield part


def _joined(topics: list[OffsetCommitResponseTopic]) -> list[OffsetCommitResponseTopic]:
    """Put the parts of each topic together again."""
    joined: list[OffsetCommitResponseTopic] = []
    for topic in topics:
        last = joined[-1] if joined else None
        if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
            last.partitions += topic.partitions
        else:
            joined.append(topic)
    return joined


def _existing(
    topic: OffsetCommitRequestTopic, found: TopicImage | None
) -> OffsetCommitRequestTopic:
    """Return the machine's request: the topic with name and id, and its existing partitions."""
    if found is None:
        return OffsetCommitRequestTopic()
    return OffsetCommitRequestTopic(
        name=found.name,
        topic_id=found.topic_id,
        partitions=[p for p in topic.partitions if found.partition(p.partition_index)],
    )


def _all_with(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def _merged(
    topic: OffsetCommitRequestTopic, answered: OffsetCommitResponseTopic, has_ids: bool
) -> OffsetCommitResponseTopic:
    """Return a result for every partition: the machine's, or an error for an unknown one."""
    code_by_index = {p.partition_index: p.error_code for p in answered.partitions}
    is_unknown_id = has_ids and not answered.name
    missing = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    merged = _all_with(topic, missing)
    for partition in merged.partitions:
        partition.error_code = code_by_index.get(partition.partition_index, partition.error_code)
    return merged
