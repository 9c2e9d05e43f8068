"""OffsetCommit v2-v9: keep how far a group has come.

Version 10, which names topics by id, is not offered yet. Partitions that do not exist are refused
one by one; the others are committed.
"""

from dataclasses import dataclass

from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.partitions import Partitions
from ottla.broker.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

VERSIONS = range(2, 10)


@dataclass(frozen=True, slots=True)
class OffsetCommitHandler:
    """Answers OffsetCommit."""

    coordinator: GroupCoordinator
    partitions: Partitions

    async def handle(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> OffsetCommitResponse:
        """Commit what exists."""
        asked = request.topics
        request.topics = [self._existing(topic) for topic in asked]
        now = self.coordinator.moment()
        try:
            response = self.coordinator.execute(
                request.group_id,
                lambda machine: machine.decide_commit(request, context.api_version, now),
            )
        except ApiError as error:
            return OffsetCommitResponse(topics=[_all_with(topic, error.code) for topic in asked])
        return OffsetCommitResponse(
            topics=[
                _merged(topic, answered)
                for topic, answered in zip(asked, response.topics, strict=True)
            ]
        )

    def _existing(self, topic: OffsetCommitRequestTopic) -> OffsetCommitRequestTopic:
        found = [
            partition
            for partition in topic.partitions
            if self.partitions.find(TopicPartition(topic.name, partition.partition_index))
        ]
        return OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=found)


def _all_with(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def _merged(
    topic: OffsetCommitRequestTopic, answered: OffsetCommitResponseTopic
) -> OffsetCommitResponseTopic:
    """Answer every partition that was asked about: what the machine said, or that it is unknown."""
    code_by_index = {p.partition_index: p.error_code for p in answered.partitions}
    merged = _all_with(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for partition in merged.partitions:
        partition.error_code = code_by_index.get(partition.partition_index, partition.error_code)
    return merged
