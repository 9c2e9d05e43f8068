"""ListTransactions v0-v2: this broker's transactional ids that match the filters.

Unknown states are returned as such, and match nothing. Listed states may not be committed yet.
"""

from dataclasses import dataclass

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.transactions.transaction import State
from ottla.model.api_error import ApiError
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

VERSIONS = range(3)


@dataclass(frozen=True, slots=True)
class ListTransactionsHandler:
    """Answers ListTransactions."""

    coordinator: TransactionCoordinator

    async def handle(
        self, _context: RequestContext, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        """Ask the machine of every partition."""
        now = self.coordinator.moment()
        try:
            found = self.coordinator.execute_on_all(
                lambda machine: machine.decide_list(request, now)
            )
        except ApiError as error:
            return ListTransactionsResponse(error_code=error.code)
        known = {state.value for state in State}
        return ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in known],
            transaction_states=[state for each in found for state in each.transaction_states],
        )
