"""The producer states of partitions, and markers for hanging transactions."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.clients.admin.per_item_results import (
    ask_each,
    ask_leaders,
    for_each,
    in_time,
    outcome_of,
)
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import check, only
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, numbers_by_topic
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PARTITIONS_MAX: Final = 500
"""The limit of partitions in one request."""
_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer in a partition's producer state."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The epoch of the last marker's coordinator; -1 if there was none."""
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int | None
    """The first offset of its open transaction in the partition, if any."""


_Found = dict[TopicPartition, tuple[ActiveProducer, ...] | ApiError]


class ProducerAdmin:
    """Producer calls. Requests go to the leaders, and are retried after leader changes."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def describe(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Describe the producer states of partitions, at their leaders or at this broker."""

        async def ask_some(asked_id: int, names: Sequence[TopicPartition]) -> _Found:
            some = [
                self._describe_at(asked_id, names[start : start + PARTITIONS_MAX])
                for start in range(0, len(names), PARTITIONS_MAX)
            ]
            return {name: row for rows in await asyncio.gather(*some) for name, row in rows.items()}

        async def ask(names: list[TopicPartition]) -> _Found:
            if broker_id is not None:
                return await ask_each({broker_id: names}, ask_some)
            return await ask_leaders(self._view, names, ask_some)

        return await for_each(self._view, sorted(set(partitions)), ask)

    async def open_since(self, name: TopicPartition, start_offset: int) -> ActiveProducer:
        """Find the open transaction with this start offset; INVALID_TXN_STATE if there is none."""
        for row in (await self.describe([name]))[name]:
            if row.start_offset == start_offset:
                return row
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"{name} has no open transaction that begins at offset {start_offset}",
        )

    async def abort(
        self, name: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker into one partition, with this coordinator epoch.

        Unless the transaction hangs, this breaks its atomicity. INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED if the partition has seen a later epoch.
        """
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=name.topic, partition_indexes=[name.partition])],
            # Without an earlier marker the coordinator epoch is unknown, and 0 fences no
            # coordinator.
            coordinator_epoch=max(coordinator_epoch, 0),
        )
        request = WriteTxnMarkersRequest(markers=[marker])

        async def ask() -> None:
            leader_id = (await self._view.partition(name)).leader_id
            response = await self._view.ask_broker(leader_id, request, WriteTxnMarkersResponse)
            topic = only(only(response.markers, "a marker").topics, "a topic")
            row = only(topic.partitions, "a partition")
            check(row.error_code, f"{name}: nothing of producer {producer_id} was aborted")

        await in_time(self._view, ask)

    async def _describe_at(self, broker_id: int, names: Sequence[TopicPartition]) -> _Found:
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name=topic, partition_indexes=numbers)
                for topic, numbers in numbers_by_topic(names).items()
            ]
        )
        response = await self._view.ask_broker(broker_id, request, DescribeProducersResponse)
        found: _Found = {}
        for topic in response.topics:
            for row in topic.partitions:
                name = TopicPartition(topic.name, row.partition_index)
                producers = sorted(row.active_producers, key=lambda one: one.producer_id)
                found[name] = outcome_of(
                    row.error_code,
                    row.error_message or f"the producers of {name}",
                    tuple(_producer(name, one) for one in producers),
                )
        return found


def _producer(name: TopicPartition, row: ProducerState) -> ActiveProducer:
    is_open = row.current_txn_start_offset != _NO_OFFSET
    return ActiveProducer(
        name,
        row.producer_id,
        row.producer_epoch,
        row.coordinator_epoch,
        row.last_sequence,
        row.last_timestamp,
        row.current_txn_start_offset if is_open else None,
    )
