"""The server: listens, lets connections in as the limits allow, and watches over their time."""

import asyncio
import logging
from collections import Counter
from concurrent.futures import Executor
from functools import partial
from typing import Final

from ottla.broker.dispatch import Peer
from ottla.broker.requests.request_context import Introduction
from ottla.broker.transport.connection import Connection
from ottla.broker.transport.connection_limits import CloseReason, ConnectionLimits, RequestMemory
from ottla.broker.transport.listeners import listening_sockets, port_of
from ottla.broker.transport.response_writer import ColdReads
from ottla.broker.transport.shared import Dispatching, InvalidRequests, Shared
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.clock import Clock
from ottla.environment.network import ListeningSocket, Network, StreamSocket
from ottla.model.settings.listeners import Listener
from ottla.rpc.buffer_pool import BufferPool
from ottla.rpc.frame_reader import new_scratch

TICK_SECONDS: Final = 1.0
PAUSE_MS_MAX: Final = 3000
"""The longest time between two ticks that counts."""
ACCEPTED_PER_TURN_MAX: Final = 64
REST_LOG_MS: Final = 60_000
_MAPPED_IPV4: Final = "::ffff:"
_log = logging.getLogger(__name__)


class Server:
    """Serves clients on any number of listeners: `bind` each, then `start`, in the end `stop`.

    Must be made where the event loop runs. Cold parts of files are read on `threads`, which have
    to outlive the server.
    """

    def __init__(
        self,
        dispatch: Dispatching,
        slices: TimeSlices,
        limits: ConnectionLimits,
        clock: Clock,
        cold_reads: ColdReads,
        threads: Executor,
        network: Network,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._clock = clock
        self._shared = Shared(
            self._loop,
            dispatch,
            slices,
            limits,
            RequestMemory(limits.request_bytes_max),
            new_scratch(),
            BufferPool(),
            cold_reads,
            threads,
            network,
            InvalidRequests(clock),
        )
        self._listening: dict[ListeningSocket, str] = {}
        self._is_accepting = self._is_exhausted = False
        self._rested_ms: int | None = None
        # A dict in place of a set, for its order.
        self._connections: dict[Connection, None] = {}
        self._count_by_address: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._ticked_ms = self._peers_ms = 0
        self._emptied: asyncio.Future[None] | None = None
        self.accepted_count = 0
        """How many connections were let in."""
        self.closed_by_reason: Counter[CloseReason] = Counter()
        """How many connections ended, or were not let in, and why."""

    @property
    def connection_count(self) -> int:
        """The number of connections, including closed ones with unfinished requests."""
        return len(self._connections)

    @property
    def requests_bytes(self) -> int:
        """Return the counted memory of the requests of all connections."""
        memory = self._shared.memory
        return memory.arriving_bytes + memory.answering_bytes

    def connection_listeners(self) -> list[str]:
        """Return by which listener each connection came."""
        return [connection.peer.listener for connection in self._connections]

    def change_limits(self, limits: ConnectionLimits) -> None:
        """Apply other limits to new connections; existing ones stay."""
        self._limits = limits

    async def bind(self, listener: Listener) -> int:
        """Take the listener's addresses and return its port; clients wait until `start`.

        OSError if an address cannot be had.
        """
        assert self._timer is None, "bound before the server starts"
        sockets = await listening_sockets(listener, self._shared.network)
        if self._limits.receive_buffer_bytes >= 0:
            for opened in sockets:
                self._shared.network.set_receive_buffer(opened, self._limits.receive_buffer_bytes)
        self._listening.update(dict.fromkeys(sockets, listener.name))
        return port_of(sockets[0])

    def start(self) -> None:
        """Accept client connections."""
        self._ticked_ms = self._clock.monotonic_ms()
        self._accept()
        self._timer = self._loop.call_later(TICK_SECONDS, self._on_timer)

    async def stop(self) -> None:
        """Accept no more connections, complete requests in flight, return when all are closed.

        Requests that take longer than `farewell_ms_max` are cancelled.
        """
        self._stop_accepting()
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        for connection in list(self._connections):
            connection.finish(CloseReason.STOPPED)
        if self._connections:
            self._emptied = self._emptied or self._loop.create_future()
            await asyncio.shield(self._emptied)
        if self._timer is not None:
            self._timer.cancel()

    def tick(self, now_ms: int) -> None:
        """Check every timeout; called once a second, with a monotonic time."""
        answers_bytes = sum(connection.answers_bytes for connection in self._connections)
        is_crowded = answers_bytes > self._limits.answers_bytes_max
        for connection in list(self._connections):
            connection.tick(now_ms, is_crowded=is_crowded)
        if self._is_exhausted:
            self._is_exhausted = False
            self._accept()

    def _on_timer(self) -> None:
        """Tick by a clock on which a pause of this process is not time that peers have taken."""
        self._timer = self._loop.call_later(TICK_SECONDS, self._on_timer)
        now_ms = self._clock.monotonic_ms()
        self._peers_ms += min(now_ms - self._ticked_ms, PAUSE_MS_MAX)
        self._ticked_ms = now_ms
        self.tick(self._peers_ms)

    def _accept(self) -> None:
        if not self._is_accepting:
            self._is_accepting = True
            for listening, name in self._listening.items():
                self._loop.add_reader(listening, partial(self._on_acceptable, listening, name))

    def _stop_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            for listening in self._listening:
                self._loop.remove_reader(listening)

    def _on_acceptable(self, listening: ListeningSocket, name: str) -> None:
        for _ in range(ACCEPTED_PER_TURN_MAX):
            if len(self._connections) >= self._limits.connections_at_once_max:
                self._rest("too many are open")
                return
            try:
                accepted, address = listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:  # the client has disconnected again
                continue
            except OSError as error:
                # No descriptors, no memory: an immediate retry would only burn the processor.
                self._rest(error)
                return
            host = address[0].removeprefix(_MAPPED_IPV4)
            self._admit(accepted, Peer(host, name, Introduction(address[1])))

    def _rest(self, why: object) -> None:
        """Accept nothing until the next tick; say so once a minute at most."""
        self._is_exhausted = True
        self._stop_accepting()
        now_ms = self._clock.monotonic_ms()
        if self._rested_ms is None or now_ms - self._rested_ms >= REST_LOG_MS:
            self._rested_ms = now_ms
            _log.warning("New connections have to wait: %s", why)

    def _admit(self, accepted: StreamSocket, peer: Peer) -> None:
        reason = self._reason_to_refuse(peer)
        if reason is not None:
            self.closed_by_reason[reason] += 1
            _log.debug("%s is not let in: %s", peer, reason)
            accepted.close()
            return
        if self._limits.send_buffer_bytes >= 0:
            self._shared.network.set_send_buffer(accepted, self._limits.send_buffer_bytes)
        connection = Connection(accepted, peer, self._shared, self._on_closed)
        self._connections[connection] = None
        self.accepted_count += 1
        self._count_by_address[peer.address] += 1
        connection.open()

    def _reason_to_refuse(self, peer: Peer) -> CloseReason | None:
        if len(self._connections) >= self._limits.connections_max:
            return CloseReason.TOO_MANY_CONNECTIONS
        if self._count_by_address[peer.address] >= self._limits.connections_per_address_max:
            return CloseReason.TOO_MANY_FROM_ADDRESS
        return None

    def _on_closed(self, connection: Connection, reason: CloseReason) -> None:
        del self._connections[connection]
        self.closed_by_reason[reason] += 1
        address = connection.peer.address
        self._count_by_address[address] -= 1
        if not self._count_by_address[address]:
            del self._count_by_address[address]
        if self._emptied is not None and not self._emptied.done() and not self._connections:
            self._emptied.set_result(None)
