"""Coroutines that start at once, and become tasks only if they must wait."""

import asyncio
import gc
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.concurrency.eager_task import start


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    return start(work, asyncio.get_running_loop())


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


@pytest.mark.parametrize("moment", ["waiting", "just woken", "waiting again"])
def test_cancellation_is_raised_at_the_await(moment: str) -> None:
    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        wake = loop.create_future()
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
        if moment != "waiting":
            wake.set_result(True)
        if moment == "waiting again":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        begun.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        return told

    assert asyncio.run(story()) == ["cancelled"]


@pytest.mark.parametrize("moment", ["waiting", "waiting again"])
def test_cancelled_work_is_freed_without_a_garbage_collection(moment: str) -> None:
    class Held:
        """An object in a frame of the work."""

    async def work(held: Held, wake: "asyncio.Future[None]") -> None:
        await wake
        await asyncio.Event().wait()
        del held

    async def story() -> None:
        held = Held()
        is_freed = weakref.ref(held)
        wake = asyncio.get_running_loop().create_future()
        begun = begin(work(held, wake))
        assert begun is not None
        del held
        if moment == "waiting again":
            wake.set_result(None)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        begun.cancel()
        del begun
        await asyncio.sleep(0.01)
        assert is_freed() is None

    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()
