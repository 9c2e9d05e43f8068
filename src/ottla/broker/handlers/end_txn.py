"""EndTxn v0-v5: commit or abort a transaction.

Answered once the end is decided for good; its markers are written afterwards, and what the producer
asks for its next one waits for them. Since version 5 the answer brings the epoch in which the
producer goes on (KIP-890).
"""

from dataclasses import dataclass

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

VERSIONS = range(6)


@dataclass(frozen=True, slots=True)
class EndTxnHandler:
    """Answers EndTxn."""

    coordinator: TransactionCoordinator

    async def handle(self, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        """Have the end decided."""
        version = context.api_version
        coordinator = self.coordinator
        try:
            return await coordinator.answer_with_id(
                request.transactional_id,
                lambda machine, fresh_id: machine.decide_end(
                    request, version, fresh_id, coordinator.moment()
                ),
            )
        except ApiError as error:
            return EndTxnResponse(error_code=error.code)
