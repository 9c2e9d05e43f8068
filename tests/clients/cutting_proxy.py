"""A proxy between clients and a broker that loses responses: the broker has done the work, and
the client cannot know.

Every n-th response to Produce, or to another API, is dropped and its connection is closed. A client
that sends the records again sends records that are already in the log.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Final, Self

from ottla.testing import Broker
from ottla.wire.api_key import ApiKey

NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

_FRAME = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")


@contextmanager
def broker_behind(
    proxy: "CuttingProxy", settings: Mapping[str, str] = NO_SETTINGS
) -> Iterator[str]:
    """Run a broker that names the proxy as its address, and give that address."""
    with proxy:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            proxy.target_port = probe.getsockname()[1]
        servers = f"127.0.0.1:{proxy.port}"
        advertised = {"advertised.listeners": f"PLAINTEXT://{servers}"}
        with Broker({**settings, **advertised}, port=proxy.target_port):
            yield servers


class CuttingProxy:
    """Listens until the block ends. Set `target_port` before the first client connects."""

    def __init__(self, *, every: int, api_key: ApiKey = ApiKey.PRODUCE) -> None:
        self.target_port = 0
        self.port = 0
        self.cuts = 0
        self._every = every
        self._api_key = api_key
        self._answers = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        asked: set[int] = set()
        pumps = [
            asyncio.ensure_future(self._pump_requests(reader, broker_writer, asked)),
            asyncio.ensure_future(self._pump_answers(broker_reader, writer, asked)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, broker_writer):
                end.transport.abort()

    async def _pump_requests(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: set[int]
    ) -> None:
        while True:
            frame = await _read_frame(source)
            api_key, _, correlation_id = _REQUEST.unpack_from(frame, 4)
            if api_key == self._api_key:
                asked.add(correlation_id)
            target.write(frame)
            await target.drain()

    async def _pump_answers(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: set[int]
    ) -> None:
        while True:
            frame = await _read_frame(source)
            (correlation_id,) = _FRAME.unpack_from(frame, 4)
            if correlation_id in asked and self.is_to_be_lost():
                return
            target.write(frame)
            await target.drain()

    def is_to_be_lost(self) -> bool:
        """Return whether it is time to cut, and count."""
        self._answers += 1
        is_lost = self._answers % self._every == 0
        self.cuts += is_lost
        return is_lost


async def _read_frame(source: asyncio.StreamReader) -> bytes:
    size = await source.readexactly(4)
    return size + await source.readexactly(*_FRAME.unpack(size))
