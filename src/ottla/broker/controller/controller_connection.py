"""The connection to the controller's broker, shared by all callers.

It follows the controller. A caller that learns of another controller calls `look_again`: the old
connection ends, and with it every wait for a response that may never come.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.environment.network import Network
from ottla.metadata.image import Endpoint
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.rpc.connection import Connection
from ottla.wire.schema import Message

WAITING_MAX: Final = 1000
"""Requests that wait for responses. Further ones are refused at once."""
CONNECT_MS_MAX: Final = 5000
R = TypeVar("R", bound=Message)


class ChannelToController:
    """Sends requests to the controller, without retries. Belongs to one event loop."""

    def __init__(
        self, broker_id: BrokerId, network: Network, find: Callable[[], Endpoint | None]
    ) -> None:
        self._client_id = f"broker-{broker_id}-to-controller"
        self._network = network
        self._find = find
        self._connection: Connection | None = None
        self._connected_to: Endpoint | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._waiting = 0
        self._news: asyncio.Future[None] | None = None
        self._is_closed = False

    async def ask(self, request: Message, version: int, answer: type[R], *, timeout_ms: int) -> R:
        """Send a request to the current controller, and return its response.

        OSError if there is no controller, or no response: the outcome is unknown then. ApiError
        REQUEST_TIMED_OUT if too many requests wait already, NOT_CONTROLLER after `close`.
        """
        if self._waiting >= WAITING_MAX:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"{WAITING_MAX} requests wait for the controller"
            )
        self._waiting += 1
        try:
            connection = await self._connect()
            try:
                return await connection.ask(
                    request, answer, version_max=version, timeout_ms=timeout_ms
                )
            except TimeoutError:
                connection.close("an answer did not come in time")
                raise
        finally:
            self._waiting -= 1

    async def wait_for_news(self, timeout_ms: int) -> None:
        """Wait until another broker may be the controller, but not longer than this."""
        if self._is_closed:
            return
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._news], timeout=timeout_ms / 1000)

    def look_again(self) -> None:
        """Connect to the current controller, if it has changed."""
        self._drop_if_stale()
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    def close(self) -> None:
        """Send no more requests; waiting callers fail."""
        self._is_closed = True
        self.look_again()

    def _drop_if_stale(self) -> None:
        if not self._is_closed and self._connected_to == self._find():
            return
        if self._connection is not None:
            self._connection.close("another broker may be the controller")
            self._connection = None
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    async def _connect(self) -> Connection:
        self._drop_if_stale()
        endpoint = self._find()
        if self._is_closed:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the broker stops")
        if endpoint is None:
            raise ConnectionError("the controller is unknown")
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._opening is None:
            self._connected_to = endpoint
            self._opening = asyncio.get_running_loop().create_task(self._open(endpoint))
            self._opening.add_done_callback(self._on_opened)
        opening = self._opening
        await asyncio.wait([opening])
        if opening.cancelled():
            raise ConnectionError("another broker may be the controller")
        return opening.result()

    async def _open(self, endpoint: Endpoint) -> Connection:
        return await connect_to_broker(
            self._network,
            endpoint.host,
            endpoint.port,
            client_id=self._client_id,
            timeout_ms=CONNECT_MS_MAX,
        )

    def _on_opened(self, opening: "asyncio.Task[Connection]") -> None:
        if opening.cancelled():
            return
        failure = opening.exception()  # also retrieved for callers that are gone
        if self._opening is opening:
            self._opening = None
            self._connection = None if failure is not None else opening.result()
        elif failure is None:
            opening.result().close("another broker may be the controller")
