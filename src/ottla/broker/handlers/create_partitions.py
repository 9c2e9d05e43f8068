"""CreatePartitions v0-v3: give topics more partitions, or only check that it could be done."""

from dataclasses import dataclass

from ottla.broker.controller.metadata_propagation import Spread, nobody
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

VERSIONS = range(4)
_START_BELOW = 1 << 16


@dataclass(frozen=True, slots=True)
class CreatePartitionsHandler:
    """Answers CreatePartitions."""

    store: MetadataStore
    randomness: Randomness
    spread: Spread = nobody

    async def handle(
        self, _context: RequestContext, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        """Let the controller decide; at the response, brokers have the new partitions."""
        start = self.randomness.below(_START_BELOW)
        try:
            results = await self.store.execute(
                lambda controller: controller.create_partitions(
                    request.topics, start=start, validate_only=request.validate_only
                )
            )
            if not request.validate_only:
                await self.spread((one.error_code for one in results), request.timeout_ms)
        except ApiError as error:  # of the metadata store, which concerns them all
            results = [
                CreatePartitionsTopicResult(
                    name=one.name, error_code=error.code, error_message=error.detail
                )
                for one in request.topics
            ]
        return CreatePartitionsResponse(results=results)
