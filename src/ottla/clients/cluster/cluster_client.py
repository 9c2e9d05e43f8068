"""The cluster as a client sees it: brokers, leaders, and requests to them.

Connections are opened on demand and kept. A retriable failure, such as NOT_LEADER_OR_FOLLOWER, is
retried after a backoff, with fresh metadata, until the time for the call is over; then the last
failure is raised.

If no known broker can be reached, the client starts again with the addresses of
`bootstrap.servers` (KIP-899).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, Self, TypeVar
from weakref import WeakKeyDictionary

from ottla.clients.cluster.cluster_metadata import KnownCluster
from ottla.clients.cluster.connections import Connections
from ottla.clients.cluster.coordinators import GROUP, find_coordinator
from ottla.clients.cluster.metadata_batching import MetadataRequests
from ottla.clients.config.settings import ClientSettings
from ottla.clients.connection import Address, Connection
from ottla.clients.errors import RETRIABLE, NoAnswerError, UnreachableError, check, only
from ottla.clients.metrics import NetworkCounts
from ottla.clients.sockets import Connect, connect
from ottla.concurrency.sleep import pause
from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import EVERY_VERSION, Message

TOPIC_CREATION_MS_MAX: Final = 5_000
"""How long to wait for a topic that is made by asking for it."""
R = TypeVar("R", bound=Message)
T = TypeVar("T")


class ClusterView:
    """One client's connections and metadata. Use it in `async with`, in one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        connect: Connect = connect,
        randomness: Randomness | None = None,
    ) -> None:
        """With randomness, brokers that were lost are not tried by all clients at once."""
        self.settings = settings
        self._connect = connect
        self._randomness = randomness
        self._connections = Connections(settings, connect, randomness)
        self._siblings: WeakKeyDictionary[ClusterView, None] = WeakKeyDictionary()  # in their order
        self._known = KnownCluster()
        self._metadata = MetadataRequests(self._ask_metadata)
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._answered_at: float | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def sibling(self) -> "ClusterView":
        """Return a client of the same cluster with connections of its own; both close together."""
        sibling = ClusterView(self.settings, self._connect, self._randomness)
        sibling._connections.counts = self.counts
        self._siblings[sibling] = None
        return sibling

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._connections.is_closed

    def close(self) -> None:
        """Close every connection, for good, without waiting; calls in progress fail."""
        self._connections.close()
        for sibling in self._siblings:
            sibling.close()

    def abandon(self) -> None:
        """Close every connection soon, for good; this may be another thread than the loop's."""
        self._connections.abandon()
        for sibling in self._siblings:
            sibling.abandon()

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that the last metadata named."""
        return sorted(self._known.address_by_broker)

    @property
    def controller_id(self) -> int:
        """The broker that the last metadata called the controller; -1 if it named none."""
        return self._known.controller_id

    @controller_id.setter
    def controller_id(self, controller_id: int) -> None:
        self._known.controller_id = controller_id

    @property
    def cluster_id(self) -> str | None:
        """The cluster's own id, as the last metadata told it."""
        return self._known.cluster_id

    @property
    def counts(self) -> NetworkCounts:
        """The network counts, including those of siblings."""
        return self._connections.counts

    def address_of(self, broker_id: int) -> Address | None:
        """Return where a broker is, if metadata has named it."""
        return self._known.address_by_broker.get(broker_id)

    async def retried(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        final: Collection[ErrorCode] = (),
        timeout_ms: int | None = None,
    ) -> T:
        """Retry until it succeeds, fails for good, or the time for a call is over.

        The codes in `final` and all codes that Kafka does not call retriable fail for good. Until a
        first broker has been reached, so does an unreachable broker. A failure marks the metadata
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
            except (UnreachableError, NoAnswerError):
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
        """Ask for the brokers and these topics, or all if None; missing topics carry an error.

        Callers that ask while a request is in flight share the next one.
        """
        return await self._metadata.ask(topics, allow_auto_creation=allow_auto_creation)

    def age_ms(self, topics: Collection[str]) -> float:
        """Return the age of these topics' oldest metadata; infinite if a topic has none."""
        return (asyncio.get_running_loop().time() - self._known.oldest(topics)) * 1000

    async def topic(self, name: str, *, allow_auto_creation: bool = False) -> MetadataResponseTopic:
        """Return a topic's shape as it was last seen, looking for it if it was not yet.

        A topic that does not exist is an ApiError at once, if it is not to be made by asking.
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
        """Return a topic's shape as it was last seen, None if it was not, or was not there."""
        return self._known.topic(name)

    def known_partition(self, name: TopicPartition) -> MetadataResponsePartition | None:
        """Return a partition as it was last seen, None if it was not."""
        return self._known.partition(name)

    def known_leader(self, name: TopicPartition) -> int | None:
        """Return the cached leader of a partition; None if it has no leader or is unknown."""
        return self._known.leader(name)

    def learn_leader(
        self, name: TopicPartition, leader_id: int, leader_epoch: int, address: Address | None
    ) -> bool:
        """Apply a broker's hint at the current leader (KIP-951); False if it is not newer."""
        return self._known.learn_leader(name, leader_id, leader_epoch, address)

    def forget(self, topics: Iterable[str]) -> None:
        """Look these topics up again when they are next needed: a leader may have moved."""
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
        """Sort partitions by the broker that leads them."""
        partitions_by_leader: dict[int, list[TopicPartition]] = {}
        for name in partitions:
            leader_id = (await self.partition(name)).leader_id
            partitions_by_leader.setdefault(leader_id, []).append(name)
        return partitions_by_leader

    async def _ask_metadata(self, request: MetadataRequest) -> MetadataResponse:
        answer = await self.ask_any(request, MetadataResponse)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._known.forget_brokers()
            raise UnreachableError("the broker asks to begin again with bootstrap.servers")
        check(answer.error_code, "metadata")
        now = asyncio.get_running_loop().time()
        self._answered_at = now
        self._known.take(answer, now, is_whole=request.topics is None)
        return answer

    # -- asking ---------------------------------------------------------------------------------

    async def ask_any(
        self, request: Message, answer: type[R], *, version_max: int = EVERY_VERSION
    ) -> R:
        """Ask any reachable broker, connected brokers first."""
        failure: OSError = UnreachableError("no broker is known")
        limit_ms = self.settings.request_timeout_ms
        for address in self._candidates():
            try:
                connection = await self._connections.at(address)
                return await connection.ask(
                    request, answer, timeout_ms=limit_ms, version_max=version_max
                )
            except (UnreachableError, NoAnswerError) as error:
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
        answer: type[R],
        *,
        version_max: int = EVERY_VERSION,
        wait_ms: int = 0,
    ) -> R:
        """Ask one broker by its number; wait_ms is how long it may take on purpose."""
        connection = await self.connection_to(broker_id)
        limit_ms = self.settings.request_timeout_ms + wait_ms
        return await connection.ask(request, answer, timeout_ms=limit_ms, version_max=version_max)

    async def ask_controller(self, request: Message, answer: type[R]) -> R:
        """Ask the controller, or any broker where none is named: brokers pass it on."""
        connection = await self.controller_connection()
        limit_ms = self.settings.request_timeout_ms
        try:
            return await connection.ask(request, answer, timeout_ms=limit_ms)
        except (UnreachableError, NoAnswerError):
            self.controller_id = -1
            raise

    async def controller_connection(self) -> Connection:
        """Return a connection to the controller, or to any broker where none is named."""
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
        answer: type[R],
        *,
        version_max: int = EVERY_VERSION,
        wait_ms: int = 0,
        key_type: int = GROUP,
    ) -> R:
        """Ask the coordinator of a group, or of a transactional id; it is found if not known."""
        connection = await self.coordinator_connection(key, key_type)
        limit_ms = self.settings.request_timeout_ms + wait_ms
        try:
            return await connection.ask(
                request, answer, timeout_ms=limit_ms, version_max=version_max
            )
        except (UnreachableError, NoAnswerError):
            self.forget_coordinator(key, key_type)
            raise

    async def coordinator_connection(self, key: str, key_type: int = GROUP) -> Connection:
        """Return a connection to a coordinator, which is looked for if it is not known."""
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
        """Look for the coordinator again when it is next needed."""
        self._coordinators.pop((key_type, key), None)

    def open_connection_to(self, broker_id: int) -> Connection | None:
        """Return the connection to a broker, if there is one."""
        address = self.address_of(broker_id)
        return None if address is None else self._connections.usable(address)

    async def connection_to(self, broker_id: int) -> Connection:
        """Return an open connection to a broker that metadata has named."""
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
