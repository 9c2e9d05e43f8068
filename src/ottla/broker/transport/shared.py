"""State that the connections of a server share."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from ottla.broker.dispatch import Peer
from ottla.broker.transport.connection_limits import ConnectionLimits, RequestMemory
from ottla.broker.transport.response_writer import ColdReads, Piece
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.clock import Clock
from ottla.environment.network import Network
from ottla.rpc.buffer_pool import BufferPool
from ottla.wire.protocol_error import MessageTooLargeError, ProtocolError

WARNING_EACH_MS: Final = 60_000
"""How often requests beyond a limit are logged."""
_log = logging.getLogger(__name__)

Dispatching = Callable[[Peer, memoryview], Coroutine[Any, Any, Sequence[Piece] | None]]
"""Handles a frame and returns the pieces of its response, or None for no response.

A ProtocolError means that the connection is unusable. Dispatches of one connection run
concurrently, each started after the previous has run up to its first wait. A waiting dispatch
may be cancelled, some time after its peer has gone."""


@dataclass(frozen=True, slots=True)
class Shared:
    """State that the connections of a server share."""

    loop: asyncio.AbstractEventLoop
    dispatch: Dispatching
    slices: TimeSlices
    limits: ConnectionLimits
    memory: RequestMemory
    scratch: memoryview
    pool: BufferPool
    cold_reads: ColdReads
    threads: Executor
    network: Network
    invalid_requests: "InvalidRequests"


class InvalidRequests:
    """Logs requests that cannot be handled.

    A request beyond a limit is a warning, since its client does not learn of the limit. A client
    that repeats it thousands of times leaves one warning a minute, which has their number.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ms: int | None = None
        self._unlogged = 0

    def log(self, peer: Peer, error: ProtocolError) -> None:
        """Log a request that ends its connection."""
        if not isinstance(error, MessageTooLargeError):
            _log.debug("%s sent %s", peer, error)
            return
        now_ms = self._clock.monotonic_ms()
        if self._next_ms is not None and now_ms < self._next_ms:
            self._unlogged += 1
            return
        before = f"; {self._unlogged} more requests before it" if self._unlogged else ""
        _log.warning("%s on %s sent %s%s", peer.address, peer.listener, error, before)
        self._next_ms, self._unlogged = now_ms + WARNING_EACH_MS, 0
