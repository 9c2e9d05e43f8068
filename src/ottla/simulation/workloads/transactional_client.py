"""A transactional producer for simulations: small, impatient, and repetitive.

It speaks either version of the protocol. In version 2 (KIP-890) a write adds a partition, and every
end brings a new epoch; in version 1, partitions are added by name, and one epoch serves for many
transactions.

Its requests may be sent twice: a request without a prompt response is repeated on other
connections, and some requests have an *echo*, the same request once more after a while. So ends,
additions and batches come late, repeatedly, and in another order, as after a retry that overtakes.
In version 2 no late request may do harm. In version 1 a late end may hit the next transaction of
its epoch: there ends and offsets have no echo, and after an unknown outcome the client takes a new
epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import NoResponseError, UnreachableError, check, only
from ottla.concurrency.sleep import pause
from ottla.environment.clock import Clock
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, partitions_by_topic
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.schema import EVERY_VERSION, Message

GROUP: Final = 0
TRANSACTION: Final = 1
ALL_REPLICAS: Final = -1
NOBODY: Final = (-1, -1)
ECHOED: Final = 0.3
"""How many requests have an echo."""
ECHO_MS_MEAN: Final = 400
NEVER_LATE: Final = (InitProducerIdRequest,)
"""Requests without an echo: a late InitProducerId would fence its own sender."""
NEVER_LATE_AT_FIRST: Final = (InitProducerIdRequest, EndTxnRequest, TxnOffsetCommitRequest)
T = TypeVar("T")
R = TypeVar("R", bound=Message)


class OpenView(Protocol):
    """Makes a view of the cluster, which is asked of these servers, or of any."""

    def __call__(self, servers: Sequence[Address] = (), /) -> ClusterView:
        """Make a view; the caller closes it."""
        ...


class Versions(NamedTuple):
    """The versions of requests by which a client's transactions are of one version or the other."""

    produce: int
    offset_commit: int
    end: int


FIRST: Final = Versions(11, 4, 4)
SECOND: Final = Versions(12, 5, 5)


