"""DescribeTopicPartitions v0: topics by name and their partitions, a page at a time (KIP-966).

A null list of topics asks for all. A page ends when it has as many partitions as the client wants,
or as the limit allows, and names the start of the next page. A cursor with a topic that is not in
the list, or with a negative partition, fails every requested topic.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from ottla.broker.describing.authorized_operations import ON_TOPIC
from ottla.broker.describing.metadata_view import MetadataView
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import INTERNAL_TOPICS, check_topic_name
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

VERSIONS = range(1)
PARTITIONS_MAX: Final = 2000
"""The limit of a page: Kafka's default of `max.request.partition.size.limit`."""


@dataclass(frozen=True, slots=True)
class DescribeTopicPartitionsHandler:
    """Answers DescribeTopicPartitions."""

    view: MetadataView
    slices: TimeSlices

    async def handle(
        self, _context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """Describe topics in the order of their names, until the page is full."""
        asked = sorted({topic.name for topic in request.topics})
        image = self.view.image
        names = asked or sorted(image.topics)
        cursor = request.cursor
        if cursor is not None:
            is_listed = not asked or cursor.topic_name in asked
            if not is_listed or cursor.partition_index < 0:
                return _refused(asked)
            names = names[bisect_left(names, cursor.topic_name) :]
        left = max(min(PARTITIONS_MAX, request.response_partition_limit), 1)
        return await self._page(image, names, cursor, left, tells_missing=bool(asked))

    async def _page(
        self,
        image: ClusterImage,
        names: list[str],
        cursor: Cursor | None,
        left: int,
        *,
        tells_missing: bool,
    ) -> DescribeTopicPartitionsResponse:
        page = DescribeTopicPartitionsResponse()
        budget = self.slices.begin()
        for name in names:
            await budget.yield_if_spent()
            if left == 0:
                page.next_cursor = Cursor(topic_name=name)
                break
            topic = image.topics.get(name)
            if topic is None:
                page.topics += [_missing(name)] if tells_missing else []
                continue
            is_begun = cursor is not None and cursor.topic_name == name
            start = cursor.partition_index if cursor is not None and is_begun else 0
            page.topics.append(self._described(image, topic, start, start + left))
            if start + left < len(topic.partitions):
                page.next_cursor = Cursor(topic_name=name, partition_index=start + left)
                break
            left -= len(page.topics[-1].partitions)
        return page

    def _described(
        self, image: ClusterImage, topic: TopicImage, start: int, end: int
    ) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[
                self._partition(image, topic, index)
                for index in range(start, min(end, len(topic.partitions)))
            ],
            topic_authorized_operations=ON_TOPIC,
        )

    def _partition(
        self, image: ClusterImage, topic: TopicImage, index: int
    ) -> DescribeTopicPartitionsResponsePartition:
        partition = topic.partitions[index]
        state = self.view.state_of(image, TopicPartition(topic.name, index), partition)
        return DescribeTopicPartitionsResponsePartition(
            error_code=state.error_code,
            partition_index=index,
            leader_id=state.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=list(partition.eligible_leader_replicas),
            last_known_elr=list(partition.last_known_elr),
            offline_replicas=list(state.offline_replicas),
        )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except ApiError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=ON_TOPIC,
    )


def _refused(names: list[str]) -> DescribeTopicPartitionsResponse:
    code = ErrorCode.INVALID_REQUEST
    topics = [DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names]
    return DescribeTopicPartitionsResponse(topics=topics)
