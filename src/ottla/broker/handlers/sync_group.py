"""SyncGroup v0-v5: return the leader's assignment for a member; waits until there is one."""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.member_requests import SyncDecision
from ottla.machines.moment import Moment
from ottla.model.api_error import ApiError
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

VERSIONS = range(6)


@dataclass(frozen=True, slots=True)
class SyncGroupHandler:
    """Answers SyncGroup."""

    coordinator: GroupCoordinator

    async def handle(
        self, _context: RequestContext, request: SyncGroupRequest
    ) -> SyncGroupResponse:
        """Hand in, or wait for, the assignment."""
        now = self.coordinator.moment()
        try:
            response = await self.coordinator.execute_waiting(
                request.group_id,
                lambda machine: _decide(machine, request, now),
                lambda machine, waiting: machine.ask_sync_again(waiting),
            )
            if not response.error_code:
                await self.coordinator.wait_replicated(request.group_id)
        except ApiError as error:
            return SyncGroupResponse(error_code=error.code)
        return response


def _decide(machine: GroupMachine, request: SyncGroupRequest, now: Moment) -> SyncDecision:
    decision = machine.decide_sync(request, now)
    request.assignments = []  # else a waiting request would keep assignments that are not used
    return decision
