"""Heartbeat v0-v4: a member is alive, and learns whether it has to join again.

While the groups are being loaded every heartbeat succeeds: members need not do anything yet, and
their sessions begin after the load.
"""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
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
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
