"""FindCoordinator v0-v6: the coordinator of a group, or of a transactional id.

It is the leader of the name's partition of `__consumer_offsets` or of `__transaction_state`; the
first request creates that topic. Share groups have no coordinator yet: INVALID_REQUEST, as for any
unknown type.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.broker.coordinators.coordinator_runtime import CoordinatorRuntime
from ottla.broker.describing.metadata_view import CurrentLeaders
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
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
    coordinators: Mapping[int, CoordinatorRuntime[Any, Any, Any]]
    """By type of key."""

    async def handle(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        """Name the coordinator of each key."""
        many = context.api_version >= _MANY_KEYS_SINCE
        keys = request.coordinator_keys if many else [request.key]
        found = await self._find_all(keys, request.key_type, context.listener)
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

    async def _find_all(self, keys: list[str], key_type: int, listener: str) -> list[Coordinator]:
        coordinator = self.coordinators.get(key_type)
        if coordinator is None:
            return [_refusal(key, ErrorCode.INVALID_REQUEST) for key in keys]
        try:
            await coordinator.open()
        except ApiError as error:
            return [_refusal(key, error.code) for key in keys]
        return [self._find(key, coordinator, listener) for key in keys]

    def _find(
        self, key: str, coordinator: CoordinatorRuntime[Any, Any, Any], listener: str
    ) -> Coordinator:
        try:
            name = TopicPartition(coordinator.topic, coordinator.index_of(key))
        except ApiError as error:
            return _refusal(key, error.code)
        leader = self.leaders.find(name, listener)
        if leader.endpoint is None:
            return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        host, port = leader.endpoint.host, leader.endpoint.port
        return Coordinator(
            key=key, node_id=leader.leader_id, host=host, port=port, error_message=None
        )


def _refusal(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code)
