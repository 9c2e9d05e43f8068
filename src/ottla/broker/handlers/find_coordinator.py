"""FindCoordinator v0-v6: who looks after a group.

That is the leader of its partition of `__consumer_offsets`; whoever asks first has that made.
Transactions are not there yet: who asks for their coordinator is told COORDINATOR_NOT_AVAILABLE.
Share groups are neither: INVALID_REQUEST, as for anything else that has no coordinator.
"""

from dataclasses import dataclass

from ottla.broker.current_leaders import CurrentLeaders
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

VERSIONS = range(7)
GROUP = 0
TRANSACTION = 1
_MANY_KEYS_SINCE = 4


@dataclass(frozen=True, slots=True)
class FindCoordinatorHandler:
    """Answers FindCoordinator."""

    leaders: CurrentLeaders
    coordinator: GroupCoordinator

    async def handle(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        """Name the coordinator of each key."""
        many = context.api_version >= _MANY_KEYS_SINCE
        keys = request.coordinator_keys if many else [request.key]
        code = await self._open(request.key_type)
        found = [self._coordinator(key, code, context.listener) for key in keys]
        if many:
            return FindCoordinatorResponse(coordinators=found)
        (only,) = found
        return FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )

    async def _open(self, key_type: int) -> ErrorCode:
        if key_type == TRANSACTION:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if key_type != GROUP:
            return ErrorCode.INVALID_REQUEST
        try:
            await self.coordinator.open()
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def _coordinator(self, key: str, code: ErrorCode, listener: str) -> Coordinator:
        if code is not ErrorCode.NONE:
            return Coordinator(key=key, node_id=-1, port=-1, error_code=code)
        try:
            name = TopicPartition(CONSUMER_OFFSETS_TOPIC, self.coordinator.index_of(key))
        except ApiError as error:
            return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code)
        leader = self.leaders.find(name, listener)
        if leader.endpoint is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return Coordinator(key=key, node_id=-1, port=-1, error_code=code)
        host, port = leader.endpoint.host, leader.endpoint.port
        return Coordinator(
            key=key, node_id=leader.leader_id, host=host, port=port, error_message=None
        )
