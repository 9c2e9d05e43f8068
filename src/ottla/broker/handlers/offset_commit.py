"""OffsetCommit v2-v10: commit offsets of a group. Topics are named by id since version 10.

Partitions that do not exist are refused one by one; the others are committed. The id of the topic
is stored with every offset, however the request names the topic: a later topic of the same name
does not inherit it.
"""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
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
_TOPIC_IDS_SINCE = 10


@dataclass(frozen=True, slots=True)
class OffsetCommitHandler:
    """Answers OffsetCommit."""

    coordinator: GroupCoordinator
    store: MetadataStore

    async def handle(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> OffsetCommitResponse:
        """Commit the offsets of existing partitions."""
        has_ids = context.api_version >= _TOPIC_IDS_SINCE
        asked = request.topics
        request.topics = [_existing(topic, self._find(topic, has_ids)) for topic in asked]
        now = self.coordinator.moment()
        try:
            response = self.coordinator.execute(
                request.group_id,
                lambda machine: machine.decide_commit(request, context.api_version, now),
            )
            await self.coordinator.settle(request.group_id)
        except ApiError as error:
            return OffsetCommitResponse(topics=[_all_with(topic, error.code) for topic in asked])
        return OffsetCommitResponse(
            topics=[
                _merged(topic, answered, has_ids)
                for topic, answered in zip(asked, response.topics, strict=True)
            ]
        )

    def _find(self, topic: OffsetCommitRequestTopic, has_ids: bool) -> TopicImage | None:
        image = self.store.image
        return image.topics_by_id.get(topic.topic_id) if has_ids else image.topics.get(topic.name)


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
