"""The admin listener: a thread with an event loop of its own.

It is separate from the broker's loop, because it has to answer while that loop is stuck, or busy
opening logs. The port is bound at once, so that a wrong port is reported before anything else.
Connections wait until the pages are imported: after clients have been let in, or when the start
takes so long that an operator may ask about it.
"""

import asyncio
import logging
import threading
from typing import Final, Self

from ottla.broker.admin.health import Health
from ottla.broker.metrics.snapshot import Sources
from ottla.broker.transport.http_listeners import HttpServer, http_sockets
from ottla.broker.transport.listeners import port_of
from ottla.environment.clock import Clock
from ottla.model.settings.listeners import HttpListener
from ottla.runtime.network import KernelListener

LONG_START_SECONDS: Final = 0.5
STOP_SECONDS_MAX: Final = 5.0
_LISTENER: Final = HttpServer("metrics and health by HTTP", "ADMIN", "ottla.admin.listener")
_log = logging.getLogger(__name__)


class AdminServer:
    """Serves from `open` to `close`; metrics from `serve_metrics` on."""

    def __init__(self, health: Health, sockets: list[KernelListener]) -> None:
        self.health = health
        self.port = port_of(sockets[0]) if sockets else None
        """Where it listens, if it does."""
        self._sockets = sockets
        self._sources: Sources | None = None
        self._broker_loop = asyncio.get_running_loop()
        self._begin = threading.Event()
        self._lock = threading.Lock()
        self._is_closed = False
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-admin", daemon=True)

    @classmethod
    async def open(cls, listener: HttpListener | None, clock: Clock, *, is_asked_for: bool) -> Self:
        """Bind the port. OSError if a configured port is taken; for the default port, a warning.

        Without a listener there is no thread either, and updates are ignored.
        """
        admin = cls(
            Health(clock), await http_sockets(_LISTENER, listener, is_asked_for=is_asked_for)
        )
        if admin._sockets:
            admin._thread.start()
        return admin

    def begin(self) -> None:
        """Serve the pages now; by itself that happens only when a start takes long."""
        self._begin.set()

    def serve_metrics(self, sources: Sources) -> None:
        """Answer scrapes from now on."""
        self._sources = sources
        self.begin()

    async def close(self) -> None:
        """Stop serving. Waits for the thread, with a timeout."""
        if not self._thread.is_alive():
            return
        with self._lock:
            self._is_closed = True
            if self._stop is not None:
                loop, stopping = self._stop
                loop.call_soon_threadsafe(stopping.set)
        self._begin.set()
        # Not here: a scrape in progress needs this event loop.
        await asyncio.to_thread(self._thread.join, STOP_SECONDS_MAX)

    def _run(self) -> None:
        self._begin.wait(LONG_START_SECONDS)
        try:
            if not self._is_closed:
                asyncio.run(self._serve())
        except Exception:  # noqa: BLE001 - a broker without its pages is still a broker
            _log.exception("The admin listener has failed")
        finally:
            for sock in self._sockets:
                sock.close()

    async def _serve(self) -> None:
        # Here and now, because it takes longer than all the rest of a start.
        from ottla.broker.admin.application import Pages, serve  # noqa: PLC0415

        stopping = asyncio.Event()
        with self._lock:
            if self._is_closed:
                return
            self._stop = asyncio.get_running_loop(), stopping
        try:
            pages = Pages(self.health, lambda: self._sources, self._broker_loop)
            await serve(pages.application(), self._sockets, stopping)
        finally:
            with self._lock:
                self._stop = None
