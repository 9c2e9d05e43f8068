"""ListPartitionReassignments v0: the moves of partitions that are under way (KIP-455).

Without topics it lists all. A partition that does not move, or does not exist, is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.reassignment import ongoing_reassignments
from ottla.metadata.image import ClusterImage
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsHandler:
    """Answers ListPartitionReassignments."""

    published: Callable[[], ClusterImage]

    async def handle(
        self, _context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Look up the reassignments in the committed metadata."""
        moves = ongoing_reassignments(self.published(), request.topics)
        return ListPartitionReassignmentsResponse(topics=moves)
