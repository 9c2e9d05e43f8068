"""A broker in a thread of this process, on its own port, stopped at the end of the block."""

import asyncio
import os
import shutil
import threading
import weakref
from collections.abc import Mapping
from tempfile import mkdtemp
from types import TracebackType
from typing import Final, Self

from ottla.broker.startup.assembly import Broker as RunningBroker
from ottla.broker.startup.system_environment import this_machine
from ottla.model.settings.broker_config import BrokerConfig
from ottla.registry.server import RegistryServer
from ottla.rest.server import BrokerServices, RestServer, open_services
from ottla.runtime import event_loop

LISTENER: Final = "PLAINTEXT"
HOST: Final = "127.0.0.1"
DEFAULTS: Final = {
    "ottla.admin.listener": "",
    "ottla.schema.registry.listener": "",
    "group.initial.rebalance.delay.ms": "0",
}
"""Differences from other brokers: no second port, and no initial rebalance delay."""


class Broker:
    """A broker that serves during the `with` block, or from `start` to `stop`.

    Its data is in `data_dir`, or in a temporary directory. Settings have Kafka's names. There
    may be any number of brokers at once. With `rest` it has a REST proxy. Each may be used from any
    thread, and from processes forked while it runs, but only the process that started it can stop
    it.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        rest: bool = False,
    ) -> None:
        self.port = port
        """The port for clients, once the broker is started."""
        self.admin_port: int | None = None
        """The port of metrics and health, if `ottla.admin.listener` was set."""
        self._registry_port: int | None = 0 if rest else None
        self._rest_port: int | None = 0 if rest else None
        self._given = dict(settings or {})
        self._process_id = os.getpid()
        self._remove_folder: weakref.finalize[[str, int], Broker] | None = None
        if data_dir is None:
            data_dir = mkdtemp(prefix="ottla-")
            self._remove_folder = weakref.finalize(self, _remove, data_dir, self._process_id)
        self.data_dir = os.fspath(data_dir)
        self._run: _Run | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def admin_url(self) -> str:
        """The URL of metrics and health; needs `ottla.admin.listener`, such as 127.0.0.1:0."""
        assert self.admin_port is not None, "ottla.admin.listener is not set"
        return f"http://{HOST}:{self.admin_port}"

    @property
    def registry_url(self) -> str:
        """The URL of the schema registry, which starts at the first access, on a free port.

        It keeps its port over restarts. `ottla.schema.registry.listener` sets the port.
        ImportError names a package that is missing.
        """
        assert self._run is not None, "it is not started"
        self._registry_port = self._run.registry_port()
        return f"http://{HOST}:{self._registry_port}"

    @property
    def rest_url(self) -> str:
        """The URL of the REST proxy of `Broker(rest=True)`. It keeps its port over restarts."""
        assert self._run is not None, "it is not started"
        self._rest_port = self._run.rest_port()
        assert self._rest_port is not None, "there is no REST proxy: create Broker(rest=True)"
        return f"http://{HOST}:{self._rest_port}"

    def start(self) -> None:
        """Start, and return when clients can connect. Raises the error of a failed start."""
        assert self._run is None, "it is started already"
        run = _Run(self._settings())
        run.start()
        self._run, self.port, self.admin_port = run, run.port, run.admin_port

    def stop(self) -> None:
        """Stop and keep the data; no effect if the broker is not started."""
        if self._run is not None and os.getpid() == self._process_id:
            self._run.stop()
            self._run = None

    def restart(self) -> None:
        """Stop and start again, on the same port and with the same data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if self._remove_folder is not None:
            self._remove_folder()

    def _settings(self) -> dict[str, str]:
        listeners = f"{LISTENER}://{HOST}:{self.port}"
        settings = {**DEFAULTS, "listeners": listeners, "log.dirs": self.data_dir}
        if self._registry_port is not None:
            settings["ottla.schema.registry.listener"] = f"{HOST}:{self._registry_port}"
        if self._rest_port is not None:
            settings["ottla.rest.listener"] = f"{HOST}:{self._rest_port}"
        return {**settings, **self._given}


class _Run:
    """One run of a broker, in its thread."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.port = 0
        self.admin_port: int | None = None
        self._settings = settings
        self._thread = threading.Thread(target=self._main, name="ottla-broker", daemon=True)
        self._is_begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._broker: RunningBroker | None = None
        self._registry: RegistryServer | None = None
        self._registry_lock = threading.Lock()

    def start(self) -> None:
        self._thread.start()
        self._is_begun.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def registry_port(self) -> int:
        """Return the port of the schema registry; start it if it does not run."""
        assert self._loop is not None
        with self._registry_lock:
            if self._registry is None:
                opening = asyncio.run_coroutine_threadsafe(self._open_registry(), self._loop)
                self._registry = opening.result()
            return self._registry.port

    def rest_port(self) -> int | None:
        """Return the port of the REST proxy, None without one."""
        assert self._broker is not None
        service = self._broker.service
        if isinstance(service, BrokerServices) and isinstance(service.rest, RestServer):
            return service.rest.port
        return None

    async def _open_registry(self) -> RegistryServer:
        assert self._broker is not None
        service = self._broker.service
        if isinstance(service, BrokerServices) and isinstance(service.registry, RegistryServer):
            return service.registry
        registry = await RegistryServer.on_free_port()
        registry.begin(self._broker.access())
        return registry

    def stop(self) -> None:
        assert self._loop is not None
        assert self._stopping is not None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _main(self) -> None:
        try:
            event_loop.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - passed to the waiting thread
            self._failure = error
        finally:
            self._is_begun.set()

    async def _serve(self) -> None:
        config = BrokerConfig.parse(self._settings)
        self._broker = broker = await RunningBroker.start(config, this_machine(), open_services)
        self.port = broker.endpoints.advertised(config.broker_listeners[0].name).port
        self.admin_port = broker.operations.admin_port
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._is_begun.set()
        try:
            await broker.serve_until(self._stopping)
        finally:
            if self._registry is not None:
                await self._registry.close()
            await broker.stop()


def _remove(folder: str, process_id: int) -> None:
    # A forked process has a copy of the broker, but does not own its directory.
    if os.getpid() == process_id:
        shutil.rmtree(folder, ignore_errors=True)
