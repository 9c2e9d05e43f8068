"""Waiting by the event loop's time, which is virtual in the simulator."""

import asyncio


async def pause(duration_ms: float) -> None:
    """Let this much of the event loop's time pass."""
    try:
        async with asyncio.timeout(duration_ms / 1000):
            await asyncio.get_running_loop().create_future()
    except TimeoutError:
        return
