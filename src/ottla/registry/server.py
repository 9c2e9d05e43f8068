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
import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Final, Self

from ottla.broker.startup.broker_service import BrokerAccess, BrokerService, NoService
from ottla.broker.transport.http_listeners import HttpServer, http_sockets
from ottla.broker.transport.listeners import port_of
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import REGISTRY_ENDPOINT, HttpListener, Listener
from ottla.runtime import event_loop
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
    if not sockets and config.zookeeper_connect:
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
        if config.zookeeper_connect:
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
        self._lock = threading.Lock()
        self._is_closed = False
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-registry", daemon=True)

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
        with self._lock:
            self._is_closed = True
            if self._stop is not None:
                loop, stopping = self._stop
                loop.call_soon_threadsafe(stopping.set)
        if self._thread.ident is None:
            self._close_sockets()
        elif self._thread.is_alive():
            # Not here: an append in progress needs this event loop.
            await asyncio.to_thread(self._thread.join, STOP_SECONDS_MAX)

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except Exception:  # noqa: BLE001 - a broker without its registry is still a broker
            _log.exception("The schema registry has failed")
        finally:
            self._close_sockets()

    async def _serve(self) -> None:
        # Here and now, because it takes longer than all the rest of a start.
        from ottla.registry.broker_registry import serve  # noqa: PLC0415

        assert self._broker is not None
        stopping = asyncio.Event()
        with self._lock:
            if self._is_closed:
                return
            self._stop = asyncio.get_running_loop(), stopping
        try:
            await serve(self._broker, self._sockets, stopping)
        finally:
            with self._lock:
                self._stop = None

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()
