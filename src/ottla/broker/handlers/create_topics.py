"""CreateTopics v2-v7: make topics, or only check that it could be done."""

from dataclasses import dataclass

from ottla.broker.controller.metadata_propagation import Spread, nobody
from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

VERSIONS = range(2, 8)


@dataclass(frozen=True, slots=True)
class CreateTopicsHandler:
    """Answers CreateTopics."""

    creation: TopicCreation
    spread: Spread = nobody

    async def handle(
        self, _context: RequestContext, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        """Let the controller decide; at the response, brokers have the new partitions."""
        try:
            results = await self.creation.create_here(
                request.topics, validate_only=request.validate_only
            )
            if not request.validate_only:
                await self.spread((one.error_code for one in results), request.timeout_ms)
        except ApiError as error:  # of the metadata store, which concerns them all
            results = [
                CreatableTopicResult(
                    name=one.name, error_code=error.code, error_message=error.detail
                )
                for one in request.topics
            ]
        return CreateTopicsResponse(topics=results)
