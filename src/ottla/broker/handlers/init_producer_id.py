"""InitProducerId v0-v5: give an idempotent producer its id.

Transactions are not there yet: a request with a transactional id is answered with
COORDINATOR_NOT_AVAILABLE, which FindCoordinator has told the client before.
"""

from dataclasses import dataclass

from ottla.broker.producer_ids import ProducerIds
from ottla.broker.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

VERSIONS = range(6)


@dataclass(frozen=True, slots=True)
class InitProducerIdHandler:
    """Answers InitProducerId."""

    producer_ids: ProducerIds

    async def handle(
        self, _context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        """Hand out the next id."""
        if request.transactional_id is not None:
            return InitProducerIdResponse(
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1
            )
        try:
            producer_id = await self.producer_ids.next()
        except ApiError as error:
            return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
        return InitProducerIdResponse(producer_id=producer_id)
