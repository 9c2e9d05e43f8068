"""A thread with an event loop of its own, on which a service beside the broker serves sockets."""

import asyncio
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ottla.runtime import event_loop
from ottla.runtime.network import KernelListener

SWITCH_SECONDS: Final = 0.000_5
"""How long the broker's event loop waits for the interpreter's lock while a service computes."""
_log = logging.getLogger(__name__)


class ServiceThread:
    """Serves from `start` to `close`, both called in the broker's event loop.

    `serve` runs in the thread until its event is set. It imports its package there: that takes
    longer than the start of a broker, and connections wait in the kernel's backlog meanwhile.

    Python code of the thread delays the broker's event loop, which needs the interpreter's lock
    again after each call to the kernel. So the lock changes hands sooner than Python's 5 ms.
    """

    def __init__(
        self,
        title: str,
        sockets: Sequence[KernelListener],
        serve: Callable[[asyncio.Event], Awaitable[None]],
        stop_seconds_max: float,
    ) -> None:
        self._title = title
        self._sockets = sockets
        self._serve = serve
        self._stop_seconds_max = stop_seconds_max
        self._lock = threading.Lock()
        self._is_closed = False
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        name = f"ottla {title}".replace(" ", "-")
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread.start()

    async def close(self) -> None:
        """Stop serving. Waits for the thread, with a timeout."""
        with self._lock:
            self._is_closed = True
            if self._stop is not None:
                loop, stopping = self._stop
                loop.call_soon_threadsafe(stopping.set)
        if self._thread.ident is None:
            self._close_sockets()
        elif self._thread.is_alive():
            # Not in this event loop: the last work of the service needs it.
            await asyncio.to_thread(self._thread.join, self._stop_seconds_max)

    def _run(self) -> None:
        try:
            event_loop.run(self._serve_until_closed())
        except Exception:  # noqa: BLE001 - a broker without the service is still a broker
            _log.exception("The %s has failed", self._title)
        finally:
            self._close_sockets()

    async def _serve_until_closed(self) -> None:
        stopping = asyncio.Event()
        with self._lock:
            if self._is_closed:
                return
            self._stop = asyncio.get_running_loop(), stopping
        try:
            await self._serve(stopping)
        finally:
            with self._lock:
                self._stop = None

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()
