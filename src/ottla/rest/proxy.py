"""The REST proxy on the thread of its server: the clients, the operations and HTTP together.

This module imports all of them, and is imported when a broker is ready.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from socket import socket
from typing import Any, Final

from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import read_client_settings
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.schemas.registry_client import AsyncRegistryClient
from ottla.environment.clock import Clock
from ottla.registry.http_server import HttpServer
from ottla.rest.call import Authorizer, Services
from ottla.rest.consumer_instances import ConsumerInstances
from ottla.rest.embedded_formats import Formats
from ottla.rest.http_application import BODY_BYTES_MAX, RestApplication, streams_body
from ottla.rest.producing import Producing
from ottla.rest.reading import Readers
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness

CALL_MS_MAX: Final = 30_000
"""How long a call to the brokers may take."""
LATEST_MS: Final = 1_000
"""How long the latest version of a subject is cached."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The addresses and settings that a broker gives to its proxy."""

    bootstrap_servers: str
    registry_url: str | None
    broker_id: int = 0
    creates_topics: bool = True


async def serve(
    settings: ProxySettings,
    sockets: Sequence[socket],
    stopping: asyncio.Event,
    *,
    clock: Clock | None = None,
    authorizer: Authorizer | None = None,
) -> None:
    """Serve until stopped; then close every connection. Takes ownership of the sockets."""
    async with AsyncExitStack() as opened:
        services = await _open_services(settings, opened, clock or SystemClock())
        sweeping = asyncio.ensure_future(services.instances.sweep())
        opened.callback(sweeping.cancel)
        server = HttpServer(
            RestApplication(services, authorizer).handle,
            body_bytes_max=BODY_BYTES_MAX,
            streams_body=streams_body,
        )
        await server.start(sockets)
        opened.push_async_callback(server.stop)
        _log.info("REST proxy at http://%s:%d", *sockets[0].getsockname()[:2])
        await stopping.wait()


async def _open_services(settings: ProxySettings, opened: AsyncExitStack, clock: Clock) -> Services:
    client: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": f"ottla-rest-{settings.broker_id}",
        "default.api.timeout.ms": CALL_MS_MAX,
    }
    randomness = SystemRandomness()
    view = ClusterView(read_client_settings(client, {}), randomness=randomness)
    opened.callback(view.close)
    producer_settings = {
        **{name: value for name, value in client.items() if name != "default.api.timeout.ms"},
        "max.block.ms": CALL_MS_MAX,
        "delivery.timeout.ms": CALL_MS_MAX,
        "request.timeout.ms": CALL_MS_MAX // 2,
        "linger.ms": 0,
    }
    producer = await opened.enter_async_context(AsyncProducer(producer_settings))
    registry = None
    if settings.registry_url is not None:
        registry = AsyncRegistryClient(
            {"schema.registry.url": settings.registry_url, "latest.cache.ttl.ms": LATEST_MS}
        )
        opened.push_async_callback(registry.close)
    instances = ConsumerInstances(client, clock, randomness)
    opened.push_async_callback(instances.close)
    readers = Readers(client)
    opened.push_async_callback(readers.close)
    return Services(
        view,
        AsyncAdmin.over(view),
        Producing(producer, view, creates_topics=settings.creates_topics),
        readers,
        instances,
        Formats(registry),
        clock,
        settings.broker_id,
        settings.creates_topics,
    )
