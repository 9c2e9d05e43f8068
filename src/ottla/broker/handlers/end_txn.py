"""EndTxn v0-v5: commit or abort a transaction.

The response comes once the decision is durable; the markers are written afterwards, and the
producer's requests for its next transaction wait for them. Since version 5 the response has the
producer's next epoch (KIP-890).
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
        """Decide the end of the transaction."""
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
