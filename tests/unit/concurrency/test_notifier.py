"""Notifier: a notification wakes every waiter, and every wait ends."""

import asyncio

from ottla.concurrency.notifier import Notifier
from ottla.concurrency.timer_queue import WOKEN_AT_ONCE_MAX
from ottla.runtime.clock import SystemClock

FAR_MS = 60_000


def far(clock: SystemClock) -> int:
    return clock.monotonic_ms() + FAR_MS


def test_a_notify_wakes_the_waiters_for_its_key_only() -> None:
    async def story() -> tuple[list[bool], bool]:
        clock = SystemClock()
        notifier = Notifier(clock)
        woken = [asyncio.create_task(notifier.wait_any(["a", "b"], far(clock))) for _ in range(3)]
        other = asyncio.create_task(notifier.wait_any(["c"], far(clock)))
        await asyncio.sleep(0)
        notifier.notify("b")
        results = await asyncio.gather(*woken)
        is_waiting = not other.done()
        other.cancel()
        return results, is_waiting

    assert asyncio.run(story()) == ([True, True, True], True)


def test_a_crowd_is_woken_over_several_iterations_of_the_loop() -> None:
    async def story() -> list[int]:
        clock = SystemClock()
        notifier = Notifier(clock)
        crowd = 3 * WOKEN_AT_ONCE_MAX
        waits = [asyncio.create_task(notifier.wait_any(["a"], far(clock))) for _ in range(crowd)]
        await asyncio.sleep(0)
        notifier.notify("a")
        counts = []
        while not all(wait.done() for wait in waits):
            before = sum(wait.done() for wait in waits)
            await asyncio.sleep(0)
            counts.append(sum(wait.done() for wait in waits) - before)
        assert all(wait.result() for wait in waits)
        return counts

    counts = asyncio.run(story())
    assert max(counts) <= WOKEN_AT_ONCE_MAX
    assert sum(counts) == 3 * WOKEN_AT_ONCE_MAX


def test_a_deadline_that_passes_is_no_notify() -> None:
    async def story() -> tuple[bool, bool]:
        clock = SystemClock()
        notifier = Notifier(clock)
        soon = await notifier.wait_any(["a"], clock.monotonic_ms() + 5)
        return soon, await notifier.wait_any(["a"], clock.monotonic_ms() - 1)

    assert asyncio.run(story()) == (False, False)


def test_closing_wakes_every_waiter_and_ends_later_waits_at_once() -> None:
    async def story() -> tuple[bool, bool]:
        clock = SystemClock()
        notifier = Notifier(clock)
        waiting = asyncio.create_task(notifier.wait_any(["a"], far(clock)))
        await asyncio.sleep(0)
        notifier.close()
        return await waiting, await notifier.wait_any(["a"], far(clock))

    assert asyncio.run(story()) == (True, False)


def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    async def story() -> int:
        clock = SystemClock()
        notifier = Notifier(clock)
        waiting = asyncio.create_task(notifier.wait_any(["a", "b"], far(clock)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        return len(notifier._waiting)

    assert asyncio.run(story()) == 0


def test_a_listener_knows_which_notifier_have_notified_also_while_it_does_not_wait() -> None:
    async def story() -> None:
        clock = SystemClock()
        notifier = Notifier(clock)
        with notifier.listening(["a", "b", "c"]) as listener:
            waiting = asyncio.create_task(listener.wait(far(clock)))
            await asyncio.sleep(0)
            for name in ("b", "d", "a", "b"):
                notifier.notify(name)
            assert await waiting
            assert listener.take() == ["b", "a"]
            notifier.notify("b")
            assert await listener.wait(far(clock))
            assert listener.take() == ["b"]
            assert not await listener.wait(clock.monotonic_ms() + 5)
        assert not notifier._waiting

    asyncio.run(story())
