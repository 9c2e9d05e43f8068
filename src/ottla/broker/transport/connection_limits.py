"""The limits of peers, the memory of their requests, and the reasons to close a connection."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from ottla.model.settings.broker_config import DEFAULT_CONFIG, BrokerConfig

IN_FLIGHT_MAX: Final = 32
"""The largest effect of `queued.max.requests`, for each connection."""

Wake = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of a server and of each of its connections; times are checked once a second."""

    frame_bytes_max: int = DEFAULT_CONFIG.socket_request_max_bytes
    """Kafka's `socket.request.max.bytes`. A longer request closes the connection, unread."""

    in_flight_requests_max: int = IN_FLIGHT_MAX
    """In-flight requests of one connection, including completed ones that wait for their turn to
    respond; at the limit the next request is not dispatched."""

    output_bytes_max: int = 1 << 20
    """Unsent response bytes of one connection; at the limit its next request is not dispatched. The
    responses to requests in flight may exceed it."""

    send_buffer_bytes: int = DEFAULT_CONFIG.socket_send_buffer_bytes
    """Kafka's `socket.send.buffer.bytes`: the kernel's send buffer, besides output_bytes_max;
    -1 is the kernel's default, which may be megabytes. A peer on this machine reads smaller buffers
    faster, as the data is still in the processor's cache."""

    receive_buffer_bytes: int = DEFAULT_CONFIG.socket_receive_buffer_bytes
    """Kafka's `socket.receive.buffer.bytes`: the kernel's receive buffer of a connection. -1 is the
    kernel's default, which may be tens of megabytes per connection. A whole Produce of librdkafka
    fits, and is received by two calls; with Kafka's 100 KB it takes eight."""

    request_bytes_max: int = DEFAULT_CONFIG.queued_max_request_bytes
    """Kafka's `queued.max.request.bytes`: requests being received or handled, on all connections
    together; at the limit, connections that hold request memory stop reading."""

    connections_max: int = DEFAULT_CONFIG.max_connections
    """Kafka's `max.connections`, on all listeners together; further ones are closed at once."""

    connections_at_once_max: int = sys.maxsize
    """Connections for which the process has descriptors; those beyond it wait to be accepted."""

    connections_per_address_max: int = DEFAULT_CONFIG.max_connections_per_ip
    """Kafka's `max.connections.per.ip`; further ones from the address are closed at once."""

    frame_ms_max: int = 30_000
    """How long a request may take to arrive, once its first byte is here."""

    stalled_ms_max: int = 60_000
    """How long a peer may leave its responses unread."""

    answers_bytes_max: int = 64 << 20
    """Unsent response bytes in memory, on all connections together. Above it, a peer that leaves
    much unread has less time."""

    crowded_stalled_ms_max: int = 1_000
    """How long a peer may leave responses unread while all unread responses exceed their limit."""

    idle_ms_max: int = DEFAULT_CONFIG.connections_max_idle_ms
    """Kafka's `connections.max.idle.ms`: how long there may be nothing to do."""

    farewell_ms_max: int = 10_000
    """How long the requests in flight may still take when a connection ends, by the peer's wish, by
    its fault, or because the server stops; then they are cancelled."""

    @classmethod
    def from_config(cls, config: BrokerConfig, connections_at_once_max: int = sys.maxsize) -> Self:
        """Return the limits of a configuration; -1 is no limit."""
        return cls(
            connections_at_once_max=connections_at_once_max,
            frame_bytes_max=config.socket_request_max_bytes,
            connections_max=config.max_connections,
            connections_per_address_max=config.max_connections_per_ip,
            idle_ms_max=_or_no_limit(config.connections_max_idle_ms),
            request_bytes_max=_or_no_limit(config.queued_max_request_bytes),
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            in_flight_requests_max=min(config.queued_max_requests, IN_FLIGHT_MAX),
        )


def _or_no_limit(limit: int) -> int:
    return sys.maxsize if limit < 0 else limit


class CloseReason(StrEnum):
    """Why a connection ended, or was not let in."""

    PEER_CLOSED = "peer-closed"
    INVALID_FRAME = "invalid-frame"
    """A length out of bounds, or a request that the protocol does not know."""
    REQUEST_FAILED = "request-failed"
    """A bug in the request's handling; it is logged."""
    SEND_FAILED = "send-failed"
    """The response could not be read from the disk; the log has the reason."""
    SLOW_FRAME = "slow-frame"
    STALLED = "stalled"
    IDLE = "idle"
    STOPPED = "stopped"
    TOO_MANY_CONNECTIONS = "too-many-connections"
    TOO_MANY_FROM_ADDRESS = "too-many-from-address"


class RequestMemory:
    """Limits the bytes of requests that arrive or are in progress, over all connections.

    At the limit, connections that already hold request memory stop reading and wait; the others may
    read a little, so that small requests pass while large ones wait. Waiting connections might fill
    the memory, each with a part of a request. So unless requests in progress hold half of it, and
    will release it, one waiting connection gets priority, and reads on until its request is
    complete.
    """

    __slots__ = ("_bytes_max", "_favoured", "_waiting", "answering_bytes", "arriving_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._favoured: Wake | None = None
        # The waiting connections in FIFO order, and whether each has a part of a request.
        self._waiting: dict[Wake, bool] = {}
        self.arriving_bytes = 0
        self.answering_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether connections that hold request memory should stop reading."""
        return self.arriving_bytes + self.answering_bytes >= self._bytes_max

    def arriving(self, change_bytes: int) -> None:
        """Count received bytes and their room; negative when they have become a request."""
        self.arriving_bytes += change_bytes
        assert self.arriving_bytes >= 0, f"{change_bytes} bytes were never here"
        if self._waiting:
            self._wake()

    def answering(self, change_bytes: int) -> None:
        """Count a request in progress; a negative size when it completes."""
        self.answering_bytes += change_bytes
        assert self.answering_bytes >= 0, f"{change_bytes} bytes were never here"
        if self._waiting:
            self._wake()

    def wait(self, wake: Wake, *, has_part: bool) -> None:
        """Call back exactly once, when there is room again.

        A waiter with a part of a request is also called when it may be favoured.
        """
        self._waiting[wake] = has_part

    def favours(self, waiter: Wake) -> bool:
        """Return whether this waiter may read on, although the memory is full."""
        if self._can_favour:
            self._favoured = waiter
        return self._favoured == waiter

    def forget(self, waiter: Wake) -> None:
        """Remove a waiter; if it had priority, the next waiter gets it."""
        self._waiting.pop(waiter, None)
        if self._favoured == waiter:
            self._favoured = None
            if self._waiting:
                self._wake()

    @property
    def _can_favour(self) -> bool:
        return self._favoured is None and self.answering_bytes < self._bytes_max // 2

    def _wake(self) -> None:
        woken: list[Wake] = []
        if not self.is_full:
            woken = list(self._waiting)
        elif self._can_favour:
            woken = [wake for wake, has_part in self._waiting.items() if has_part][:1]
        for wake in woken:
            del self._waiting[wake]
        for wake in woken:
            wake()
