"""Sends requests to any broker of the cluster by its id: over a connection, or to this broker.

Requests to this broker go to the same handlers, so that both get the same responses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ottla.broker.requests.request_context import ANONYMOUS, RequestContext
from ottla.broker.requests.routes import Routes
from ottla.environment.clock import Clock
from ottla.environment.network import Network
from ottla.metadata.image import ClusterImage, Endpoint
from ottla.metadata.records import MetadataRecord
from ottla.model.address import Address
from ottla.model.identifiers import BrokerId
from ottla.rpc.buffer_pool import BufferPool
from ottla.rpc.connection import Connection
from ottla.wire.apis import key_of
from ottla.wire.schema import Message

CONNECT_MS_MAX: Final = 5000
R = TypeVar("R", bound=Message)


async def connect_to_broker(
    network: Network, host: str, port: int, *, client_id: str, timeout_ms: int
) -> Connection:
    """Connect to another broker; UnreachableError with the reason if that fails.

    All brokers of a cluster have the versions that the callers choose, so it is not asked for them.
    """
    return await Connection.open(
        Address(host, port),
        network.connect,
        client_id=client_id,
        timeout_ms=timeout_ms,
        asks_versions=False,
        pool=BufferPool(),
    )


@dataclass(frozen=True, slots=True)
class PeersWorld:
    """The dependencies for reaching brokers."""

    broker_id: BrokerId
    listener: str
    """Where brokers come in."""
    network: Network
    clock: Clock
    image: Callable[[], ClusterImage]
    routes: Callable[[], Routes]
    """This broker's own handlers."""


class _Connected(NamedTuple):
    endpoint: Endpoint
    broker_epoch: int
    connection: Connection


class BrokerClients:
    """One connection per broker. Belongs to one event loop.

    Each broker gets one request at a time, from a task.
    """

    def __init__(self, world: PeersWorld, purpose: str) -> None:
        self._world = world
        self._client_id = f"broker-{world.broker_id}-{purpose}"
        self._connected: dict[BrokerId, _Connected] = {}

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        return self._world.broker_id

    async def ask(
        self,
        broker_id: BrokerId,
        request: Message,
        version: int,
        answer: type[R],
        *,
        timeout_ms: int,
    ) -> R:
        """Return a broker's response; after an OSError the outcome is unknown."""
        if broker_id == self.broker_id:
            return await self._ask_here(request, version, answer)
        connection = await self._connect(broker_id)
        try:
            return await connection.ask(request, answer, version_max=version, timeout_ms=timeout_ms)
        except TimeoutError:
            connection.close("an answer did not come in time")
            raise

    def on_change(self, image: ClusterImage, _records: Sequence[MetadataRecord]) -> None:
        """Close connections to brokers that have restarted: earlier requests get no response.

        A machine that has lost power sends nothing, so requests would wait for their timeout.
        """
        for broker_id, (_, broker_epoch, connection) in list(self._connected.items()):
            broker = image.brokers.get(broker_id)
            if broker is None or broker.broker_epoch != broker_epoch:
                connection.close("the broker has begun another life")
                del self._connected[broker_id]

    def close(self) -> None:
        """Send no more requests; waiting callers fail."""
        for connected in self._connected.values():
            connected.connection.close()
        self._connected.clear()

    async def _ask_here(self, request: Message, version: int, answer: type[R]) -> R:
        route = self._world.routes().get(key_of(type(request)))
        if route is None:
            raise ConnectionError("this broker is not ready")
        context = RequestContext(
            principal=ANONYMOUS,
            client_id=self._client_id,
            client_address="",
            listener=self._world.listener,
            api_version=version,
            received_ms=self._world.clock.monotonic_ms(),
        )
        response = await route.handle(context, request)
        assert isinstance(response, answer)
        return response

    async def _connect(self, broker_id: BrokerId) -> Connection:
        broker = self._world.image().brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._world.listener)
        known = self._connected.get(broker_id)
        if known is not None:
            if known.endpoint == endpoint and known.connection.is_open:
                return known.connection
            known.connection.close("the broker is somewhere else")
            del self._connected[broker_id]
        if broker is None or endpoint is None:
            raise ConnectionError(f"the address of broker {broker_id} is unknown")
        connection = await connect_to_broker(
            self._world.network,
            endpoint.host,
            endpoint.port,
            client_id=self._client_id,
            timeout_ms=CONNECT_MS_MAX,
        )
        self._connected[broker_id] = _Connected(endpoint, broker.broker_epoch, connection)
        return connection
