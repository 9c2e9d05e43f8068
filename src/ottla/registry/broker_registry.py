"""The registry on the thread of its server: the log, the state, the rules and HTTP together.

This module imports all of them, and is imported when a broker is ready.
"""

import asyncio
import logging
from collections.abc import Sequence
from socket import socket
from typing import Final

import ottla
from ottla.broker.startup.broker_service import BrokerAccess
from ottla.concurrency.first_of import first_of
from ottla.model.api_error import ApiError
from ottla.registry.broker_schemas_log import LOST, BrokerSchemasLog
from ottla.registry.forwarding import Forwarder
from ottla.registry.http_application import Cluster, RegistryApplication
from ottla.registry.http_server import HttpServer
from ottla.registry.registry import Registry
from ottla.registry.registry_machine import RegistryMachine

DRAIN_SECONDS_MAX: Final = 3.0
"""How long a stop waits for requests in progress; less than `server.STOP_SECONDS_MAX`."""

_log = logging.getLogger(__name__)


async def serve(broker: BrokerAccess, sockets: Sequence[socket], stopping: asyncio.Event) -> None:
    """Serve until stopped; then close every connection. Takes ownership of the sockets."""
    names = Cluster(broker.peers.image().cluster_id, ottla.__version__)
    server: HttpServer | None = None
    try:
        while not stopping.is_set():
            log = BrokerSchemasLog(broker)
            await log.open()
            registry = Registry(log, RegistryMachine(), Forwarder())
            handler = RegistryApplication(registry, names).handle
            if server is None:
                server = HttpServer(handler)
                await server.start(sockets)
                _log.info("schema registry at http://%s:%d", *sockets[0].getsockname()[:2])
            server.handler = handler
            try:
                await _run_until(registry, stopping, server)
            finally:
                await log.close()
    finally:
        if server is not None:
            await server.stop()


async def _run_until(registry: Registry, stopping: asyncio.Event, server: HttpServer) -> None:
    """Replay until stopped; return early if the state has to be replayed from the start."""
    try:
        await first_of(registry.run(), _drained(stopping, server))
    except ApiError as error:
        if error.code is not LOST:
            raise
        _log.warning("The schema registry starts from the beginning of _schemas: %s", error)


async def _drained(stopping: asyncio.Event, server: HttpServer) -> None:
    """Wait for the stop, then for the responses of writes: these need the replay to go on."""
    await stopping.wait()
    await server.drain(DRAIN_SECONDS_MAX)
