"""UnregisterBroker v0: remove a broker that will not come back (KIP-631).

A broker in service is refused with INVALID_REQUEST: it has to be stopped before.
"""

from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class UnregisterBrokerHandler:
    """Answers UnregisterBroker."""

    store: MetadataStore

    async def handle(
        self, _context: RequestContext, request: UnregisterBrokerRequest
    ) -> UnregisterBrokerResponse:
        """Let the controller remove the broker."""

        def decide(controller: Controller) -> Decision[MetadataRecord, None]:
            broker_id = BrokerId(request.broker_id)
            broker = controller.image.brokers.get(broker_id)
            if broker is not None and not broker.is_fenced:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"broker {broker_id} is in service: stop it first",
                )
            return controller.unregister_broker(broker_id)

        try:
            await self.store.execute(decide)
        except ApiError as error:
            return UnregisterBrokerResponse(error_code=error.code, error_message=error.detail)
        return UnregisterBrokerResponse(error_message=None)
