"""Deadlines: all waiters are notified in time and in order, on one timer."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.concurrency.timer_queue import (
    GRID_MS,
    STALE_MAX,
    WOKEN_AT_ONCE_MAX,
    TimerQueue,
    shared_deadline,
)
from ottla.runtime.clock import SystemClock

FAR_MS = 60_000


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-2, 8), st.booleans()), min_size=1, max_size=30))
def test_waiters_are_woken_in_the_order_of_their_deadlines(
    waits: list[tuple[int, bool]],
) -> None:
    async def story() -> list[int]:
        clock, told = SystemClock(), []
        deadlines, now_ms = TimerQueue(clock), clock.monotonic_ms()
        staying = []
        for after_ms, is_leaving in waits:
            waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            waiting.add_done_callback(lambda _, after_ms=after_ms: told.append(after_ms))  # type: ignore[misc]
            deadlines.add(now_ms + after_ms, waiting)
            if is_leaving:
                deadlines.remove(now_ms + after_ms, waiting)
            else:
                staying.append(waiting)
        assert not any(await asyncio.gather(*staying))
        await asyncio.sleep(0)
        assert clock.monotonic_ms() >= now_ms + max(told, default=0)
        return told

    assert asyncio.run(story()) == sorted(after for after, is_leaving in waits if not is_leaving)


def test_a_crowd_with_one_deadline_is_told_over_several_iterations_of_the_loop() -> None:
    async def story() -> list[int]:
        clock, crowd = SystemClock(), 3 * WOKEN_AT_ONCE_MAX
        deadlines, loop = TimerQueue(clock), asyncio.get_running_loop()
        waits = [loop.create_future() for _ in range(crowd)]
        for waiting in waits:
            deadlines.add(clock.monotonic_ms(), waiting)
        counts = []
        while not all(waiting.done() for waiting in waits):
            before = sum(waiting.done() for waiting in waits)
            await asyncio.sleep(0)
            counts.append(sum(waiting.done() for waiting in waits) - before)
        assert not any(waiting.result() for waiting in waits)
        return counts

    counts = asyncio.run(story())
    assert max(counts) <= WOKEN_AT_ONCE_MAX
    assert sum(counts) == 3 * WOKEN_AT_ONCE_MAX


def test_removed_waiters_take_no_memory() -> None:
    async def story() -> int:
        clock = SystemClock()
        deadlines, now_ms = TimerQueue(clock), clock.monotonic_ms()
        for number in range(10 * STALE_MAX):
            waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            deadlines.add(now_ms + FAR_MS + number, waiting)
            deadlines.remove(now_ms + FAR_MS + number, waiting)
        await asyncio.sleep(0)
        return len(deadlines._order)

    assert asyncio.run(story()) <= STALE_MAX + 2


def test_a_waiter_notified_at_its_deadline_is_woken_once() -> None:
    async def story() -> bool:
        clock = SystemClock()
        deadlines = TimerQueue(clock)
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        deadlines.add(clock.monotonic_ms() + 1, waiting)
        waiting.set_result(True)
        await asyncio.sleep(0.005)
        return await waiting

    assert asyncio.run(story())


@given(st.integers(0, 1 << 40), st.integers(0, 60_000))
def test_a_shared_deadline_is_never_early_and_at_most_a_sixteenth_late(
    start_ms: int, wait_ms: int
) -> None:
    late_ms = shared_deadline(start_ms, wait_ms) - start_ms - wait_ms
    # One millisecond more: the clock truncates the start time.
    assert min(wait_ms, 1) <= late_ms <= wait_ms / 16 + 1


@given(st.lists(st.integers(0, 499), min_size=1))
def test_waits_that_begin_at_any_time_end_at_few_moments(starts_ms: list[int]) -> None:
    ends = {shared_deadline(start_ms, 500) for start_ms in starts_ms}
    assert len(ends) <= 500 // GRID_MS + 1


def test_short_waits_meet_on_a_finer_grid() -> None:
    assert {shared_deadline(start_ms, 32) % 2 for start_ms in range(100)} == {0}
