"""A proxy between Spark and a broker that triggers an action at a given request or response.

So a process can be killed with `kill -9` exactly before the broker handles its request, or after
the broker has handled it and before the response arrives. The killed program needs no hooks.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ottla.testing import Broker
from ottla.wire.api_key import ApiKey

DECISION = b".decisions"
"""Occurs in each request of the transaction in which a decision is written."""
_FRAME = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")


@dataclass
class Wire:
    """A trigger: the n-th request of a kind, or its response."""

    api_key: ApiKey
    act: Callable[[], object]
    is_after: bool = False
    is_decision: bool | None = None
    count: int = 1
    is_tripped: bool = False
    seen: int = field(default=0)

    def __str__(self) -> str:
        words = [self.api_key.name, str(self.count)]
        words += ["of decisions"] * bool(self.is_decision) + ["after"] * self.is_after
        return " ".join(words)

    def trips(self, api_key: int, frame: bytes) -> bool:
        if self.is_tripped or api_key != self.api_key:
            return False
        if self.is_decision is not None and (DECISION in frame) != self.is_decision:
            return False
        self.seen += 1
        return self.seen == self.count


class Tripwire:
    """A broker that clients reach only through this proxy, during the block."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._wires: list[Wire] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    def stretch(self, wire: Wire) -> None:
        """Set the only trigger; earlier triggers are dropped."""
        self._wires = [wire]

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self._port = self._server.sockets[0].getsockname()[1]
        address = f"PLAINTEXT://127.0.0.1:{self._port}"
        self._broker_port = free_port()
        own = {**self._settings, "advertised.listeners": address}
        self._broker = Broker(own, port=self._broker_port)
        self._broker.start()
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
        self._broker.stop()

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._broker_port)
        tripping: dict[int, Wire] = {}
        pumps = [
            asyncio.ensure_future(self._pump_requests(reader, there[1], tripping)),
            asyncio.ensure_future(self._pump_answers(there[0], writer, tripping)),
        ]
        try:
            with suppress(asyncio.CancelledError):  # this is the end: asyncio would complain
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, there[1]):
                end.transport.abort()

    async def _pump_requests(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        tripping: dict[int, Wire],
    ) -> None:
        while True:
            frame = await _read_frame(source)
            api_key, _, correlation_id = _REQUEST.unpack_from(frame, 4)
            for wire in self._wires:
                if not wire.trips(api_key, frame):
                    continue
                if wire.is_after:
                    tripping[correlation_id] = wire
                else:
                    await _trip(wire)
                    return
            target.write(frame)
            await target.drain()

    async def _pump_answers(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        tripping: dict[int, Wire],
    ) -> None:
        while True:
            frame = await _read_frame(source)
            (correlation_id,) = _FRAME.unpack_from(frame, 4)
            if correlation_id in tripping:
                await _trip(tripping[correlation_id])
                return
            target.write(frame)
            await target.drain()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


async def _trip(wire: Wire) -> None:
    wire.is_tripped = True
    await asyncio.to_thread(wire.act)


async def _read_frame(source: asyncio.StreamReader) -> bytes:
    size = await source.readexactly(4)
    return size + await source.readexactly(*_FRAME.unpack(size))
