"""Transactions: their state at the coordinators, and hanging transactions.

A transaction *hangs* in a partition if it is open there and no coordinator is going to end it: no
coordinator knows its producer, or the coordinator's transaction does not include the partition.
read_committed consumers are blocked until the missing marker is written (KIP-664).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ottla.clients.admin.admin_producers import ActiveProducer
from ottla.clients.admin.per_item_results import (
    ask_each,
    for_each,
    in_time,
    one_or_several,
    outcome_of,
)
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import check
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

TRANSACTION: Final = 1
IDS_MAX: Final = 500
"""The limit of transactional ids in one request."""
SHORT_TIMEOUT_MS: Final = 1_000
"""The timeout for brokers that refuse a longer one: see _fence_at."""
_ONE_COORDINATOR_UNTIL: Final = 3
_DURATION_SINCE: Final = 1
_PATTERN_SINCE: Final = 2
_NO_DURATION: Final = -1
_NO_TIME_MS: Final = -1
V = TypeVar("V")


class TransactionStatus(StrEnum):
    """The state of a transaction, with Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Selects transactions: a transaction must match every field that is set."""

    states: Collection[TransactionStatus] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int | None = None
    """The minimum age. A transaction that never began counts as very old, as in Kafka."""
    id_pattern: str | None = None
    """A regular expression for the whole transactional id."""


EVERYTHING: Final = TransactionFilter()


class ListedTransaction(NamedTuple):
    """A transactional id in a listing."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The coordinator's state of a transactional id."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """The start of its last transaction, if it had one."""
    partitions: tuple[TopicPartition, ...]
    """The partitions without a marker."""


class FencedProducer(NamedTuple):
    """The new producer id and epoch of a transactional id."""

    producer_id: int
    epoch: int


_Ids = list[str]
_Described = dict[str, TransactionDescription | ApiError]


