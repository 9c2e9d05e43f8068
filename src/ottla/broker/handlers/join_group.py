"""JoinGroup v0-v9: take part in the group's next generation; waits until it is complete."""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.environment.randomness import Randomness
from ottla.machines.groups.request_types import Caller
from ottla.model.api_error import ApiError
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

VERSIONS = range(10)


@dataclass(frozen=True, slots=True)
class JoinGroupHandler:
    """Answers JoinGroup."""

    coordinator: GroupCoordinator
    randomness: Randomness

    async def handle(self, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
        """Join, and wait for the others."""
        host = f"/{context.client_address}"
        caller = Caller(context.api_version, context.client_id or "", host)
        fresh = self.randomness.uuid()
        now = self.coordinator.moment()
        try:
            response = await self.coordinator.execute_waiting(
                request.group_id,
                lambda machine: machine.decide_join(request, caller, fresh, now),
                lambda machine, waiting: machine.ask_join_again(waiting),
            )
            if request.group_instance_id is not None and not response.error_code:
                # Its new id may have been written; of others nothing is before they sync.
                await self.coordinator.wait_replicated(request.group_id)
        except ApiError as error:
            return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
        return response
