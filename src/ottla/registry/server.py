"""The schema registry of a broker: a thread with an event loop of its own, in the broker's process.

    open            binds the port; the broker registers the address
    begin           clients can connect to the broker: the thread imports the registry and serves
    close           stops serving, before the broker leaves its cluster

A schema may take long to parse or to compare. With a loop of its own the registry delays only its
own clients by that. The imports take longer than the start of a broker, so they run on the thread
after the broker is ready; connections wait in the kernel's backlog meanwhile.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Final, Self

from ottla.broker.startup.broker_service import BrokerAccess, BrokerService, NoService
from ottla.broker.startup.service_thread import ServiceThread
from ottla.broker.transport.http_listeners import HttpServer, http_sockets
from ottla.broker.transport.listeners import port_of
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import REGISTRY_ENDPOINT, HttpListener, Listener
from ottla.runtime.network import KernelListener

SETTING: Final = "ottla.schema.registry.listener"
NEEDED: Final = ("jsonschema_rs", "msgspec", "google.protobuf")
"""The packages that the extra `schemas` installs."""
INSTALL: Final = "pip install 'ottla[schemas]'"
STOP_SECONDS_MAX: Final = 5.0
_SERVER: Final = HttpServer("schema registry", "SCHEMA_REGISTRY", SETTING)
_log = logging.getLogger(__name__)


async def open_registry(config: BrokerConfig, host_name: str) -> BrokerService:
    """Bind the port of the registry; no service without a listener, or without its packages.

    OSError if a configured port cannot be bound. If the default port cannot be bound, there is a
    warning and no registry; in a cluster there is a warning, and the registry has a free port.
    """
    listener = config.ottla_schema_registry_listener
    if listener is None:
        return NoService()
    missing = missing_packages()
    if missing:
        _log.warning("No schema registry: the package %s is not installed: %s", missing[0], INSTALL)
        return NoService()
    sockets = await http_sockets(_SERVER, listener, is_asked_for=SETTING in config.given)
    if not sockets and config.is_in_cluster:
        # This broker may come to lead _schemas-0, and only its own registry can write then.
        sockets = await http_sockets(_SERVER, replace(listener, port=0), is_asked_for=True)
    if not sockets:
        return NoService()
    return RegistryServer(sockets, advertised_endpoint(config, host_name, port_of(sockets[0])))


def missing_packages() -> list[str]:
    """Return the packages that the registry needs and that are not installed."""
    return [name for name in NEEDED if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # of the parent package
        return False


def advertised_endpoint(config: BrokerConfig, host_name: str, port: int) -> Listener | None:
    """Return the address for other brokers; None if they cannot reach it.

    A registry on loopback is reachable if the brokers reach each other by loopback, too.
    """
    listener = config.ottla_schema_registry_listener
    assert listener is not None
    host = listener.host
    if Listener("", host, port).is_on_every_address:
        host = host_name
    if _is_loopback(host) and not _is_loopback(_host_for_brokers(config, host_name)):
        if config.is_in_cluster:
            _log.warning(
                "The schema registry listens on %s: registries of other machines cannot forward"
                " requests to it (%s names another place)",
                listener,
                SETTING,
            )
        return None
    return Listener(REGISTRY_ENDPOINT, host, port)


def _host_for_brokers(config: BrokerConfig, host_name: str) -> str:
    ports = {listener.name: listener.port for listener in config.broker_listeners}
    hosts = {one.name: one.host for one in config.to_advertise(ports, host_name)}
    return hosts[config.inter_broker_listener]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class RegistryServer:
    """Serves from `begin` to `close`. Belongs to the broker's event loop."""

    def __init__(self, sockets: Sequence[KernelListener], advertised: Listener | None) -> None:
        self.advertised = advertised
        self.port = port_of(sockets[0])
        """Where it listens."""
        self._sockets = sockets
        self._broker: BrokerAccess | None = None
        self._thread = ServiceThread("schema registry", sockets, self._serve, STOP_SECONDS_MAX)

    @classmethod
    async def on_free_port(cls) -> Self:
        """Bind a free port for a broker that already runs. ImportError names a missing package."""
        missing = missing_packages()
        if missing:
            raise ImportError(f"the schema registry needs {missing[0]}: {INSTALL}")
        free = HttpListener("127.0.0.1", 0)
        return cls(await http_sockets(_SERVER, free, is_asked_for=True), None)

    def begin(self, broker: BrokerAccess) -> None:
        """Start the thread, which imports the registry and serves."""
        self._broker = broker
        self._thread.start()

    async def close(self) -> None:
        """Stop serving. Waits for the thread, with a timeout."""
        await self._thread.close()

    async def _serve(self, stopping: asyncio.Event) -> None:
        from ottla.registry.broker_registry import serve  # noqa: PLC0415 - not before it serves

        assert self._broker is not None
        await serve(self._broker, self._sockets, stopping)
