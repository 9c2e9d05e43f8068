"""OffsetDelete v0: forget how far a group has come in some partitions.

Partitions that do not exist are refused one by one, topics that the group is subscribed to as a
whole.
"""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class OffsetDeleteHandler:
    """Answers OffsetDelete."""

    coordinator: GroupCoordinator
    store: MetadataStore

    async def handle(
        self, _context: RequestContext, request: OffsetDeleteRequest
    ) -> OffsetDeleteResponse:
        """Delete the offsets of existing partitions."""
        asked = request.topics
        request.topics = [self._existing(topic) for topic in asked]
        try:
            response = self.coordinator.execute(
                request.group_id, lambda machine: machine.decide_offset_delete(request)
            )
            await self.coordinator.wait_replicated(request.group_id)
        except ApiError as error:
            return OffsetDeleteResponse(error_code=error.code)
        if not response.error_code:
            response.topics = [
                _merged(topic, answered)
                for topic, answered in zip(asked, response.topics, strict=True)
            ]
        return response

    def _existing(self, topic: OffsetDeleteRequestTopic) -> OffsetDeleteRequestTopic:
        found = self.store.image.topics.get(topic.name)
        partitions = [
            p for p in topic.partitions if found is not None and found.partition(p.partition_index)
        ]
        return OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)


def _merged(
    topic: OffsetDeleteRequestTopic, answered: OffsetDeleteResponseTopic
) -> OffsetDeleteResponseTopic:
    """Return a result for every partition: the machine's, or an error for an unknown one."""
    code_by_index = {p.partition_index: p.error_code for p in answered.partitions}
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=p.partition_index,
                error_code=code_by_index.get(
                    p.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ),
            )
            for p in topic.partitions
        ],
    )
