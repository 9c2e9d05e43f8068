"""DescribeTransactions v0: where transactional ids stand (KIP-664)."""

from dataclasses import dataclass

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class DescribeTransactionsHandler:
    """Answers DescribeTransactions."""

    coordinator: TransactionCoordinator

    async def handle(
        self, _context: RequestContext, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        """Describe one after the other."""
        return DescribeTransactionsResponse(
            transaction_states=[await self._describe(one) for one in request.transactional_ids]
        )

    async def _describe(self, transactional_id: str) -> TransactionState:
        try:
            return await self.coordinator.answer(
                transactional_id, lambda machine: machine.decide_describe(transactional_id)
            )
        except ApiError as error:
            return TransactionState(transactional_id=transactional_id, error_code=error.code)
