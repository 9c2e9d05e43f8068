"""State that the connections of a server share."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from ottla.broker.dispatch import Peer
from ottla.broker.transport.connection_limits import ConnectionLimits, RequestMemory
from ottla.broker.transport.response_writer import ColdReads, Piece
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.network import Network
from ottla.rpc.buffer_pool import BufferPool
from ottla.wire.protocol_error import MessageTooLargeError, ProtocolError

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


def log_invalid(peer: Peer, error: ProtocolError) -> None:
    """Log a failed request; at a higher level if it has exceeded a limit."""
    is_too_large = isinstance(error, MessageTooLargeError)
    _log.log(logging.WARNING if is_too_large else logging.DEBUG, "%s sent %s", peer, error)
