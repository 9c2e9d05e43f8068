"""AlterPartition v2-v3: a leader proposes another ISR (KIP-497).

For brokers only, and not advertised to clients. Each partition has its own result; NOT_CONTROLLER
and STALE_BROKER_EPOCH concern the whole request.
"""

from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

VERSIONS = range(2, 4)


@dataclass(frozen=True, slots=True)
class AlterPartitionHandler:
    """Answers AlterPartition."""

    store: MetadataStore

    async def handle(
        self, _context: RequestContext, request: AlterPartitionRequest
    ) -> AlterPartitionResponse:
        """Let the controller decide."""
        try:
            return await self.store.execute(lambda controller: controller.alter_partition(request))
        except ApiError as error:
            return AlterPartitionResponse(error_code=error.code)
