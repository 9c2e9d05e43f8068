"""BrokerRegistration v0-v4: a starting broker joins the cluster of a quorum (KIP-631).

On the controller listener alone. The broker is fenced until its heartbeats show that it has caught
up. Versions 0 to 2 do not tell a clean stop, which counts as unclean then.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.environment.clock import Clock
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

VERSIONS = range(5)


@dataclass(frozen=True, slots=True)
class BrokerRegistrationHandler:
    """Answers BrokerRegistration."""

    store: MetadataStore
    clock: Clock
    kraft_version: Callable[[], int]
    """The level of the quorum."""

    async def handle(
        self, _context: RequestContext, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        """Let the controller register the broker, and return its epoch."""

        def decide(controller: Controller) -> Decision[MetadataRecord, int]:
            return controller.register(request, self.clock.monotonic_ms(), self.kraft_version())

        try:
            epoch = await self.store.execute(decide)
        except ApiError as error:
            return BrokerRegistrationResponse(error_code=error.code)
        return BrokerRegistrationResponse(broker_epoch=epoch)
