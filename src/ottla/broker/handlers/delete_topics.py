"""DeleteTopics v1-v6: delete topics, by name or, since version 6, by id."""

from dataclasses import dataclass

from ottla.broker.metadata_store.embedded import EmbeddedMetadataStore
from ottla.broker.request_context import RequestContext
from ottla.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

VERSIONS = range(1, 7)
_STATES_SINCE = 6


@dataclass(frozen=True, slots=True)
class DeleteTopicsHandler:
    """Answers DeleteTopics."""

    store: EmbeddedMetadataStore

    async def handle(
        self, context: RequestContext, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        """Let the controller decide; the partitions are gone when this is answered."""
        wanted = request.topics
        if context.api_version < _STATES_SINCE:
            wanted = [DeleteTopicState(name=name) for name in request.topic_names]
        results = await self.store.execute(lambda controller: controller.delete_topics(wanted))
        return DeleteTopicsResponse(responses=results)
