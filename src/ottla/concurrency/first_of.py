"""Waiting for time to pass, or for the first of several things."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def pause_seconds(seconds: float) -> None:
    """Let some time pass."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Wait for the first to end, and cancel the others; raise the first exception."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
