"""A client's view of the cluster: brokers, leaders, and requests to them.

Connections are opened on demand and kept. A retriable failure, such as NOT_LEADER_OR_FOLLOWER, is
retried after a backoff, with fresh metadata, until the time limit of the call; then the last
failure is raised.

Many callers share few metadata requests: at most one request of a kind is in flight. Callers that
arrive meanwhile share the next request, which asks for all topics collected until it is sent.

If no known broker can be reached, the client starts again with the addresses of
`bootstrap.servers` (KIP-899).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Self, TypeVar
from weakref import WeakKeyDictionary

from ottla.clients.cluster.cluster_metadata import ClusterMetadata
from ottla.clients.cluster.connections import Connections, connect
from ottla.clients.config.settings import ClientSettings
from ottla.clients.errors import RETRIABLE, NoResponseError, UnreachableError, check, only
from ottla.clients.threads.loop_thread import create_background_task
from ottla.concurrency.sleep import pause
from ottla.environment.randomness import Randomness
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.rpc.connection import Connect, Connection
from ottla.rpc.metrics import NetworkCounts
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import EVERY_VERSION, Message

GROUP: Final = 0
TRANSACTION: Final = 1
_IN_A_LIST_SINCE: Final = 4

Ask = Callable[[MetadataRequest], Awaitable[MetadataResponse]]

TOPIC_CREATION_MS_MAX: Final = 5_000
"""How long to wait for a topic that a metadata request creates."""
R = TypeVar("R", bound=Message)
T = TypeVar("T")


async def find_coordinator(
    connection: Connection, key: str, key_type: int, *, timeout_ms: int
) -> Address:
    """Ask a broker for the coordinator of a group or a transactional id."""
    is_list = connection.version_for(FindCoordinatorRequest) >= _IN_A_LIST_SINCE
    request = FindCoordinatorRequest(
        key="" if is_list else key,
        key_type=key_type,
        coordinator_keys=[key] if is_list else [],
    )
    response = await connection.ask(request, FindCoordinatorResponse, timeout_ms=timeout_ms)
    found = only(response.coordinators, "a coordinator") if is_list else response
    check(found.error_code, found.error_message or f"the coordinator of {key!r}")
    return Address(found.host, found.port)


class _Kind(NamedTuple):
    """The properties in which requests must agree to be combined."""

    is_for_all: bool
    allow_auto_creation: bool


class _Question(NamedTuple):
    """A request that is not sent yet: its topics, and the future of its response."""

    topics: dict[str, None]
    answer: asyncio.Task[MetadataResponse]


class MetadataRequests:
    """Sends batched requests. A request continues if a waiting caller is cancelled."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._next: dict[_Kind, _Question] = {}
        self._turn: dict[_Kind, asyncio.Lock] = {}

    async def ask(
        self, topics: Collection[str] | None, *, allow_auto_creation: bool
    ) -> list[MetadataResponseTopic]:
        """Return the metadata of these topics (None: all), from a request sent after this call."""
        kind = _Kind(topics is None, allow_auto_creation)
        question = self._next.get(kind)
        if question is None:
            asked: dict[str, None] = {}
            question = _Question(asked, create_background_task(self._send(kind, asked)))
            question.answer.add_done_callback(_heard)
            self._next[kind] = question
        wanted = dict.fromkeys(topics or ())
        question.topics.update(wanted)
        response = await asyncio.shield(question.answer)
        return [topic for topic in response.topics if topics is None or topic.name in wanted]

    async def _send(self, kind: _Kind, topics: dict[str, None]) -> MetadataResponse:
        async with self._turn.setdefault(kind, asyncio.Lock()):
            del self._next[kind]
            named = [MetadataRequestTopic(name=name) for name in topics]
            request = MetadataRequest(
                topics=None if kind.is_for_all else named,
                allow_auto_topic_creation=kind.allow_auto_creation,
            )
            return await self._ask(request)


def _heard(response: asyncio.Task[MetadataResponse]) -> None:
    """Retrieve the exception, so that asyncio does not report it if all callers are gone."""
    if not response.cancelled():
        response.exception()


