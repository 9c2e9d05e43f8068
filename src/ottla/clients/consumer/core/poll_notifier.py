"""Tells whoever waits that something has changed: a task of the event loop, or a thread."""

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Final

THREAD_WAIT_SECONDS_MAX: Final = 1.0
"""So long a thread waits by itself; then it had better have the event loop look at everything."""


class PollNotifier:
    """Rung in the event loop's thread. Who hears it looks again whether there is what it wants."""

    def __init__(self) -> None:
        self._for_tasks = asyncio.Event()
        self._for_threads = Event()

    def notify(self) -> None:
        """Have all look again who wait now."""
        self._for_tasks.set()
        self._for_threads.set()

    async def wait(self, deadline: float | None) -> bool:
        """Wait for it in a task; False if the deadline, by the loop's time, comes first."""
        self._for_tasks.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._for_tasks.wait()
        except TimeoutError:
            return False
        return True

    def wait_in_thread(self, is_needless: Callable[[], bool], seconds: float | None) -> None:
        """Wait for it in another thread, of which there is one at a time; not for ever.

        What is rung after something has become needless is heard: that is asked in between.
        """
        limit = (
            THREAD_WAIT_SECONDS_MAX if seconds is None else min(seconds, THREAD_WAIT_SECONDS_MAX)
        )
        self._for_threads.clear()
        if not is_needless():
            self._for_threads.wait(limit)
