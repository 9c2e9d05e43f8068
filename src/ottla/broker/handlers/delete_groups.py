"""DeleteGroups v0-v2: delete groups without members, and their committed offsets."""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

VERSIONS = range(3)


@dataclass(frozen=True, slots=True)
class DeleteGroupsHandler:
    """Answers DeleteGroups."""

    coordinator: GroupCoordinator

    async def handle(
        self, _context: RequestContext, request: DeleteGroupsRequest
    ) -> DeleteGroupsResponse:
        """Delete one group after the other."""
        return DeleteGroupsResponse(
            results=[await self._delete(name) for name in request.groups_names]
        )

    async def _delete(self, group_id: str) -> DeletableGroupResult:
        try:
            result = self.coordinator.execute(
                group_id, lambda machine: machine.decide_delete(group_id)
            )
            await self.coordinator.wait_replicated(group_id)
        except ApiError as error:
            return DeletableGroupResult(group_id=group_id, error_code=error.code)
        return result
