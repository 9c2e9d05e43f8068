"""LeaveGroup v0-v5: members leave; since version 3 several at once, static ones by their name."""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

VERSIONS = range(6)


@dataclass(frozen=True, slots=True)
class LeaveGroupHandler:
    """Answers LeaveGroup."""

    coordinator: GroupCoordinator

    async def handle(
        self, context: RequestContext, request: LeaveGroupRequest
    ) -> LeaveGroupResponse:
        """Remove the members."""
        now = self.coordinator.moment()
        try:
            return self.coordinator.execute(
                request.group_id,
                lambda machine: machine.decide_leave(request, context.api_version, now),
            )
        except ApiError as error:
            return LeaveGroupResponse(error_code=error.code)
