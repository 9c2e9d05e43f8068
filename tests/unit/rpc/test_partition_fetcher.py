"""Fetches of one partition: their requests, and each kind of response."""

import asyncio
from typing import Any

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.rpc.partition_fetcher import PartitionFetcher
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.protocol_error import ProtocolError

ID = b"i" * 16
TIMEOUT_MS, WAIT_MS = 1_000, 20


class Broker:
    """Stands for a connection: it answers every fetch with the same response."""

    def __init__(self, response: FetchResponse) -> None:
        self._response = response
        self.request = FetchRequest()
        self.version_max = self.timeout_ms = 0

    async def ask(
        self, request: FetchRequest, _: object, *, version_max: int, timeout_ms: int
    ) -> FetchResponse:
        await asyncio.sleep(0)
        self.request, self.version_max, self.timeout_ms = request, version_max, timeout_ms
        return self._response


def fetch(
    broker: Any, topic_id: bytes = ID, wait_ms: int = WAIT_MS, version_max: int = 17
) -> PartitionData | None:
    fetcher = PartitionFetcher(
        name=TopicPartition("letters", 2),
        topic_id=topic_id,
        wait_ms=wait_ms,
        version_max=version_max,
    )
    wanted = FetchPartition(partition=2, fetch_offset=7, partition_max_bytes=100)
    return asyncio.run(fetcher.fetch(broker, wanted, timeout_ms=TIMEOUT_MS))


def answering(*rows: PartitionData) -> Broker:
    return Broker(FetchResponse(responses=[FetchableTopicResponse(partitions=list(rows))]))


def test_the_data_of_the_partition_is_returned() -> None:
    row = PartitionData(partition_index=2, high_watermark=9)
    broker = answering(row)
    assert fetch(broker) is row
    assert (broker.version_max, broker.timeout_ms) == (17, TIMEOUT_MS + WAIT_MS)
    request = broker.request
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (WAIT_MS, 1, 100)


def test_a_broker_that_must_not_wait_responds_without_records() -> None:
    broker = answering(PartitionData(partition_index=2))
    fetch(broker, wait_ms=0)
    assert (broker.request.max_wait_ms, broker.request.min_bytes) == (0, 0)


def test_a_topic_without_an_id_is_fetched_by_its_name() -> None:
    broker = answering(PartitionData(partition_index=2))
    fetch(broker, topic_id=ZERO_UUID)
    assert broker.version_max == 12
    assert broker.request.topics[0].topic == "letters"


def test_a_throttling_broker_leaves_the_partition_out() -> None:
    assert fetch(answering()) is None


@pytest.mark.parametrize(
    "broker",
    [
        Broker(FetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        answering(PartitionData(partition_index=2, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    ],
)
def test_an_error_code_is_raised(broker: Broker) -> None:
    with pytest.raises(ApiError, match=r"letters.*offset 7") as raised:
        fetch(broker)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_second_partition_breaks_the_protocol() -> None:
    with pytest.raises(ProtocolError):
        fetch(answering(PartitionData(partition_index=2), PartitionData(partition_index=3)))
