"""Time slices on the event loop: of background work, and of requests, which share them."""

import asyncio
from typing import Any

from ottla.concurrency.yield_budget import SLICE_MS, TimeSlices, YieldBudget
from ottla.runtime.clock import SystemClock
from tests.taking_turns import PassingClock

STEPS = 40


def test_cancelling_between_two_slices_reports_no_error_to_the_loop() -> None:
    reported: list[dict[str, Any]] = []

    async def story() -> bool:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        task = loop.create_task(YieldBudget(SystemClock()).yield_now())
        loop.call_soon(task.cancel)  # after the task's first step, before the end of its slice
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)
        return task.cancelled()

    assert asyncio.run(story())
    assert reported == []


def test_others_run_between_two_slices() -> None:
    order: list[str] = []

    async def story() -> None:
        budget = YieldBudget(SystemClock())
        asyncio.get_running_loop().call_soon(order.append, "other")
        await budget.yield_now()
        order.append("next slice")

    asyncio.run(story())
    assert order == ["other", "next slice"]


async def work(slices: TimeSlices, name: str, done: list[str], steps: int = STEPS) -> None:
    budget = slices.begin(steps_per_look=1)
    for _ in range(steps):
        done.append(name)
        await budget.yield_if_spent()


def test_requests_that_run_side_by_side_share_one_slice_per_iteration() -> None:
    async def story() -> None:
        slices = TimeSlices(PassingClock())  # each reading of the clock takes a millisecond
        done: list[str] = []
        tasks = [asyncio.create_task(work(slices, name, done)) for name in "abcdefgh"]
        steps_per_iteration = []
        while not all(task.done() for task in tasks):
            before = len(done)
            await asyncio.sleep(0)
            steps_per_iteration.append(len(done) - before)
        assert len(done) == 8 * STEPS
        # Each of the eight takes its first step; beyond that an iteration has only one slice.
        assert max(steps_per_iteration) <= SLICE_MS + 8
        assert slices.slice_count >= 8 * STEPS // (SLICE_MS + 8)

    asyncio.run(story())


def test_the_request_that_has_waited_first_goes_on_to_its_end() -> None:
    async def story() -> list[str]:
        slices = TimeSlices(PassingClock())
        done: list[str] = []
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(work(slices, name, done))
        return done

    done = asyncio.run(story())
    last = {name: len(done) - done[::-1].index(name) for name in "abc"}
    assert last["a"] < last["b"] < last["c"]
    assert done[last["a"] :].count("b") > STEPS / 2, "b has waited for the end of a"


def test_a_cancelled_request_keeps_no_other_from_going_on() -> None:
    async def story() -> None:
        slices = TimeSlices(PassingClock())
        done: list[str] = []
        first, second = [asyncio.create_task(work(slices, name, done)) for name in "ab"]
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert done.count("b") == STEPS
        assert first.cancelled()

    asyncio.run(story())


def test_a_short_request_does_not_look_at_the_clock() -> None:
    async def story() -> None:
        clock = PassingClock()
        before_ms = clock.time_ms
        budget = TimeSlices(clock).begin()
        for _ in range(7):
            await budget.yield_if_spent()
        assert clock.time_ms == before_ms

    asyncio.run(story())
