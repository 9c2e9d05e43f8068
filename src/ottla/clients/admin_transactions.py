"""Transactions: what their coordinators know of them, and which hang because none of them does.

A transaction *hangs* in a partition if it is open there and no coordinator is going to end it: none
knows its producer, or the one that does has not got the partition in that producer's transaction.
Readers of committed records wait for it until somebody writes the missing marker (KIP-664).
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.clients.admin_producers import ActiveProducer
from ottla.clients.cluster_view import ClusterView
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
"""How many transactional ids are asked about in one request."""
_ONE_COORDINATOR_UNTIL: Final = 3
_DURATION_SINCE: Final = 1
_PATTERN_SINCE: Final = 2
_NO_DURATION: Final = -1
_NO_TIME_MS: Final = -1


class TransactionStatus(StrEnum):
    """Where a transaction stands, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactions are wanted: those that pass all that is said here."""

    states: Collection[TransactionStatus] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int | None = None
    """How long ago they began. What never began counts as very old, as with Kafka."""
    id_pattern: str | None = None
    """A regular expression for the whole transactional id."""


EVERYTHING: Final = TransactionFilter()


class ListedTransaction(NamedTuple):
    """A transactional id, in brief."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """All that its coordinator tells about a transactional id."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """When its last transaction began, if it had one."""
    partitions: tuple[TopicPartition, ...]
    """Those that still wait for a marker."""


class TransactionAdmin:
    """Calls about transactions. Each goes to their coordinators."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def list_all(self, wanted: TransactionFilter = EVERYTHING) -> list[ListedTransaction]:
        """List the transactional ids of every broker, by name.

        UNSUPPORTED_VERSION if a broker is too old for a filter, INVALID_REGULAR_EXPRESSION if the
        pattern is none.
        """
        return await self._view.retried(lambda: self._list(wanted))

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Describe a transactional id; TRANSACTIONAL_ID_NOT_FOUND if nobody knows it."""

        async def ask() -> TransactionDescription:
            coordinator_id = await self._find_coordinator(transactional_id)
            for found in await self._describe_at(coordinator_id, [transactional_id]):
                return found
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                f"there is no transactional id {transactional_id!r}",
            )

        return await self._view.retried(ask)

    async def fence(self, transactional_id: str) -> None:
        """Shut out whoever has this id, and abort the transaction; make the id if nobody has it."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=self._view.settings.request_timeout_ms,
        )

        async def ask() -> None:
            coordinator_id = await self._find_coordinator(transactional_id)
            answer = await self._view.ask_broker(coordinator_id, request, InitProducerIdResponse)
            check(answer.error_code, f"transactional id {transactional_id!r}")

        await self._view.retried(ask)

    async def hanging(self, open_ones: Sequence[ActiveProducer]) -> list[ActiveProducer]:
        """Return those of some open transactions that no coordinator is going to end.

        Partitions and coordinators do not tell of the same moment: one that has just begun, or is
        just ending, can look as if it hung.
        """
        if not open_ones:
            return []
        wanted = TransactionFilter(producer_ids={row.producer_id for row in open_ones})

        async def ask() -> set[tuple[int, TopicPartition]]:
            return await self._awaiting_markers(await self._list(wanted))

        awaiting = await self._view.retried(ask)
        return [row for row in open_ones if (row.producer_id, row.partition) not in awaiting]

    async def _awaiting_markers(
        self, listed: Iterable[ListedTransaction]
    ) -> set[tuple[int, TopicPartition]]:
        """Return the producers of these transactions with each partition that is to be marked."""
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

    async def _list(self, wanted: TransactionFilter) -> list[ListedTransaction]:
        await self._view.refresh([])
        found = await asyncio.gather(
            *(self._list_at(broker_id, wanted) for broker_id in self._view.broker_ids)
        )
        return sorted(row for rows in found for row in rows)

    async def _list_at(self, broker_id: int, wanted: TransactionFilter) -> list[ListedTransaction]:
        connection = await self._view.connection_to(broker_id)
        _check_filter(wanted, connection.version_for(ListTransactionsRequest), broker_id)
        longer_than_ms = wanted.longer_than_ms
        request = ListTransactionsRequest(
            state_filters=[state.value for state in wanted.states],
            producer_id_filters=sorted(wanted.producer_ids),
            duration_filter=_NO_DURATION if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=wanted.id_pattern,
        )
        answer = await self._view.ask_broker(broker_id, request, ListTransactionsResponse)
        code = check(
            answer.error_code,
            f"the transactions of broker {broker_id}",
            fine=(ErrorCode.INVALID_REGULAR_EXPRESSION,),
        )
        check(code, f"{wanted.id_pattern!r} is no regular expression that brokers take")
        return [
            ListedTransaction(
                row.transactional_id, broker_id, row.producer_id, row.transaction_state
            )
            for row in answer.transaction_states
        ]

    async def _describe_at(
        self, coordinator_id: int, transactional_ids: list[str]
    ) -> list[TransactionDescription]:
        """Describe those of some transactional ids that their coordinator knows."""
        request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
        answer = await self._view.ask_broker(coordinator_id, request, DescribeTransactionsResponse)
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return [
            _description(coordinator_id, row)
            for row in answer.transaction_states
            if check(row.error_code, f"transactional id {row.transactional_id!r}", fine=(missing,))
            is not missing
        ]

    async def _find_coordinator(self, transactional_id: str) -> int:
        request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION)
        answer = await self._view.ask_any(
            request, FindCoordinatorResponse, version_max=_ONE_COORDINATOR_UNTIL
        )
        check(answer.error_code, answer.error_message or f"the coordinator of {transactional_id!r}")
        return answer.node_id


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
