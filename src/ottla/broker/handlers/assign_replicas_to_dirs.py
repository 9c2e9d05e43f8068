"""AssignReplicasToDirs v0: a broker reports replicas that are lost, or on a full disk (KIP-858).

For brokers only, and not advertised to clients. Each replica has its own result; NOT_CONTROLLER and
STALE_BROKER_EPOCH concern the whole request.
"""

from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsHandler:
    """Answers AssignReplicasToDirs."""

    store: MetadataStore

    async def handle(
        self, _context: RequestContext, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        """Let the controller elect other leaders."""
        try:
            return await self.store.execute(lambda controller: controller.lose_replicas(request))
        except ApiError as error:
            return AssignReplicasToDirsResponse(error_code=error.code)
