"""A condition variable per key, for requests that wait on an event loop.

A request checks its condition, waits for its keys, and checks again. No notification is lost in
between: `wait_any` registers before its first suspension, and no other coroutine runs until then. A
request that waits for many keys again and again keeps a `Subscription`, which also collects the
notified keys.
"""

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Self

from ottla.concurrency.timer_queue import WOKEN_AT_ONCE_MAX, TimerQueue
from ottla.environment.clock import Clock


class Notifier:
    """Wakes the current waiters of a key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers = TimerQueue(clock)
        # Dicts in place of sets, for their order: waiters are woken in the order of their arrival.
        self._waiting: dict[Hashable, dict[Subscription, None]] = {}
        self._crowd: deque[tuple[Hashable, Subscription]] = deque()  # notified, and not woken yet
        self.is_closed = False
        self.wake_up_count = 0
        """How many listeners have been notified, for benchmarks and tests."""

    def close(self) -> None:
        """Wake all waiters for good: the broker stops, and responds with the data it has."""
        self.is_closed = True
        for name in list(self._waiting):
            self.notify(name)

    def notify(self, name: Hashable) -> None:
        """Wake all waiters of this name; of many, a limited number per iteration of the loop."""
        waiting = self._waiting.pop(name, None)
        if waiting is None:
            return
        if len(waiting) <= WOKEN_AT_ONCE_MAX:
            self._wake(name, waiting)
            return
        if not self._crowd:
            asyncio.get_running_loop().call_soon(self._wake_some)
        self._crowd.extend((name, listener) for listener in waiting)

    def _wake(self, name: Hashable, listeners: Iterable["Subscription"]) -> None:
        for listener in listeners:
            self.wake_up_count += 1
            listener.on_notify(name)

    def _wake_some(self) -> None:
        for _ in range(min(WOKEN_AT_ONCE_MAX, len(self._crowd))):
            name, listener = self._crowd.popleft()
            self._wake(name, (listener,))
        if self._crowd:
            asyncio.get_running_loop().call_soon(self._wake_some)

    async def wait_any(self, names: Sequence[Hashable], deadline_ms: int) -> bool:
        """Wait for a notification of one of the names; False on the deadline, or on close."""
        with self.listening(names) as listener:
            return await listener.wait(deadline_ms)

    def listening(self, names: Sequence[Hashable]) -> "Subscription":
        """Subscribe to these names; the subscription must be closed, as by `with`."""
        return Subscription(self, names)

    def add(self, names: Sequence[Hashable], listener: "Subscription") -> None:
        """Subscribe a listener to the next notification of each of these names."""
        for name in names:
            self._waiting.setdefault(name, {})[listener] = None

    def remove(self, names: Sequence[Hashable], listener: "Subscription") -> None:
        """Unsubscribe a listener from these names."""
        for name in names:
            waiting = self._waiting.get(name)
            if waiting is not None:
                waiting.pop(listener, None)
                if not waiting:
                    del self._waiting[name]

    async def sleep(self, deadline_ms: int, woken: "asyncio.Future[bool]") -> bool:
        """Wait until it is woken; False if the deadline, or the end, came first."""
        if deadline_ms <= self._clock.monotonic_ms() or self.is_closed:
            return False
        self._timers.add(deadline_ms, woken)
        try:
            return await woken
        finally:
            self._timers.remove(deadline_ms, woken)


class Subscription:
    """A subscription to some names, from its construction until it is closed."""

    __slots__ = ("_names", "_notified", "_notifier", "_woken")

    def __init__(self, notifier: Notifier, names: Sequence[Hashable]) -> None:
        self._notifier = notifier
        self._names = names
        self._notified: dict[Hashable, None] = {}
        self._woken: asyncio.Future[bool] | None = None
        notifier.add(names, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._notifier.remove(self._names, self)

    def add(self, names: Sequence[Hashable]) -> None:
        """Listen to these, too."""
        self._names = [*self._names, *names]
        self._notifier.add(names, self)

    def on_notify(self, name: Hashable) -> None:
        """Record a notification. The key notifies again after `take`."""
        self._notified[name] = None
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(True)

    async def wait(self, deadline_ms: int) -> bool:
        """Wait for a notification; False on the deadline, or on close."""
        if self._notified:
            return True
        self._woken = asyncio.get_running_loop().create_future()
        return await self._notifier.sleep(deadline_ms, self._woken)

    def take(self) -> list[Hashable]:
        """Return the notified names, and subscribe to them again."""
        notified = list(self._notified)
        self._notified.clear()
        self._notifier.add(notified, self)
        return notified
