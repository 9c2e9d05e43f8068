"""Notifies a waiting poll of changes: in a task of the event loop, or in a thread."""

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Final

THREAD_WAIT_SECONDS_MAX: Final = 1.0
"""How long a thread waits by itself before the event loop checks for due work."""


class PollNotifier:
    """A condition, notified in the event loop's thread. A woken poll checks again for records."""

    def __init__(self) -> None:
        self._for_tasks = asyncio.Event()
        self._for_threads = Event()

    def notify(self) -> None:
        """Wake all current waiters."""
        self._for_tasks.set()
        self._for_threads.set()

    async def wait(self, deadline: float | None) -> bool:
        """Wait for a notification in a task; False if the deadline, on the loop's clock, passes."""
        self._for_tasks.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._for_tasks.wait()
        except TimeoutError:
            return False
        return True

    def wait_in_thread(self, is_needless: Callable[[], bool], seconds: float | None) -> None:
        """Wait in another thread, at most one at a time; for a limited time.

        `is_needless` is called between clearing the event and waiting, so that no notification is
        lost.
        """
        limit = (
            THREAD_WAIT_SECONDS_MAX if seconds is None else min(seconds, THREAD_WAIT_SECONDS_MAX)
        )
        self._for_threads.clear()
        if not is_needless():
            self._for_threads.wait(limit)
