"""AlterPartitionReassignments v0-v1: move partitions to other brokers, or end moves (KIP-455)."""

from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

VERSIONS = range(2)


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsHandler:
    """Answers AlterPartitionReassignments."""

    store: MetadataStore

    async def handle(
        self, _context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Let the controller decide; on the response, the moves have begun, and not ended."""
        try:
            return await self.store.execute(
                lambda controller: controller.reassign_partitions(request)
            )
        except ApiError as error:
            return AlterPartitionReassignmentsResponse(
                error_code=error.code, error_message=error.detail
            )
