"""Work that is done one after the other for the same name, in the order in which it came."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Line:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Who waits for it gets it in order."""
    length: int = 0


class Lines:
    """A line in front of each name; who finds nobody there does not wait."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}

    @asynccontextmanager
    async def turn(self, name: Hashable) -> AsyncIterator[None]:
        """Wait until everybody who came before has left the block."""
        line = self._lines.setdefault(name, _Line())
        line.length += 1
        try:
            async with line.lock:
                yield
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[name]
