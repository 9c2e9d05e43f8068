"""The memory of large requests, and the slices in which they are read and handled."""

import asyncio
from typing import Any

import pytest

from ottla.broker.dispatch import LargeRequests
from ottla.broker.requests.request_limits import RequestLimits
from ottla.concurrency.yield_budget import TimeSlices
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import encode_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.protocol_error import MessageTooLargeError
from ottla.wire.writing import encode
from tests.taking_turns import PassingClock, turns_of_others

VERSION = 9
HEADER = RequestHeader(ApiKey.LIST_OFFSETS, VERSION, 5)
ITEMS = 3_000


def new_large_requests(bytes_max: int = 100) -> LargeRequests:
    return LargeRequests(TimeSlices(PassingClock()), bytes_max)


def request_of(items: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=n) for n in range(items)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])


async def decoded(request: Any, limits: RequestLimits) -> Any:
    frame = memoryview(encode(request, VERSION))
    return await new_large_requests().decode(HEADER, frame, 0, limits)


def test_others_go_on_while_a_large_request_is_read() -> None:
    request = request_of(ITEMS)
    work = decoded(request, RequestLimits(None, ITEMS + 1))
    read, turns = asyncio.run(turns_of_others(work))
    assert read == request
    assert turns >= 5


def test_others_go_on_while_a_long_response_is_written() -> None:
    partitions = [ListOffsetsPartitionResponse(partition_index=n) for n in range(ITEMS)]
    topic = ListOffsetsTopicResponse(name="t", partitions=partitions)
    response = ListOffsetsResponse(topics=[topic])
    work = new_large_requests().encode(HEADER, response)
    pieces, turns = asyncio.run(turns_of_others(work))
    assert b"".join(pieces) == b"".join(encode_response(2, VERSION, 5, response))
    assert len(pieces) < 100, "many small objects became few"
    assert turns >= 5


def test_a_request_with_too_many_items_is_refused() -> None:
    with pytest.raises(MessageTooLargeError, match=f"more than {ITEMS} items"):
        asyncio.run(decoded(request_of(ITEMS), RequestLimits(None, ITEMS)))


def test_a_request_that_would_take_too_much_memory_is_refused() -> None:
    limits = RequestLimits(None, ITEMS + 1, decoded_bytes_max=100_000)
    with pytest.raises(MessageTooLargeError, match="items claimed"):
        asyncio.run(decoded(request_of(ITEMS), limits))


def test_requests_without_room_continue_in_their_order() -> None:
    async def story() -> None:
        room = new_large_requests(100)
        order: list[int] = []

        async def take(size_bytes: int) -> None:
            await room.take(size_bytes)
            order.append(size_bytes)

        await take(60)
        tasks = [asyncio.create_task(take(size_bytes)) for size_bytes in (70, 20, 30)]
        await asyncio.sleep(0)
        assert order == [60], "the second would find room, but does not overtake"
        room.give_back(60)
        await asyncio.gather(*tasks[:2])
        assert order == [60, 70, 20]
        room.give_back(70)
        await tasks[2]
        room.give_back(20)
        room.give_back(30)
        assert room.taken_bytes == 0

    asyncio.run(story())


@pytest.mark.parametrize("has_room", [False, True])
def test_a_request_cancelled_while_it_waits_takes_no_memory(has_room: bool) -> None:
    async def story() -> None:
        room = new_large_requests(100)
        await room.take(100)
        waiting = asyncio.create_task(room.take(80))
        other = asyncio.create_task(room.take(90))
        await asyncio.sleep(0)
        if has_room:
            room.give_back(100)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if not has_room:
            room.give_back(100)
        await other
        assert room.taken_bytes == 90

    asyncio.run(story())
