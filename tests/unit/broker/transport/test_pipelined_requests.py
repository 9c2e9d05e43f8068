"""Requests in flight: responses leave in the order of the requests."""

import asyncio
import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.transport.pipelined_requests import PipelinedRequests, Request
from ottla.concurrency.eager_task import start


@given(st.permutations(range(6)))
def test_responses_have_the_order_of_the_requests(order: list[int]) -> None:
    in_flight = PipelinedRequests()
    requests = [in_flight.add() for _ in order]
    taken = []
    for index in order:
        in_flight.answer(requests[index], [b"%d" % index])
        taken += in_flight.take_answers()
    assert taken == [[b"%d" % index] for index in range(6)]
    assert len(in_flight) == 0
    assert in_flight.waiting_bytes == 0


def test_responses_that_wait_for_earlier_responses_are_counted() -> None:
    in_flight = PipelinedRequests()
    first, second = in_flight.add(), in_flight.add()
    in_flight.answer(second, [b"four", b"more"])
    assert in_flight.take_answers() == []
    assert in_flight.waiting_bytes == 8
    in_flight.answer(first, [])
    assert in_flight.take_answers() == [[], [b"four", b"more"]]
    assert in_flight.waiting_bytes == 0


def test_after_a_refused_request_nothing_is_answered() -> None:
    in_flight = PipelinedRequests()
    first, second, third = (in_flight.add() for _ in range(3))
    in_flight.refuse(second)
    in_flight.answer(third, [b"third"])
    assert in_flight.take_answers() == []
    assert not in_flight.is_broken
    in_flight.answer(first, [b"first"])
    assert in_flight.take_answers() == [[b"first"]]
    assert in_flight.is_broken
    assert in_flight.take_answers() == []


def test_a_cancelled_request_is_freed_without_a_garbage_collection() -> None:
    class Held:
        """An object in a frame of the request's work."""

    async def serve(request: Request, held: Held) -> None:
        await asyncio.Event().wait()
        del request, held

    async def story() -> None:
        in_flight, held = PipelinedRequests(), Held()
        is_freed = weakref.ref(held)
        request = in_flight.add()
        request.waiting = start(serve(request, held), asyncio.get_running_loop())
        del request, held
        in_flight.cancel()
        del in_flight
        await asyncio.sleep(0.01)
        assert is_freed() is None

    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()
