"""Work that is done one after the other for the same name, in the order in which it came."""

import asyncio
from collections.abc import Hashable, Iterable


class KeyedLock:
    """A FIFO lock per key; an uncontended acquire allocates no future."""

    def __init__(self) -> None:
        self._last_by_name: dict[Hashable, _Hold] = {}
        """The last holder or waiter of each key."""

    def is_held(self, names: Iterable[Hashable]) -> bool:
        """Return whether one of these keys is held or waited for."""
        return not self._last_by_name.keys().isdisjoint(names)

    def hold(self, *names: Hashable) -> "_Hold":
        """Hold the locks of all these keys during an `async with` block."""
        return _Hold(self._last_by_name, names)


class _Hold:
    """One block that holds locks, from its place in the queue on."""

    __slots__ = ("_before", "_last_by_name", "_left", "_names")

    def __init__(self, last_by_name: "dict[Hashable, _Hold]", names: tuple[Hashable, ...]) -> None:
        self._last_by_name = last_by_name
        self._names = names
        self._before: list[asyncio.Future[None]] = []
        self._left: asyncio.Future[None] | None = None

    async def __aenter__(self) -> None:
        last = self._last_by_name
        self._before = [last[name].left() for name in self._names if name in last]
        last.update(dict.fromkeys(self._names, self))
        if self._before:
            try:
                await asyncio.wait(self._before)
            except BaseException:
                await self.__aexit__()
                raise

    async def __aexit__(self, *_: object) -> None:
        if unfinished := [one for one in self._before if not one.done()]:
            # A cancelled waiter keeps its place until its predecessors have left.
            asyncio.gather(*unfinished).add_done_callback(lambda _: self._leave())
        else:
            self._leave()

    def left(self) -> "asyncio.Future[None]":
        """Return a future that is done when this block and all before it have ended."""
        if self._left is None:
            self._left = asyncio.get_running_loop().create_future()
        return self._left

    def _leave(self) -> None:
        for name in self._names:
            if self._last_by_name.get(name) is self:
                del self._last_by_name[name]
        if self._left is not None:
            self._left.set_result(None)
