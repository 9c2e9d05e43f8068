"""A network between brokers that can be cut, one way or both, while clients stay connected.

Every broker advertises the port of a gate, and has its own gate to ZooKeeper; a controller of a
quorum advertises another gate. A gate forwards
bytes, and holds them while the way is cut, as a network that loses packets does: no connection is
closed and neither side is notified. Brokers are recognized by the client id of their first
request; all other connections are clients, and are never held.
"""

import asyncio
import re
import struct
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from ottla.testing.child_process import HOST
from ottla.testing.cluster import Cluster

ZOOKEEPER = 0
_CLIENT = -1
_CHUNK_BYTES = 1 << 16
_HEADER = struct.Struct(">ihhih")
_BROKER = re.compile(rb"(?:broker|replica)-(\d+)")


class Network:
    """Gates that work during the block."""

    def __init__(self) -> None:
        self._cut: set[tuple[int, int]] = set()
        self._is_changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def gate_to_broker(self, broker: int, port: int) -> int:
        """Return the port of a gate to a broker."""
        return self._do(self._open(None, broker, port))

    def gate_to_zookeeper(self, broker: int, port: int) -> int:
        """Return the port of the gate that this broker takes to ZooKeeper."""
        return self._do(self._open(broker, ZOOKEEPER, port))

    def cut(self, *ways: tuple[int, int]) -> None:
        """Hold all bytes from the first of each pair to the second, until `mend`."""
        self._do(self._change(set(ways)))

    def mend(self) -> None:
        """Deliver all held bytes, and hold no more."""
        self._do(self._change(set()))

    def _do(self, work: Coroutine[Any, Any, int]) -> int:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _change(self, cut: set[tuple[int, int]]) -> int:
        self._cut = cut
        self._is_changed.set()
        self._is_changed = asyncio.Event()
        return len(cut)

    async def _open(self, sender: int | None, receiver: int, port: int) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer, sender, receiver, port)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        sender: int | None,
        receiver: int,
        port: int,
    ) -> None:
        ends = [writer]
        try:
            first = await reader.read(_CHUNK_BYTES)
            who = sender_of(first) if sender is None else sender
            target_reader, target = await asyncio.open_connection("127.0.0.1", port)
            ends.append(target)
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._pump(reader, target, (who, receiver), first)),
                    asyncio.ensure_future(self._pump(target_reader, writer, (receiver, who))),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except OSError:
            pass  # the target is down: the sender's connection is closed, too
        finally:
            for end in ends:
                end.transport.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        way: tuple[int, int],
        chunk: bytes = b"",
    ) -> None:
        try:
            chunk = chunk or await source.read(_CHUNK_BYTES)
            while chunk:
                while way in self._cut:
                    await self._is_changed.wait()
                target.write(chunk)
                await target.drain()
                chunk = await source.read(_CHUNK_BYTES)
        except OSError:
            return

    async def _stop(self) -> int:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        return len(others)


def use_gates(cluster: Cluster, network: Network) -> None:
    """Have the brokers of a cluster that does not run yet reach each other through gates."""
    quorum = cluster.quorum
    for number, port in ({} if quorum is None else quorum.ports).items():
        quorum.advertise(number, network.gate_to_broker(number, port))
    for number, broker in cluster.brokers.items():
        address = f"{HOST}:{network.gate_to_broker(number, broker.port)}"
        if quorum is None:
            advertised = f"PLAINTEXT://{address}"
            gate = network.gate_to_zookeeper(number, cluster.zookeeper_servers[1].port)
            broker.zookeeper_connect = f"{HOST}:{gate}"
        else:
            advertised = quorum.advertised_listeners(number, address)
        broker.settings["advertised.listeners"] = advertised


def sender_of(first: bytes) -> int:
    """Return the id of the broker that sent a connection's first request, or the clients' id."""
    if len(first) < _HEADER.size:
        return _CLIENT
    size = max(0, _HEADER.unpack_from(first)[-1])
    found = _BROKER.match(first, _HEADER.size, _HEADER.size + size)
    return _CLIENT if found is None else int(found[1])
