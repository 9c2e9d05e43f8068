"""A broker in a thread of this process, on a port of its own, gone when the block ends."""

import asyncio
import threading
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self

from ottla.broker.assembly import Broker as RunningBroker
from ottla.broker.assembly import Environment
from ottla.model.broker_config import BrokerConfig
from ottla.runtime import cold_reads
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness

LISTENER: Final = "PLAINTEXT"


class Broker:
    """A broker that takes requests as long as the `with` block lasts.

    Its data is in `data_dir`, or in a folder that goes with it. Settings have Kafka's names.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: str | None = None,
        port: int = 0,
    ) -> None:
        self._folder = TemporaryDirectory(prefix="ottla-") if data_dir is None else None
        self._settings = {
            "listeners": f"{LISTENER}://127.0.0.1:{port}",
            "log.dirs": data_dir or (self._folder.name if self._folder else ""),
            **(settings or {}),
        }
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self.port = port
        """The port that clients connect to."""

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find the broker."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        if self._folder is not None:
            self._folder.cleanup()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            self._failure = error
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        config = BrokerConfig.parse(self._settings)
        environment = Environment(
            KernelDisk(), SystemClock(), SystemRandomness(), cold_reads, "localhost"
        )
        broker = await RunningBroker.start(config, environment)
        self.port = broker.endpoints.advertised(LISTENER).port
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._is_ready.set()
        await self._stopping.wait()
        await broker.stop()
