"""The registry on the thread of its server: the log, the state, the rules and HTTP together.

This module imports all of them, and is imported when a broker is ready.
"""

import asyncio
import logging
from collections.abc import Sequence
from socket import socket
from typing import Final, Protocol

import ottla
from ottla.broker.startup.broker_service import BrokerAccess
from ottla.concurrency.first_of import first_of
from ottla.model.api_error import ApiError
from ottla.registry.broker_schemas_log import LOST, BrokerSchemasLog
from ottla.registry.forwarding import Forwarder
from ottla.registry.http_application import Cluster, RegistryApplication
from ottla.registry.http_server import Handler, HttpServer
from ottla.registry.registry import Forward, Registry, RunHeavy
from ottla.registry.registry_machine import RegistryMachine

DRAIN_SECONDS_MAX: Final = 3.0
"""How long a stop waits for requests in progress; less than `server.STOP_SECONDS_MAX`."""

_log = logging.getLogger(__name__)


class Frontend(Protocol):
    """A server for the registry's requests."""

    async def use(self, handler: Handler) -> None:
        """Pass requests to this handler from now on; the first call starts the server."""
        ...

    async def drain(self, seconds_max: float) -> None:
        """Wait for the responses of the requests in progress."""
        ...


class HttpFrontend:
    """HTTP on sockets of the kernel. Takes ownership of the sockets."""

    def __init__(self, sockets: Sequence[socket]) -> None:
        self._sockets = sockets
        self._server: HttpServer | None = None

    async def use(self, handler: Handler) -> None:
        """Serve with this handler."""
        if self._server is None:
            self._server = HttpServer(handler)
            await self._server.start(self._sockets)
            address = self._sockets[0].getsockname()[:2]
            _log.info("schema registry at http://%s:%d", *address)
        self._server.handler = handler

    async def drain(self, seconds_max: float) -> None:
        """Wait for the responses of the requests in progress."""
        if self._server is not None:
            await self._server.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection."""
        if self._server is not None:
            await self._server.stop()


async def serve(broker: BrokerAccess, sockets: Sequence[socket], stopping: asyncio.Event) -> None:
    """Serve until stopped; then close every connection. Takes ownership of the sockets."""
    frontend = HttpFrontend(sockets)
    try:
        await serve_on(frontend, broker, Forwarder(), stopping)
    finally:
        await frontend.stop()


async def serve_on(
    frontend: Frontend,
    broker: BrokerAccess,
    forward: Forward,
    stopping: asyncio.Event,
    run_heavy: RunHeavy | None = None,
) -> None:
    """Serve until stopped, with a new state whenever `_schemas` has begun anew."""
    names = Cluster(broker.peers.image().cluster_id, ottla.__version__)
    while not stopping.is_set():
        log = BrokerSchemasLog(broker)
        await log.open()
        registry = Registry(log, RegistryMachine(), forward, run_heavy)
        await frontend.use(RegistryApplication(registry, names).handle)
        try:
            await _run_until(registry, stopping, frontend)
        finally:
            await log.close()


async def _run_until(registry: Registry, stopping: asyncio.Event, frontend: Frontend) -> None:
    """Replay until stopped; return early if the state has to be replayed from the start."""
    try:
        await first_of(registry.run(), _drained(stopping, frontend))
    except ApiError as error:
        if error.code is not LOST:
            raise
        _log.warning("The schema registry starts from the beginning of _schemas: %s", error)


async def _drained(stopping: asyncio.Event, frontend: Frontend) -> None:
    """Wait for the stop, then for the responses of writes: these need the replay to go on."""
    await stopping.wait()
    await frontend.drain(DRAIN_SECONDS_MAX)
