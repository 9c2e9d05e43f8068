"""Requests to the controller: to this broker's own store, or to another broker.

Idempotent requests are retried until there is a response, or the patience ends: a controller that
is gone has a successor within seconds. A caller that must know whether an earlier attempt can still
arrive, such as a leader that proposes an ISR, asks once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from ottla.broker.controller.controller_connection import ChannelToController
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.response_error_codes import error_finder
from ottla.environment.clock import Clock
from ottla.machines.controller.producer_ids import ProducerIdBlock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.rpc.errors import check
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectory,
    AssignReplicasToDirsRequestPartition,
    AssignReplicasToDirsRequestTopic,
    AssignReplicasToDirsResponse,
)
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.schema import Message

PATIENCE_MS: Final = 20_000
"""The time limit of retries. Longer than a ZooKeeper session and an election, and shorter than
the request timeout of clients."""
ATTEMPT_MS: Final = 10_000
"""The timeout of a request that is sent once."""
RETRY_MS: Final = 100
SHUT_DOWN_RETRY_MS: Final = 20
ALTER_PARTITION_VERSION: Final = 3
ASSIGN_REPLICAS_TO_DIRS_VERSION: Final = 0
ALLOCATE_PRODUCER_IDS_VERSION: Final = 0
CREATE_TOPICS_VERSION: Final = 7
HEARTBEAT_VERSION: Final = 1
ENVELOPE_VERSION: Final = 0
NO_CONTROLLER: Final = BrokerId(-1)
Grant = Callable[[BrokerId, int], Awaitable[bool]]
"""Moves leadership away from a broker, of this id and epoch; returns whether it may stop."""
ReplicaName: TypeAlias = tuple[bytes, int]
"""A topic id, and the number of a partition."""
LeaveIsr: TypeAlias = Callable[[Iterable[ReplicaName], bytes], Awaitable[None]]
"""`ActiveController.leave_isr`."""
R = TypeVar("R", bound=Message)
T = TypeVar("T")


class ActiveController:
    """The client of the controller. Belongs to one event loop.

    Without a channel this broker is the only one, and always the controller.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        store: MetadataStore,
        clock: Clock,
        channel: ChannelToController | None = None,
        is_here: Callable[[], bool] = lambda: True,
        followed: Callable[[], int] = lambda: NO_CONTROLLER,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._store = store
        self._clock = clock
        self._channel = channel
        self.is_here = is_here
        """Whether this broker is the controller, as far as it knows."""
        self._followed = followed

    @property
    def id(self) -> int:
        """The id of the controller, as far as this broker knows; -1 if it is unknown."""
        return self._broker_id if self.is_here() else self._followed()

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Propose ISRs, once; ApiError or OSError if the outcome is unknown."""
        if self._channel is None or self.is_here():
            return await self._store.execute(lambda controller: controller.alter_partition(request))
        asking = self._channel.ask(
            request, ALTER_PARTITION_VERSION, AlterPartitionResponse, timeout_ms=ATTEMPT_MS
        )
        return await _in_a_task(asking)

    async def leave_isr(self, replicas: Iterable[ReplicaName], directory_id: bytes) -> None:
        """Report replicas of this broker as lost, damaged or on a full disk, so that others lead.

        The directory id says which: LOST_DIRECTORY and its neighbours. Raises ApiError if the
        controller refuses, or cannot be reached in time.
        """
        topics: dict[bytes, AssignReplicasToDirsRequestTopic] = {}
        for topic_id, number in replicas:
            topic = topics.setdefault(topic_id, AssignReplicasToDirsRequestTopic(topic_id=topic_id))
            topic.partitions.append(AssignReplicasToDirsRequestPartition(partition_index=number))
        directory = AssignReplicasToDirsRequestDirectory(
            id=directory_id, topics=list(topics.values())
        )
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), directories=[directory]
        )
        response = await self._ask(
            request, ASSIGN_REPLICAS_TO_DIRS_VERSION, AssignReplicasToDirsResponse
        )
        if response is None:
            response = await self._store.execute(
                lambda controller: controller.lose_replicas(request)
            )
        check(response.error_code, "another broker")

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """Allocate a block of unique producer ids.

        Raises ApiError if the controller refuses, or cannot be reached in time.
        """
        broker_id, epoch = self._broker_id, self._broker_epoch()
        response = await self._ask(
            AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch),
            ALLOCATE_PRODUCER_IDS_VERSION,
            AllocateProducerIdsResponse,
        )
        if response is None:
            return await self._store.execute(
                lambda controller: controller.allocate_producer_ids(broker_id, epoch)
            )
        check(response.error_code, "another broker")
        first = response.producer_id_start
        return ProducerIdBlock(first, first + response.producer_id_len)

    async def create_topics(
        self, topics: Sequence[CreatableTopic]
    ) -> list[CreatableTopicResult] | None:
        """Have another broker create topics; None if this broker is the controller.

        This broker's image may lack them when the response arrives. Raises ApiError if the
        controller cannot be reached in time.
        """
        response = await self._ask(
            CreateTopicsRequest(topics=list(topics), timeout_ms=PATIENCE_MS),
            CREATE_TOPICS_VERSION,
            CreateTopicsResponse,
        )
        return None if response is None else response.topics

    async def forward(self, envelope: EnvelopeRequest) -> EnvelopeResponse | None:
        """Forward a client's request to the controller; None if this broker is the controller."""
        return await self._ask(envelope, ENVELOPE_VERSION, EnvelopeResponse)

    async def shut_down(self, grant: Grant, patience_ms: int = PATIENCE_MS) -> None:
        """Move the leaderships of this broker, which is about to stop.

        Returns when the other brokers know their new leaderships; ApiError if that takes too long.
        If this broker is the controller it grants the request itself.
        """
        try:
            async with asyncio.timeout(patience_ms / 1000):
                await self._shut_down(grant, patience_ms)
        except TimeoutError:
            why = f"the partitions led here got no other leader within {patience_ms} ms"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why) from None

    async def _shut_down(self, grant: Grant, patience_ms: int) -> None:
        broker_id, epoch = self._broker_id, self._broker_epoch()
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, want_shut_down=True
        )
        while True:
            response = await self._ask(
                request, HEARTBEAT_VERSION, BrokerHeartbeatResponse, patience_ms
            )
            if response is None:
                is_granted = await grant(broker_id, epoch)
            else:
                check(response.error_code, "another broker")
                is_granted = response.should_shut_down
            if is_granted or self._channel is None:
                return
            await self._channel.wait_for_news(SHUT_DOWN_RETRY_MS)

    async def _ask(
        self, request: Message, version: int, answer: type[R], patience_ms: int = PATIENCE_MS
    ) -> R | None:
        """Retry until there is a response; None if this broker is the controller itself.

        Raises ApiError on a timeout.
        """
        if self._channel is None or self.is_here():
            return None
        deadline_ms = self._clock.monotonic_ms() + patience_ms
        asking = self._ask_again(request, version, answer, self._channel, deadline_ms)
        return await _in_a_task(asking)

    async def _ask_again(
        self,
        request: Message,
        version: int,
        answer: type[R],
        channel: ChannelToController,
        deadline_ms: int,
    ) -> R | None:
        why: object = "there is no controller"
        while not self.is_here():
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"nothing from the controller: {why}")
            try:
                response = await channel.ask(request, version, answer, timeout_ms=left_ms)
            except OSError as error:
                why = repr(error)
            else:
                if not _is_refused(response):
                    return response
                why = "the broker that was asked is not the controller"
            await channel.wait_for_news(RETRY_MS)
        return None


async def _in_a_task(work: Coroutine[Any, Any, T]) -> T:
    # Requests are begun outside of a task (`eager_start`), and time-outs need one.
    return await asyncio.get_running_loop().create_task(work)


def _is_refused(response: Message) -> bool:
    """Return whether the response comes from a broker that is not the controller."""
    if isinstance(response, CreateTopicsResponse):
        return ErrorCode.NOT_CONTROLLER in error_finder(ApiKey.CREATE_TOPICS)(response)
    return getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER
