"""A lock for the calls of a transaction, held by a coroutine or briefly by another thread."""

import asyncio
from typing import Final

from ottla.concurrency.sleep import pause

LOOK_MS: Final = 5
"""How often a coroutine polls for the release of a lock that a thread holds. The release does
not notify, because a signal could interrupt the notification; contention is rare."""


class CallTurns:
    """A FIFO lock for coroutines, which a thread can take only while it is free.

    Each side announces itself before it checks the other, so that they never both hold the lock.
    """

    def __init__(self) -> None:
        self._line = asyncio.Lock()
        self.is_lent = False
        """Whether a thread holds the lock. Clearing it releases the lock, in one atomic step."""

    def is_taken(self) -> bool:
        """Whether the lock is held."""
        return self._line.locked() or self.is_lent

    async def __aenter__(self) -> None:
        await self._line.acquire()
        try:
            while self.is_lent:
                await pause(LOOK_MS)
        except BaseException:
            self._line.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._line.release()

    def lend(self) -> bool:
        """Acquire the lock for the calling thread; False if a coroutine holds it.

        At most one thread may call this at a time, and not while a thread holds the lock.
        """
        self.is_lent = True
        if self._line.locked():
            self.is_lent = False
        return self.is_lent
