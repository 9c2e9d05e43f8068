"""Coroutines that start at once, and become tasks only if they must wait.

A coroutine that waits for a wake needs no task either.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.concurrency.eager_task import Woken, start


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    begun = start(work, asyncio.get_running_loop())
    assert begun is None or isinstance(begun, asyncio.Task)
    return begun


def test_what_never_has_to_wait_is_done_at_once_and_needs_no_task() -> None:
    async def story() -> tuple[bool, list[str]]:
        is_there = asyncio.Event()
        is_there.set()
        told = []

        async def work() -> None:
            await is_there.wait()
            told.append("done")

        has_task = begin(work()) is not None
        told_at_once = list(told)
        await asyncio.sleep(0)
        return has_task, told_at_once

    assert asyncio.run(story()) == (False, ["done"])


def test_what_waits_has_begun_and_goes_on_when_what_it_waits_for_is_there() -> None:
    async def story() -> list[str]:
        first, second = asyncio.Event(), asyncio.Event()
        told = []

        async def work() -> None:
            told.append("begun")
            await first.wait()
            told.append("first")
            await second.wait()
            told.append("second")

        task = begin(work())
        assert task is not None
        told.append("others")
        first.set()
        await asyncio.sleep(0)
        second.set()
        await task
        return told

    assert asyncio.run(story()) == ["begun", "others", "first", "second"]


def test_a_turn_given_to_others_is_given() -> None:
    async def story() -> list[str]:
        told = []

        async def work() -> None:
            await asyncio.sleep(0)
            told.append("work")

        task = begin(work())
        assert task is not None
        told.append("others")
        await task
        return told

    assert asyncio.run(story()) == ["others", "work"]


def test_what_is_cancelled_before_its_task_has_had_a_turn_hears_of_it() -> None:
    async def story() -> tuple[list[str], bool]:
        told = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append("cancelled")
                raise

        task = begin(work())
        assert task is not None
        task.cancel()
        await asyncio.wait([task])
        return told, task.cancelled()

    assert asyncio.run(story()) == (["cancelled"], True)


def test_what_is_cancelled_may_still_wait_to_clean_up() -> None:
    async def story() -> list[str]:
        told = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                told.append("clean")

        task = begin(work())
        assert task is not None
        task.cancel()
        await asyncio.wait([task])
        return told

    assert asyncio.run(story()) == ["clean"]


def test_what_was_waited_for_in_vain_is_raised_in_it() -> None:
    async def story() -> list[str]:
        failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        told = []

        async def work() -> None:
            try:
                await failing
            except OSError as error:
                told.append(str(error))

        task = begin(work())
        assert task is not None
        failing.set_exception(OSError("the disk is full"))
        await task
        return told

    assert asyncio.run(story()) == ["the disk is full"]


def test_who_waits_for_wakes_needs_no_task_and_goes_on_when_they_are_told() -> None:
    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        first, second = Woken(loop=loop), Woken(loop=loop)
        told = []

        async def work() -> None:
            told.append(f"first {await first}")
            told.append(f"second {await second}")

        assert start(work(), loop) is not None
        assert len(asyncio.all_tasks()) == 1
        first.set_result(True)
        told.append("others")
        await asyncio.sleep(0)
        second.set_result(False)
        await asyncio.sleep(0)
        return told

    assert asyncio.run(story()) == ["others", "first True", "second False"]


def test_who_was_woken_and_waits_for_something_else_is_a_task_from_then_on() -> None:
    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        wake, is_there = Woken(loop=loop), asyncio.Event()
        told = []

        async def work() -> None:
            await wake
            await is_there.wait()
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
            told.append("a task")

        begun = start(work(), loop)
        wake.set_result(True)
        await asyncio.sleep(0)
        [task] = asyncio.all_tasks() - {asyncio.current_task()}
        is_there.set()
        await task
        assert begun is not None
        return told

    assert asyncio.run(story()) == ["a task"]


@pytest.mark.parametrize("moment", ["asleep", "just woken", "a task by now"])
def test_who_is_cancelled_hears_of_it_where_it_waits(moment: str) -> None:
    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        wake = Woken(loop=loop)
        told = []

        async def work() -> None:
            try:
                await wake
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append("cancelled")
                raise

        begun = start(work(), loop)
        assert begun is not None
        if moment != "asleep":
            wake.set_result(True)
        if moment == "a task by now":
            await asyncio.sleep(0)
        begun.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        return told

    assert asyncio.run(story()) == ["cancelled"]