class TransactionalClient:
    """One producer with a transactional id; `init` it first, and after everything that failed."""

    def __init__(
        self,
        transactional_id: str,
        open_view: OpenView,
        clock: Clock,
        stream: Random,
        *,
        is_second: bool,
        timeout_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.is_second = is_second
        self.commits_asked = 0
        """How often the commit of the transaction was asked for, or will be."""
        self._versions = SECOND if is_second else FIRST
        self._open_view = open_view
        self._views = [open_view()]
        self._clock = clock
        self._stream = stream
        self._timeout_ms = timeout_ms
        self._identity = NOBODY
        self._is_sure = True
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition | str] = set()
        self._coordinators: dict[tuple[int, str], int] = {}
        self._late: dict[asyncio.Task[None], None] = {}

    # -- the calls of a producer -----------------------------------------------------------------

    async def init(self) -> None:
        """Become the producer of the transactional id, and fence the former one."""

        async def ask() -> None:
            producer_id, producer_epoch = self._identity
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
            response = await self._ask_coordinator(TRANSACTION, request, InitProducerIdResponse)
            check(response.error_code, "init")
            self._become(response.producer_id, response.producer_epoch)

        try:
            await self._retried(ask)
        except ApiError:
            self._identity = NOBODY  # another producer has the id: begin anew next time
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self.commits_asked = 0
        self._added.clear()

    @property
    def needs_init(self) -> bool:
        """Whether a request may still arrive late: only a new epoch fences it."""
        return self._identity == NOBODY or (not self.is_second and not self._is_sure)

    async def send(self, partition: TopicPartition, values: Sequence[bytes]) -> int:
        """Write a batch; return its first offset, -1 if it is unknown."""
        if not self.is_second:
            await self._add(partition)
        request = self._batch(partition, values)

        async def ask() -> int:
            leader = await self._view.partition(partition)
            response = await self._ask(
                leader.leader_id, request, ProduceResponse, self._versions.produce
            )
            outcome = only(only(response.responses, "a topic").partition_responses, "a partition")
            duplicate = (ErrorCode.DUPLICATE_SEQUENCE_NUMBER,)
            check(outcome.error_code, f"{partition}", fine=duplicate)
            return outcome.base_offset

        return await self._retried(ask)

    async def send_unheard(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Write a batch without waiting for the result; an abort must follow."""
        if not self.is_second:
            await self._add(partition)
        request = self._batch(partition, values)
        leader = await self._view.partition(partition)
        self._is_sure = False
        produce = self._versions.produce
        self._begin(self._ask_late(0, leader.leader_id, request, ProduceResponse, produce))

    async def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a group be there if the transaction commits."""
        if not self.is_second:
            await self._add_offsets(group_id)
        producer_id, producer_epoch = self._identity
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=name.partition,
                            committed_offset=offsets[name],
                            committed_metadata="",
                        )
                        for name in names
                    ],
                )
                for topic, names in partitions_by_topic(offsets).items()
            ],
        )

        async def ask() -> None:
            response = await self._ask_coordinator(
                GROUP, request, TxnOffsetCommitResponse, self._versions.offset_commit, group_id
            )
            for topic in response.topics:
                for each in topic.partitions:
                    check(each.error_code, "offsets")

        await self._retried(ask)

    async def end(self, *, is_commit: bool) -> None:
        """Commit or abort; return when that is decided."""
        producer_id, producer_epoch = self._identity
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=is_commit,
        )

        async def ask() -> None:
            self.commits_asked += is_commit
            response = await self._ask_coordinator(
                TRANSACTION, request, EndTxnResponse, self._versions.end
            )
            check(response.error_code, "end")
            if response.producer_id >= 0:
                self._become(response.producer_id, response.producer_epoch)

        await self._retried(ask)

    def close(self) -> None:
        """Close every connection; echoes have their own, and go on."""
        for view in self._views:
            view.close()

    # -- the first version -----------------------------------------------------------------------

    async def _add(self, partition: TopicPartition) -> None:
        if partition in self._added:
            return
        producer_id, producer_epoch = self._identity
        topic = AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[topic],
        )

        async def ask() -> None:
            response = await self._ask_coordinator(
                TRANSACTION, request, AddPartitionsToTxnResponse, 3
            )
            for result in response.results_by_topic_v3_and_below:
                for each in result.results_by_partition:
                    check(each.partition_error_code, f"{partition}")

        await self._retried(ask)
        self._added.add(partition)

    async def _add_offsets(self, group_id: str) -> None:
        if group_id in self._added:
            return
        producer_id, producer_epoch = self._identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group_id,
        )

        async def ask() -> None:
            response = await self._ask_coordinator(TRANSACTION, request, AddOffsetsToTxnResponse, 3)
            check(response.error_code, "offsets")

        await self._retried(ask)
        self._added.add(group_id)

    # -- asking ----------------------------------------------------------------------------------

    @property
    def _view(self) -> ClusterView:
        return self._views[-1]

    def _become(self, producer_id: int, producer_epoch: int) -> None:
        if self._identity != (producer_id, producer_epoch):
            self._identity = (producer_id, producer_epoch)
            self._sequences.clear()
            self._is_sure = True

    def _batch(self, partition: TopicPartition, values: Sequence[bytes]) -> ProduceRequest:
        producer_id, producer_epoch = self._identity
        sequence = self._sequences.get(partition, 0)
        builder = BatchBuilder(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        for value in values:
            builder.append(self._clock.now_ms(), None, value)
        self._sequences[partition] = sequence + len(values)
        data = PartitionProduceData(index=partition.partition, records=builder.build())
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=self._view.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry retriable failures, on new connections if there is no response."""

        async def attempt_once() -> T:
            try:
                return await attempt()
            except (ApiError, OSError) as error:
                self._coordinators.clear()
                if isinstance(error, NoResponseError):
                    self._views.append(self._open_view())
                raise

        with self._doubting():
            return await self._view.retried(attempt_once)

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """Remember whether anything that was asked for may come later."""
        views = len(self._views)
        try:
            yield
        except (ApiError, OSError):
            self._is_sure = False
            raise
        finally:
            self._is_sure &= len(self._views) == views

    async def _ask_coordinator(
        self,
        kind: int,
        request: Message,
        answer: type[R],
        version_max: int = EVERY_VERSION,
        key: str | None = None,
    ) -> R:
        place = kind, key or self.transactional_id
        if place not in self._coordinators:
            find = FindCoordinatorRequest(key="", key_type=kind, coordinator_keys=[place[1]])
            found = await self._view.ask_any(find, FindCoordinatorResponse)
            coordinator = only(found.coordinators, "a coordinator")
            check(coordinator.error_code, "a coordinator")
            self._coordinators[place] = coordinator.node_id
        return await self._ask(self._coordinators[place], request, answer, version_max)

    async def _ask(self, broker_id: int, request: Message, answer: type[R], version_max: int) -> R:
        never = NEVER_LATE if self.is_second else NEVER_LATE_AT_FIRST
        if not isinstance(request, never) and self._stream.random() < ECHOED:
            if isinstance(request, EndTxnRequest):
                self.commits_asked += request.committed
            delay_ms = self._stream.expovariate(1 / ECHO_MS_MEAN)
            self._begin(self._ask_late(delay_ms, broker_id, request, answer, version_max))
        return await self._view.ask_broker(broker_id, request, answer, version_max=version_max)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._late[task] = None
        task.add_done_callback(self._late.pop)

    async def _ask_late(
        self,
        delay_ms: float,
        broker_id: int,
        request: Message,
        answer: type[Message],
        version_max: int,
    ) -> None:
        known = self._view
        await pause(delay_ms)
        address = known.address_of(broker_id)
        if address is not None:  # else the first attempt had no broker either
            async with self._open_view([address]) as view:
                with suppress(ApiError, UnreachableError, NoResponseError):
                    await view.ask_any(request, answer, version_max=version_max)
