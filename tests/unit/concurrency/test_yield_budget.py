"""Time slices on the event loop."""

import asyncio
from typing import Any

from ottla.concurrency.yield_budget import YieldBudget
from ottla.runtime.clock import SystemClock


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