class ClusterView:
    """One client's connections and metadata. Use it in `async with`, in one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        connect: Connect = connect,
        randomness: Randomness | None = None,
    ) -> None:
        """`randomness` adds jitter to reconnects, so that clients do not all retry at once."""
        self.settings = settings
        self._connect = connect
        self._randomness = randomness
        self._connections = Connections(settings, connect, randomness)
        self._siblings: WeakKeyDictionary[ClusterView, None] = WeakKeyDictionary()  # in order
        self._known = ClusterMetadata()
        self._metadata = MetadataRequests(self._ask_metadata)
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._answered_at: float | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def sibling(self) -> "ClusterView":
        """Return a view of the same cluster with its own connections; both close together."""
        sibling = ClusterView(self.settings, self._connect, self._randomness)
        sibling._connections.counts = self.counts
        self._siblings[sibling] = None
        return sibling

    @property
    def is_closed(self) -> bool:
        """Whether the view is closed, so that requests fail."""
        return self._connections.is_closed

    def close(self) -> None:
        """Close all connections permanently, without waiting; calls in progress fail."""
        self._connections.close()
        for sibling in self._siblings:
            sibling.close()

    def abandon(self) -> None:
        """Close all connections soon and permanently; callable from any thread."""
        self._connections.abandon()
        for sibling in self._siblings:
            sibling.abandon()

    @property
    def broker_ids(self) -> list[int]:
        """The brokers in the latest metadata."""
        return sorted(self._known.address_by_broker)

    @property
    def controller_id(self) -> int:
        """The controller in the latest metadata; -1 if there is none."""
        return self._known.controller_id

    @controller_id.setter
    def controller_id(self, controller_id: int) -> None:
        self._known.controller_id = controller_id

    @property
    def cluster_id(self) -> str | None:
        """The cluster id in the latest metadata."""
        return self._known.cluster_id

    @property
    def counts(self) -> NetworkCounts:
        """The network counts, including the siblings' counts."""
        return self._connections.counts

    def address_of(self, broker_id: int) -> Address | None:
        """Return a broker's address from the metadata, if known."""
        return self._known.address_by_broker.get(broker_id)

    async def retried(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        final: Collection[ErrorCode] = (),
        timeout_ms: int | None = None,
    ) -> T:
        """Retry until success, a final failure, or the time limit of the call.

        The codes in `final` and all codes that Kafka does not call retriable are final. Until a
        first broker has been reached, so is an unreachable broker. A failure marks the metadata
        of the topics as stale, because outdated metadata may be the reason.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout_ms or self.settings.timeout_ms) / 1000
        backoff_ms = self.settings.retry_backoff_ms
        while True:
            try:
                return await attempt()
            except ApiError as error:
                is_over = loop.time() + backoff_ms / 1000 >= deadline
                if is_over or error.code in final or error.code not in RETRIABLE:
                    raise
            except (UnreachableError, NoResponseError):
                is_over = loop.time() + backoff_ms / 1000 >= deadline
                if is_over or self._answered_at is None or self._connections.is_closed:
                    raise
            self._known.doubt(loop.time())
            await pause(backoff_ms)
            backoff_ms = min(2 * backoff_ms, self.settings.retry_backoff_max_ms)

    # -- metadata -------------------------------------------------------------------------------

    async def refresh(
        self, topics: Collection[str] | None, *, allow_auto_creation: bool = False
    ) -> list[MetadataResponseTopic]:
        """Request the brokers and these topics (None: all); missing topics carry an error.

        Callers that arrive while a request is in flight share the next request.
        """
        return await self._metadata.ask(topics, allow_auto_creation=allow_auto_creation)

    def age_ms(self, topics: Collection[str]) -> float:
        """Return the age of these topics' oldest metadata; infinite if a topic has none."""
        return (asyncio.get_running_loop().time() - self._known.oldest(topics)) * 1000

    async def topic(self, name: str, *, allow_auto_creation: bool = False) -> MetadataResponseTopic:
        """Return a topic's cached metadata; request it if there is none.

        An unknown topic raises ApiError at once, unless the request may create it.
        """
        now = asyncio.get_running_loop().time()
        known = self._known.undoubted_topic(name, now - self.settings.metadata_max_age_ms / 1000)
        if known is not None:
            return known

        async def look() -> MetadataResponseTopic:
            topics = await self.refresh([name], allow_auto_creation=allow_auto_creation)
            found = only(topics, "a topic")
            check(found.error_code, f"topic {name!r}")
            return found

        try:
            if not allow_auto_creation:
                return await look()
            return await self.retried(look, timeout_ms=TOPIC_CREATION_MS_MAX)
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ApiError(error.code, f"there is no topic {name!r}") from None
            raise

    def known_topic(self, name: str) -> MetadataResponseTopic | None:
        """Return a topic's cached metadata, None if it is unknown or does not exist."""
        return self._known.topic(name)

    def known_partition(self, name: TopicPartition) -> MetadataResponsePartition | None:
        """Return a partition's cached metadata, None if it is unknown."""
        return self._known.partition(name)

    def known_leader(self, name: TopicPartition) -> int | None:
        """Return the cached leader of a partition; None if it has no leader or is unknown."""
        return self._known.leader(name)

    def learn_leader(
        self, name: TopicPartition, leader_id: int, leader_epoch: int, address: Address | None
    ) -> bool:
        """Apply a broker's hint of the current leader (KIP-951); False if it is not newer."""
        return self._known.learn_leader(name, leader_id, leader_epoch, address)

    def forget(self, topics: Iterable[str]) -> None:
        """Mark these topics as stale: a leader may have moved."""
        self._known.forget(topics)

    async def partition(self, name: TopicPartition) -> MetadataResponsePartition:
        """Return the cached metadata of a partition; ApiError if it has no leader."""
        topic = await self.topic(name.topic)
        partition = self._known.partition(name)
        if partition is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name.topic!r} has {len(topic.partitions)} partitions, numbered from 0: "
                f"there is no {name.partition}",
            )
        if partition.leader_id < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader")
        return partition

    async def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Group partitions by their leader."""
        partitions_by_leader: dict[int, list[TopicPartition]] = {}
        for name in partitions:
            leader_id = (await self.partition(name)).leader_id
            partitions_by_leader.setdefault(leader_id, []).append(name)
        return partitions_by_leader

    async def _ask_metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = await self.ask_any(request, MetadataResponse)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._known.forget_brokers()
            raise UnreachableError("the broker asks to begin again with bootstrap.servers")
        check(response.error_code, "metadata")
        now = asyncio.get_running_loop().time()
        self._answered_at = now
        self._known.take(response, now, is_whole=request.topics is None)
        return response

    # -- asking ---------------------------------------------------------------------------------

    async def ask_any(
        self, request: Message, response_type: type[R], *, version_max: int = EVERY_VERSION
    ) -> R:
        """Ask any reachable broker, connected brokers first."""
        failure: OSError = UnreachableError("no broker is known")
        limit_ms = self.settings.request_timeout_ms
        for address in self._candidates():
            try:
                connection = await self._connections.at(address)
                return await connection.ask(
                    request, response_type, timeout_ms=limit_ms, version_max=version_max
                )
            except (UnreachableError, NoResponseError) as error:
                failure = error
        raise failure

    def _candidates(self) -> list[Address]:
        """Return the addresses to try: known brokers, then the bootstrap servers."""
        known = self._connections.in_order(self._known.address_by_broker.values())
        bootstrap = self._connections.in_order(self.settings.bootstrap_servers)
        if known and self.settings.metadata_recovery_strategy == "none":
            return known
        if self._is_silent_for_long():
            return list(dict.fromkeys([*bootstrap, *known]))
        return list(dict.fromkeys([*known, *bootstrap]))

    def _is_silent_for_long(self) -> bool:
        if self._answered_at is None:
            return False
        silent_ms = (asyncio.get_running_loop().time() - self._answered_at) * 1000
        limit_ms = self.settings.metadata_recovery_rebootstrap_trigger_ms
        return self._connections.open_one() is None and silent_ms > limit_ms

    async def ask_broker(
        self,
        broker_id: int,
        request: Message,
        response_type: type[R],
        *,
        version_max: int = EVERY_VERSION,
        wait_ms: int = 0,
    ) -> R:
        """Ask one broker by id; the broker may delay its response by `wait_ms`."""
        connection = await self.connection_to(broker_id)
        limit_ms = self.settings.request_timeout_ms + wait_ms
        return await connection.ask(
            request, response_type, timeout_ms=limit_ms, version_max=version_max
        )

    async def ask_controller(self, request: Message, response_type: type[R]) -> R:
        """Ask the controller, or, if it is unknown, any broker, which forwards the request."""
        connection = await self.controller_connection()
        limit_ms = self.settings.request_timeout_ms
        try:
            return await connection.ask(request, response_type, timeout_ms=limit_ms)
        except (UnreachableError, NoResponseError):
            self.controller_id = -1
            raise

    async def controller_connection(self) -> Connection:
        """Return a connection to the controller, or, if it is unknown, to any broker."""
        if self.address_of(self.controller_id) is None:
            await self.refresh([])
        if self.address_of(self.controller_id) is None:
            return await self._any_connection()
        try:
            return await self.connection_to(self.controller_id)
        except UnreachableError:
            self.controller_id = -1
            raise

    async def ask_coordinator(
        self,
        key: str,
        request: Message,
        response_type: type[R],
        *,
        version_max: int = EVERY_VERSION,
        wait_ms: int = 0,
        key_type: int = GROUP,
    ) -> R:
        """Ask the coordinator of a group or transactional id, looking it up if necessary."""
        connection = await self.coordinator_connection(key, key_type)
        limit_ms = self.settings.request_timeout_ms + wait_ms
        try:
            return await connection.ask(
                request, response_type, timeout_ms=limit_ms, version_max=version_max
            )
        except (UnreachableError, NoResponseError):
            self.forget_coordinator(key, key_type)
            raise

    async def coordinator_connection(self, key: str, key_type: int = GROUP) -> Connection:
        """Return a connection to a coordinator, looking it up if necessary."""
        address = self._coordinators.get((key_type, key))
        if address is None:
            limit_ms = self.settings.request_timeout_ms
            anybody = await self._any_connection()
            address = await find_coordinator(anybody, key, key_type, timeout_ms=limit_ms)
            self._coordinators[key_type, key] = address
        try:
            return await self._connections.at(address)
        except UnreachableError:
            self.forget_coordinator(key, key_type)
            raise

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """Look up the coordinator again at its next use."""
        self._coordinators.pop((key_type, key), None)

    def open_connection_to(self, broker_id: int) -> Connection | None:
        """Return the open connection to a broker, if there is one."""
        address = self.address_of(broker_id)
        return None if address is None else self._connections.usable(address)

    async def connection_to(self, broker_id: int) -> Connection:
        """Return an open connection to a broker from the metadata."""
        return await self._connections.at(await self._address(broker_id))

    async def own_connection_to(self, broker_id: int) -> Connection:
        """Open a connection for the caller's exclusive use; the caller closes it.

        A broker answers the requests of a connection in order: a fetch that waits there must not
        delay a commit.
        """
        return await self._connections.new(await self._address(broker_id))

    async def _address(self, broker_id: int) -> Address:
        if self.address_of(broker_id) is None:
            await self.refresh([])
        address = self.address_of(broker_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}")
        return address

    async def _any_connection(self) -> Connection:
        if (connection := self._connections.open_one()) is not None:
            return connection
        failure: OSError = UnreachableError("no broker is known")
        for address in self._candidates():
            try:
                return await self._connections.at(address)
            except UnreachableError as error:
                failure = error
        raise failure


async def keep_fresh(
    view: ClusterView,
    topics: Callable[[], Collection[str]],
    take: Callable[[list[MetadataResponseTopic]], None] | None = None,
) -> None:
    """Refresh topics when their metadata is as old as metadata.max.age.ms.

    This is the background task of a client that never waits for metadata; it runs until the view is
    closed or the task is cancelled. `topics` is called each time; `take` gets the new metadata, for
    callers that depend on it, for instance on the number of partitions.
    """
    age_ms_max = view.settings.metadata_max_age_ms
    while not view.is_closed:
        wanted = [name for name in topics() if view.known_topic(name) is not None]
        left_ms = age_ms_max - view.age_ms(wanted) if wanted else age_ms_max
        if left_ms > 0:
            await pause(left_ms)
            continue
        with suppress(ApiError, UnreachableError, NoResponseError):
            found = await view.refresh(wanted)
            if take is not None:
                take(found)
        await pause(view.settings.retry_backoff_max_ms)
