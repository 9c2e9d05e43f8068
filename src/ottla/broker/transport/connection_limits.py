"""The limits of a peer, and the reasons to close its connection. No peer is trusted."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from ottla.model.settings.broker_config import DEFAULT_CONFIG, BrokerConfig

IN_FLIGHT_MAX: Final = 32
"""The largest effect of `queued.max.requests`, for each connection."""


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
