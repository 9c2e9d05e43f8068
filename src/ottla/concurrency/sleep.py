"""Waiting by the event loop's time, which is virtual in the simulator."""

import asyncio


async def pause(duration_ms: float) -> None:
    """Let this much of the event loop's time pass."""
    loop = asyncio.get_running_loop()
    passed: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(duration_ms / 1000, _end, passed)
    try:
        await passed
    finally:
        timer.cancel()


def _end(passed: "asyncio.Future[None]") -> None:
    if not passed.done():  # the waiter may have been cancelled at this very moment
        passed.set_result(None)
