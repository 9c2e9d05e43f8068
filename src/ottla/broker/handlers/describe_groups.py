"""DescribeGroups v0-v6: the members of groups, and their assignments."""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.describing.authorized_operations import ON_GROUP
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

VERSIONS = range(7)


@dataclass(frozen=True, slots=True)
class DescribeGroupsHandler:
    """Answers DescribeGroups."""

    coordinator: GroupCoordinator

    async def handle(
        self, context: RequestContext, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        """Describe one group after the other."""
        groups = [self._describe(group_id, context.api_version) for group_id in request.groups]
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = ON_GROUP
        return DescribeGroupsResponse(groups=groups)

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        try:
            return self.coordinator.execute(
                group_id, lambda machine: machine.decide_describe(group_id, api_version)
            )
        except ApiError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)
