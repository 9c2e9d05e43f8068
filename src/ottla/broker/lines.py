"""Work that is done one after the other for the same name, in the order in which it came."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager


class Lines:
    """A line in front of each name; who finds nobody there does not wait."""

    def __init__(self) -> None:
        self._last_by_name: dict[Hashable, asyncio.Future[None]] = {}
        """Who stands last in each line: it is done when that one has left, and all before it."""

    def is_anybody_at(self, names: Iterable[Hashable]) -> bool:
        """Return whether somebody waits for one of these names, or is in a block."""
        return not self._last_by_name.keys().isdisjoint(names)

    @asynccontextmanager
    async def turn(self, *names: Hashable) -> AsyncIterator[None]:
        """Wait until everybody who came before has left the block, at each of these names."""
        before = [self._last_by_name[name] for name in names if name in self._last_by_name]
        left = asyncio.get_running_loop().create_future()
        self._last_by_name.update(dict.fromkeys(names, left))
        try:
            if before:
                await asyncio.wait(before)
            yield
        finally:
            if unfinished := [one for one in before if not one.done()]:
                # Who gives up does not let others pass.
                asyncio.gather(*unfinished).add_done_callback(lambda _: self._leave(names, left))
            else:
                self._leave(names, left)

    def _leave(self, names: Iterable[Hashable], left: asyncio.Future[None]) -> None:
        for name in names:
            if self._last_by_name.get(name) is left:
                del self._last_by_name[name]
        left.set_result(None)
