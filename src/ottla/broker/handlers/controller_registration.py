"""ControllerRegistration v0: a controller makes its addresses and features known (KIP-919).

On the controller listener alone. The levels of features can change only to levels that every
registered controller has.
"""

from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class ControllerRegistrationHandler:
    """Answers ControllerRegistration."""

    store: MetadataStore

    async def handle(
        self, _context: RequestContext, request: ControllerRegistrationRequest
    ) -> ControllerRegistrationResponse:
        """Let the active controller register the controller."""

        def decide(controller: Controller) -> Decision[MetadataRecord, None]:
            return controller.register_controller(request)

        try:
            await self.store.execute(decide)
        except ApiError as error:
            return ControllerRegistrationResponse(error_code=error.code, error_message=error.detail)
        return ControllerRegistrationResponse(error_message=None)
