"""AllocateProducerIds v0: give a broker a block of producer ids (KIP-730).

For brokers only, and not advertised to clients.
"""

from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.identifiers import BrokerId
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsHandler:
    """Answers AllocateProducerIds."""

    store: MetadataStore

    async def handle(
        self, _context: RequestContext, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Hand out the next block."""
        try:
            block = await self.store.execute(
                lambda controller: controller.allocate_producer_ids(
                    BrokerId(request.broker_id), request.broker_epoch
                )
            )
        except ApiError as error:
            return AllocateProducerIdsResponse(error_code=error.code)
        return AllocateProducerIdsResponse(
            producer_id_start=block.first, producer_id_len=block.end - block.first
        )
