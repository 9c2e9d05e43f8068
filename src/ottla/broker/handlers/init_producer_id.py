"""InitProducerId v0-v6: assign a producer id and an epoch.

An idempotent producer gets a new id. A transactional producer gets the id of its transactional id,
in an epoch that fences the former producer, once that producer's transaction has ended; if that
takes long the response is CONCURRENT_TRANSACTIONS, and the producer retries. Version 6 is for
two-phase commit (KIP-939), which must be enabled.
"""

from dataclasses import dataclass

from ottla.broker.coordinators.producer_id_allocator import ProducerIds
from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.transactions.init_producer_id import check_whole
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

VERSIONS = range(7)
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class InitProducerIdHandler:
    """Answers InitProducerId."""

    producer_ids: ProducerIds
    coordinator: TransactionCoordinator

    async def handle(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        """Hand out the next id, or have the coordinator decide."""
        try:
            if request.transactional_id is None:
                check_whole(request)
                return InitProducerIdResponse(producer_id=await self.producer_ids.next())
            response = await self._init(request.transactional_id, request, context.api_version)
            if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return response
            await self.coordinator.ended(request.transactional_id)
            return await self._init(request.transactional_id, request, context.api_version)
        except ApiError as error:
            return InitProducerIdResponse(error_code=error.code, producer_epoch=_NO_EPOCH)

    async def _init(
        self, transactional_id: str, request: InitProducerIdRequest, version: int
    ) -> InitProducerIdResponse:
        coordinator = self.coordinator
        return await coordinator.answer_with_id(
            transactional_id,
            lambda machine, fresh_id: machine.decide_init(
                request, version, fresh_id, coordinator.moment()
            ),
        )
