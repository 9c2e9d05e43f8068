"""The cluster as a client sees it: who is there, who leads what, and how to ask them.

Connections are opened when they are needed and kept. A failure that may pass, such as a leader
that has moved, is tried again after a pause, with fresh metadata, until the time for the call is
over; then the last failure is raised.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import Final, Self, TypeVar

from ottla.clients.connection import Address, Connection
from ottla.clients.errors import RETRIABLE, NoAnswerError, UnreachableError, check, only
from ottla.clients.settings import ClientSettings
from ottla.clients.sockets import Connect, connect
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
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
TOPIC_CREATION_MS_MAX: Final = 5_000
"""How long to wait for a topic that is made by asking for it."""
_COORDINATORS_IN_A_LIST_SINCE: Final = 4
R = TypeVar("R", bound=Message)
T = TypeVar("T")


async def pause(duration_ms: float) -> None:
    """Let this much of the event loop's time pass."""
    try:
        async with asyncio.timeout(duration_ms / 1000):
            await asyncio.get_running_loop().create_future()
    except TimeoutError:
        return


class ClusterView:
    """One client's connections and metadata. Use it in `async with`, in one event loop."""

    def __init__(self, settings: ClientSettings, connect: Connect = connect) -> None:
        self.settings = settings
        self._connect = connect
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._address_by_broker: dict[int, Address] = {}
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._coordinator_by_group: dict[str, Address] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that the last metadata named."""
        return sorted(self._address_by_broker)

    def address_of(self, broker_id: int) -> Address | None:
        """Return where a broker is, if metadata has named it."""
        return self._address_by_broker.get(broker_id)

    async def retried(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        final: Collection[ErrorCode] = (),
        timeout_ms: int | None = None,
    ) -> T:
        """Try until it succeeds, fails for good, or the time for a call is over.

        For good are the final codes, and those that Kafka does not call retriable. As long as no
        broker has been reached, one that cannot be reached is for good, too. What was known about
        topics is forgotten after a failure: it may be the reason.
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
                if is_over or not self._address_by_broker:
                    raise
            self._topics.clear()
            await pause(backoff_ms)
            backoff_ms = min(2 * backoff_ms, self.settings.retry_backoff_max_ms)

    # -- metadata -------------------------------------------------------------------------------

    async def refresh(
        self, topics: Collection[str] | None, *, allow_auto_creation: bool = False
    ) -> list[MetadataResponseTopic]:
        """Ask for the brokers and these topics, or all if None; missing topics carry an error."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=allow_auto_creation)
        answer = await self.ask_any(request, MetadataResponse)
        self._address_by_broker = {
            broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers
        }
        self.controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        for topic in answer.topics:
            if topic.name is not None:
                self._topics[topic.name] = topic
        return answer.topics

    async def topic(self, name: str, *, allow_auto_creation: bool = False) -> MetadataResponseTopic:
        """Return a topic's shape as it was last seen, looking for it if it was not yet.

        A topic that does not exist is an ApiError at once, if it is not to be made by asking.
        """
        known = self._topics.get(name)
        if known is not None and known.error_code == ErrorCode.NONE:
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

    def forget(self, topics: Iterable[str]) -> None:
        """Look these topics up again when they are next needed: a leader may have moved."""
        for name in topics:
            self._topics.pop(name, None)

    async def partition(self, name: TopicPartition) -> MetadataResponsePartition:
        """Return who leads a partition, as it was last seen; ApiError if nobody does."""
        topic = await self.topic(name.topic)
        for partition in topic.partitions:
            if partition.partition_index == name.partition:
                if partition.leader_id < 0:
                    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader")
                return partition
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {name.topic!r} has {len(topic.partitions)} partitions, numbered from 0: "
            f"there is no {name.partition}",
        )

    async def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Sort partitions by the broker that leads them."""
        partitions_by_leader: dict[int, list[TopicPartition]] = {}
        for name in partitions:
            leader_id = (await self.partition(name)).leader_id
            partitions_by_leader.setdefault(leader_id, []).append(name)
        return partitions_by_leader

    # -- asking ---------------------------------------------------------------------------------

    async def ask_any(
        self, request: Message, answer: type[R], *, version_max: int = EVERY_VERSION
    ) -> R:
        """Ask whichever broker can be reached, those that are connected first."""
        known = [*self._address_by_broker.values(), *self.settings.bootstrap_servers]
        known = list(dict.fromkeys(known))
        known.sort(key=lambda address: address not in self._connections)
        failure: OSError = UnreachableError("no broker is known")
        for address in known:
            try:
                connection = await self._connection_at(address)
                return await connection.ask(
                    request,
                    answer,
                    timeout_ms=self.settings.request_timeout_ms,
                    version_max=version_max,
                )
            except (UnreachableError, NoAnswerError) as error:
                failure = error
        raise failure

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
        return await connection.ask(
            request,
            answer,
            timeout_ms=self.settings.request_timeout_ms + wait_ms,
            version_max=version_max,
        )

    async def ask_controller(self, request: Message, answer: type[R]) -> R:
        """Ask the controller, or any broker where none is named: brokers pass it on."""
        connection = await self.controller_connection()
        try:
            return await connection.ask(
                request, answer, timeout_ms=self.settings.request_timeout_ms
            )
        except UnreachableError:
            self.controller_id = -1
            raise

    async def controller_connection(self) -> Connection:
        """Return a connection to the controller, or to any broker where none is named."""
        if self.controller_id not in self._address_by_broker:
            await self.refresh([])
        if self.controller_id not in self._address_by_broker:
            return await self._any_connection()
        return await self.connection_to(self.controller_id)

    async def ask_coordinator(
        self,
        group_id: str,
        request: Message,
        answer: type[R],
        *,
        version_max: int = EVERY_VERSION,
        wait_ms: int = 0,
    ) -> R:
        """Ask the coordinator of a group, looking for it if it is not known."""
        connection = await self.coordinator_connection(group_id)
        try:
            return await connection.ask(
                request,
                answer,
                timeout_ms=self.settings.request_timeout_ms + wait_ms,
                version_max=version_max,
            )
        except (UnreachableError, NoAnswerError):
            self.forget_coordinator(group_id)
            raise

    async def coordinator_connection(self, group_id: str) -> Connection:
        """Return a connection to the coordinator of a group, which is looked for if not known."""
        address = self._coordinator_by_group.get(group_id)
        if address is None:
            address = await self._find_coordinator(group_id)
            self._coordinator_by_group[group_id] = address
        try:
            return await self._connection_at(address)
        except UnreachableError:
            self.forget_coordinator(group_id)
            raise

    def forget_coordinator(self, group_id: str) -> None:
        """Look for the coordinator again when it is next needed."""
        self._coordinator_by_group.pop(group_id, None)

    async def connection_to(self, broker_id: int) -> Connection:
        """Return an open connection to a broker that metadata has named."""
        if broker_id not in self._address_by_broker:
            await self.refresh([])
        address = self._address_by_broker.get(broker_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}")
        return await self._connection_at(address)

    async def _connection_at(self, address: Address) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await Connection.open(
                    address,
                    self._connect,
                    client_id=self.settings.client_id,
                    timeout_ms=self.settings.connect_timeout_ms,
                )
                self._connections[address] = connection
            return connection

    async def _find_coordinator(self, group_id: str) -> Address:
        connection = await self._any_connection()
        is_list = connection.version_for(FindCoordinatorRequest) >= _COORDINATORS_IN_A_LIST_SINCE
        request = FindCoordinatorRequest(
            key="" if is_list else group_id,
            key_type=GROUP,
            coordinator_keys=[group_id] if is_list else [],
        )
        answer = await connection.ask(
            request, FindCoordinatorResponse, timeout_ms=self.settings.request_timeout_ms
        )
        found = only(answer.coordinators, "a coordinator") if is_list else answer
        check(found.error_code, found.error_message or f"the coordinator of {group_id!r}")
        return Address(found.host, found.port)

    async def _any_connection(self) -> Connection:
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        failure: OSError = UnreachableError("no broker is known")
        for address in self.settings.bootstrap_servers:
            try:
                return await self._connection_at(address)
            except UnreachableError as error:
                failure = error
        raise failure
