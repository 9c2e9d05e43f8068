"""The limits of a peer. No peer is trusted, and every limit has a name."""

import sys
from dataclasses import dataclass
from typing import Final

IN_FLIGHT_MAX: Final = 32
"""The largest effect of `queued.max.requests`, for each connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of a server and of each of its connections; times are checked once a second."""

    frame_bytes_max: int = 104_857_600
    """Kafka's `socket.request.max.bytes`. A longer request closes the connection, unread."""

    in_flight_requests_max: int = IN_FLIGHT_MAX
    """In-flight requests of one connection, including completed ones that wait for their turn to
    respond; at the limit the next request is not dispatched."""

    output_bytes_max: int = 1 << 20
    """Unsent response bytes of one connection; at the limit its next request is not dispatched. The
    responses to requests in flight may exceed it."""

    send_buffer_bytes: int = 100 << 10
    """Kafka's `socket.send.buffer.bytes`: the kernel's send buffer, besides output_bytes_max;
    -1 is the kernel's default, which may be megabytes. A peer on this machine reads smaller buffers
    faster, as the data is still in the processor's cache."""

    receive_buffer_bytes: int = 1 << 20
    """Kafka's `socket.receive.buffer.bytes`: the kernel's receive buffer of a connection. -1 is the
    kernel's default, which may be tens of megabytes per connection. A whole Produce of librdkafka
    fits,
    and is received by two calls; with Kafka's 100 KB it takes eight."""

    request_bytes_max: int = 1 << 28
    """Kafka's `queued.max.request.bytes`: requests being received or handled, on all connections
    together; at the limit, connections that hold request memory stop reading."""

    connections_max: int = 10_000
    """Kafka's `max.connections`, on all listeners together; further ones are closed at once."""

    connections_at_once_max: int = sys.maxsize
    """Connections for which the process has descriptors; those beyond it wait to be accepted."""

    connections_per_address_max: int = 5_000
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

    idle_ms_max: int = 600_000
    """Kafka's `connections.max.idle.ms`: how long there may be nothing to do."""

    farewell_ms_max: int = 10_000
    """How long the requests in flight may still take when a connection ends, by the peer's wish, by
    its fault, or because the server stops; then they are cancelled."""
