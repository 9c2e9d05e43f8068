"""ListOffsets for many partitions yields to other requests."""

import asyncio

import pytest

from ottla.broker.handlers.list_offsets import ListOffsetsHandler
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.taking_turns import PassingClock, turns_of_others


@pytest.mark.parametrize("version", [0, 7])
def test_others_have_their_turns_between_partitions(version: int) -> None:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=5) for index in range(1000)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)])
    context = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", version, 0)
    clock = PassingClock()
    handler = ListOffsetsHandler(HostedPartitions(), clock, TimeSlices(clock))
    answer, turns = asyncio.run(turns_of_others(handler.handle(context, request)))
    assert [one.partition_index for one in answer.topics[0].partitions] == list(range(1000))
    assert turns >= 10
