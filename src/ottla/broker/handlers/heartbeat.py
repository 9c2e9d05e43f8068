"""Heartbeat v0-v4: a member says that it is alive, and hears whether it has to join again."""

from dataclasses import dataclass

from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSIONS = range(5)


@dataclass(frozen=True, slots=True)
class HeartbeatHandler:
    """Answers Heartbeat."""

    coordinator: GroupCoordinator

    async def handle(
        self, _context: RequestContext, request: HeartbeatRequest
    ) -> HeartbeatResponse:
        """Renew the session."""
        now = self.coordinator.moment()
        try:
            return self.coordinator.execute(
                request.group_id, lambda machine: machine.decide_heartbeat(request, now)
            )
        except ApiError as error:
            return HeartbeatResponse(error_code=error.code)
