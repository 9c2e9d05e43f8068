"""The REST proxy of a broker, and the services that `ottla start` opens with a broker.

The proxy has a thread with an event loop of its own, in the broker's process, and is a client of
the broker. It is off by default. It needs the same packages as the schema registry.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ottla.broker.startup.broker_service import BrokerAccess, BrokerService, NoService
from ottla.broker.startup.service_thread import ServiceThread
from ottla.broker.transport.http_listeners import HttpServer, http_sockets
from ottla.broker.transport.listeners import port_of
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import Listener
from ottla.registry.server import INSTALL, RegistryServer, missing_packages, open_registry
from ottla.runtime.network import KernelListener

SETTING: Final = "ottla.rest.listener"
STOP_SECONDS_MAX: Final = 10.0
_SERVER: Final = HttpServer("REST proxy", "REST", SETTING)
_log = logging.getLogger(__name__)


class BrokerServices:
    """The schema registry and the REST proxy of one broker."""

    def __init__(self, registry: BrokerService, rest: BrokerService) -> None:
        self.registry = registry
        self.rest = rest

    @property
    def advertised(self) -> Listener | None:
        """The endpoint of the registry: only registries call each other."""
        return self.registry.advertised

    def begin(self, broker: BrokerAccess) -> None:
        """Serve."""
        self.registry.begin(broker)
        self.rest.begin(broker)

    async def close(self) -> None:
        """Stop serving; the proxy first, because it is a client of the registry."""
        await self.rest.close()
        await self.registry.close()


async def open_services(config: BrokerConfig, host_name: str) -> BrokerServices:
    """Bind the ports of the registry and the proxy; OSError if a configured port is in use."""
    registry = await open_registry(config, host_name)
    try:
        return BrokerServices(registry, await open_rest(config, registry))
    except BaseException:
        await registry.close()
        raise


async def open_rest(config: BrokerConfig, registry: BrokerService) -> BrokerService:
    """Bind the port of the proxy; no service without a listener, or without its packages."""
    listener = config.ottla_rest_listener
    if listener is None:
        return NoService()
    missing = missing_packages()
    if missing:
        _log.warning("No REST proxy: the package %s is not installed: %s", missing[0], INSTALL)
        return NoService()
    registry_url = None
    if isinstance(registry, RegistryServer):
        registry_url = f"http://{_local_host(config)}:{registry.port}"
    sockets = await http_sockets(_SERVER, listener, is_asked_for=True)
    return RestServer(sockets, registry_url)


def _local_host(config: BrokerConfig) -> str:
    listener = config.ottla_schema_registry_listener
    assert listener is not None, "it has a registry"
    if Listener("", listener.host, listener.port).is_on_every_address:
        return "127.0.0.1"
    return f"[{listener.host}]" if ":" in listener.host else listener.host


class RestServer:
    """Serves from `begin` to `close`. Belongs to the broker's event loop."""

    advertised: Listener | None = None

    def __init__(self, sockets: Sequence[KernelListener], registry_url: str | None) -> None:
        self.port = port_of(sockets[0])
        """Where it listens."""
        self._sockets = sockets
        self._registry_url = registry_url
        self._broker: BrokerAccess | None = None
        self._bootstrap_servers = ""
        self._thread = ServiceThread("REST proxy", sockets, self._serve, STOP_SECONDS_MAX)

    def begin(self, broker: BrokerAccess) -> None:
        """Start the thread, which imports the proxy and serves."""
        self._broker = broker
        endpoints = broker.peers.image().brokers[broker.config.node_id].endpoints
        name = broker.config.broker_listeners[0].name
        endpoint = next(one for one in endpoints if one.name == name)
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        self._bootstrap_servers = f"{host}:{endpoint.port}"
        self._thread.start()

    async def close(self) -> None:
        """Stop serving. Waits for the thread, with a timeout."""
        await self._thread.close()

    async def _serve(self, stopping: asyncio.Event) -> None:
        from ottla.rest.proxy import ProxySettings, serve  # noqa: PLC0415 - not before it serves

        assert self._broker is not None
        config = self._broker.config
        settings = ProxySettings(
            self._bootstrap_servers,
            self._registry_url,
            config.node_id,
            config.auto_create_topics_enable,
        )
        await serve(settings, self._sockets, stopping)
