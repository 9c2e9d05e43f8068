"""One call at a time: in the event loop, or for a moment in another thread."""

import asyncio
from typing import Final

from ottla.concurrency.sleep import pause

LOOK_MS: Final = 5
"""How often it is looked whether a turn that is lent was given back. Nobody is told: a call could
be interrupted before it has told anybody, and a thread that needs the turn of another is rare."""


class CallTurns:
    """Calls of coroutines stand in line; a thread is lent the turn if nobody stands there.

    Both sides say first that they come and look then whether the other does, so that never both
    believe to be alone.
    """

    def __init__(self) -> None:
        self._line = asyncio.Lock()
        self.is_lent = False
        """Whether a thread has the turn. To give it back, set it: that cannot be interrupted."""

    def is_taken(self) -> bool:
        """Whether somebody has the turn."""
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
        """Give the turn to the calling thread; False if it is taken.

        Threads must not ask at the same time, nor while another has it.
        """
        self.is_lent = True
        if self._line.locked():
            self.is_lent = False
        return self.is_lent