class TransactionAdmin:
    """Transaction calls. Requests go to the coordinators."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def list(self, wanted: TransactionFilter = EVERYTHING) -> tuple[ListedTransaction, ...]:
        """List the transactional ids of all brokers, by name.

        UNSUPPORTED_VERSION if a broker is too old for a filter, INVALID_REGULAR_EXPRESSION if the
        pattern is invalid.
        """
        return await in_time(self._view, lambda: self._list(wanted))

    async def describe(
        self, transactional_ids: str | Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Describe transactional ids; TRANSACTIONAL_ID_NOT_FOUND for an unknown id."""

        async def ask(coordinator_id: int, ids: _Ids) -> _Described:
            found = await self._describe_at(coordinator_id, ids)
            return {**dict(map(_missing, ids)), **{row.transactional_id: row for row in found}}

        return await for_each(
            self._view,
            one_or_several(transactional_ids),
            lambda ids: self._ask_coordinators(ids, ask),
        )

    async def fence(self, transactional_ids: str | Iterable[str]) -> dict[str, FencedProducer]:
        """Fence the producers of these ids, and abort their transactions; unknown ids are created.

        Return the producer id and the unused epoch of each.
        """

        async def ask(coordinator_id: int, ids: _Ids) -> dict[str, FencedProducer | ApiError]:
            found = await asyncio.gather(*(self._fence_at(coordinator_id, one) for one in ids))
            return dict(zip(ids, found, strict=True))

        return await for_each(
            self._view,
            one_or_several(transactional_ids),
            lambda ids: self._ask_coordinators(ids, ask),
        )

    async def terminate(self, transactional_id: str) -> None:
        """Abort the transaction of an existing id, and fence its producer."""
        await self.describe(transactional_id)  # an unknown id must not be created
        await self.fence(transactional_id)

    async def hanging(self, open_ones: Iterable[ActiveProducer]) -> tuple[ActiveProducer, ...]:
        """Return the open transactions that no coordinator is going to end.

        The states of partitions and coordinators are read at different times: a transaction that
        has just begun, or is about to end, may be reported as well.
        """
        rows = tuple(open_ones)
        if not rows:
            return ()
        wanted = TransactionFilter(producer_ids={row.producer_id for row in rows})

        async def ask() -> set[tuple[int, TopicPartition]]:
            return await self._awaiting_markers(await self._list(wanted))

        awaiting = await in_time(self._view, ask)
        return tuple(row for row in rows if (row.producer_id, row.partition) not in awaiting)

    async def _awaiting_markers(
        self, listed: Iterable[ListedTransaction]
    ) -> set[tuple[int, TopicPartition]]:
        """Return the producers of these transactions with each partition without a marker."""
        ids_by_coordinator: dict[int, list[str]] = {}
        for row in listed:
            ids_by_coordinator.setdefault(row.coordinator_id, []).append(row.transactional_id)
        found = await asyncio.gather(
            *(
                self._describe_at(coordinator_id, ids[start : start + IDS_MAX])
                for coordinator_id, ids in ids_by_coordinator.items()
                for start in range(0, len(ids), IDS_MAX)
            )
        )
        return {
            (row.producer_id, name) for rows in found for row in rows for name in row.partitions
        }

    async def _list(self, wanted: TransactionFilter) -> tuple[ListedTransaction, ...]:
        await self._view.refresh([])
        found = await asyncio.gather(
            *(self._list_at(broker_id, wanted) for broker_id in self._view.broker_ids)
        )
        return tuple(sorted(row for rows in found for row in rows))

    async def _list_at(
        self, broker_id: int, wanted: TransactionFilter
    ) -> tuple[ListedTransaction, ...]:
        connection = await self._view.connection_to(broker_id)
        _check_filter(wanted, connection.version_for(ListTransactionsRequest), broker_id)
        longer_than_ms = wanted.longer_than_ms
        request = ListTransactionsRequest(
            state_filters=[state.value for state in wanted.states],
            producer_id_filters=sorted(wanted.producer_ids),
            duration_filter=_NO_DURATION if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=wanted.id_pattern,
        )
        response = await self._view.ask_broker(broker_id, request, ListTransactionsResponse)
        code = check(
            response.error_code,
            f"the transactions of broker {broker_id}",
            fine=(ErrorCode.INVALID_REGULAR_EXPRESSION,),
        )
        check(code, f"{wanted.id_pattern!r} is no regular expression that brokers take")
        return tuple(
            ListedTransaction(
                row.transactional_id, broker_id, row.producer_id, row.transaction_state
            )
            for row in response.transaction_states
        )

    async def _ask_coordinators(
        self,
        transactional_ids: Sequence[str],
        ask: Callable[[int, _Ids], Awaitable[Mapping[str, V | ApiError]]],
    ) -> dict[str, V | ApiError]:
        """Ask the coordinator of each id; an id without a coordinator fails alone."""
        found = await asyncio.gather(
            *map(self._find_coordinator, transactional_ids), return_exceptions=True
        )
        ids_by_coordinator: dict[int, _Ids] = {}
        lost: dict[str, V | ApiError] = {}
        for one, coordinator_id in zip(transactional_ids, found, strict=True):
            if isinstance(coordinator_id, int):
                ids_by_coordinator.setdefault(coordinator_id, []).append(one)
            elif isinstance(coordinator_id, ApiError):
                lost[one] = coordinator_id
            else:
                raise coordinator_id
        return lost | await ask_each(ids_by_coordinator, ask)

    async def _fence_at(
        self, coordinator_id: int, transactional_id: str
    ) -> FencedProducer | ApiError:
        """Fence an id. The request needs a transaction timeout, although none will begin.

        Kafka's coordinators also use it as the replication timeout of their own log
        (KAFKA-16047), so the shortest timeout is not the best.
        """
        ask = partial(self._take_over_at, coordinator_id, transactional_id)
        found = await ask(self._view.settings.request_timeout_ms)
        refusal = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if isinstance(found, ApiError) and found.code is refusal:
            return await ask(SHORT_TIMEOUT_MS)
        return found

    async def _take_over_at(
        self, coordinator_id: int, transactional_id: str, timeout_ms: int
    ) -> FencedProducer | ApiError:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        response = await self._view.ask_broker(coordinator_id, request, InitProducerIdResponse)
        return outcome_of(
            response.error_code,
            f"transactional id {transactional_id!r}",
            FencedProducer(response.producer_id, response.producer_epoch),
        )

    async def _describe_at(
        self, coordinator_id: int, transactional_ids: Sequence[str]
    ) -> Sequence[TransactionDescription]:
        """Describe transactional ids, without ids that are unknown to their coordinator."""
        request = DescribeTransactionsRequest(transactional_ids=[*transactional_ids])
        response = await self._view.ask_broker(
            coordinator_id, request, DescribeTransactionsResponse
        )
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return [
            _description(coordinator_id, row)
            for row in response.transaction_states
            if check(row.error_code, f"transactional id {row.transactional_id!r}", fine=(missing,))
            is not missing
        ]

    async def _find_coordinator(self, transactional_id: str) -> int:
        request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION)
        response = await self._view.ask_any(
            request, FindCoordinatorResponse, version_max=_ONE_COORDINATOR_UNTIL
        )
        check(
            response.error_code,
            response.error_message or f"the coordinator of {transactional_id!r}",
        )
        return response.node_id


def _missing(transactional_id: str) -> tuple[str, ApiError]:
    detail = f"there is no transactional id {transactional_id!r}"
    return transactional_id, ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, detail)


def _check_filter(wanted: TransactionFilter, version: int, broker_id: int) -> None:
    is_unknown = (wanted.longer_than_ms is not None and version < _DURATION_SINCE) or (
        wanted.id_pattern is not None and version < _PATTERN_SINCE
    )
    if is_unknown:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"broker {broker_id} cannot look for such transactions"
        )


def _description(coordinator_id: int, row: TransactionState) -> TransactionDescription:
    has_begun = row.transaction_start_time_ms > _NO_TIME_MS
    return TransactionDescription(
        row.transactional_id,
        coordinator_id,
        row.producer_id,
        row.producer_epoch,
        row.transaction_state,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms if has_begun else None,
        tuple(
            TopicPartition(topic.topic, number)
            for topic in row.topics
            for number in topic.partitions
        ),
    )
