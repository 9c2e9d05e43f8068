"""Requests to the coordinator of a producer's transactions.

The coordinator is looked up at first use, and again when it has moved or is gone. Retriable
failures are retried without end: the caller sets the time limit.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import RETRIABLE, NoResponseError, UnreachableError, check
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.rpc.connection import Connection
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.schema import EVERY_VERSION, Message

TRANSACTION: Final = 1
TRANSACTION_VERSION: Final = "transaction.version"
FIRST_BACKOFF_MS: Final = 20
"""By then the markers of the last transaction are usually written."""
_ONE_COORDINATOR_UNTIL: Final = 3
_MOVED: Final = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
R = TypeVar("R", bound=Message)
T = TypeVar("T")


class CoordinatorClient:
    """Asks the coordinator of one transactional id."""

    def __init__(self, view: ClusterView, transactional_id: str) -> None:
        self.view = view
        self.transactional_id = transactional_id
        self.last_failure: Exception | None = None
        """The last retriable failure, for the error message of a timeout."""
        self._broker_id: int | None = None

    async def transaction_version(self) -> int:
        """Return the `transaction.version` level from the coordinator's ApiVersions response."""
        return (await self._connection()).feature_level(TRANSACTION_VERSION)

    async def version_of(self, request: type[Message]) -> int:
        """Return the highest version of a request that both sides support."""
        return (await self._connection()).version_for(request)

    async def ask(
        self, request: Message, response_type: type[R], *, version_max: int = EVERY_VERSION
    ) -> R:
        """Send a request once."""
        connection = await self._connection()
        timeout_ms = self.view.settings.request_timeout_ms
        return await connection.ask(
            request, response_type, timeout_ms=timeout_ms, version_max=version_max
        )

    def forget(self) -> None:
        """Look up the coordinator again before the next request."""
        self._broker_id = None

    async def until_answered(
        self, attempt: Callable[[], Awaitable[T]], forget: Callable[[], None] | None = None
    ) -> T:
        """Retry until there is a final response; ApiError if it is a refusal.

        `forget` is called when another broker may be the coordinator.
        """
        forget = forget or self.forget
        self.last_failure = None
        backoff_ms = FIRST_BACKOFF_MS
        while True:
            try:
                return await attempt()
            except ApiError as error:
                if error.code not in RETRIABLE and error.code not in _MOVED:
                    raise
                self.last_failure = error
                if error.code in _MOVED:
                    forget()
            except (UnreachableError, NoResponseError) as error:
                self.last_failure = error
                forget()
            await pause(backoff_ms)
            backoff_ms = min(2 * backoff_ms, self.view.settings.retry_backoff_max_ms)

    async def _connection(self) -> Connection:
        if self._broker_id is None:
            self._broker_id = await self._find()
        return await self.view.connection_to(self._broker_id)

    async def _find(self) -> int:
        request = FindCoordinatorRequest(key=self.transactional_id, key_type=TRANSACTION)
        response = await self.view.ask_any(
            request, FindCoordinatorResponse, version_max=_ONE_COORDINATOR_UNTIL
        )
        detail = response.error_message or f"the coordinator of {self.transactional_id!r}"
        check(response.error_code, detail)
        if self.view.address_of(response.node_id) is None:
            await self.view.refresh([])
        return response.node_id
