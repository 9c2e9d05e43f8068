"""ListGroups v0-v5: every group, or only groups in some states or of some types."""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

VERSIONS = range(6)


@dataclass(frozen=True, slots=True)
class ListGroupsHandler:
    """Answers ListGroups."""

    coordinator: GroupCoordinator

    async def handle(
        self, _context: RequestContext, request: ListGroupsRequest
    ) -> ListGroupsResponse:
        """Ask the machine of every partition."""
        try:
            found = self.coordinator.execute_on_all(lambda machine: machine.decide_list(request))
        except ApiError as error:
            return ListGroupsResponse(error_code=error.code)
        return ListGroupsResponse(groups=[group for groups in found for group in groups])
