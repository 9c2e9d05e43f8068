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
    """Requests of one connection that are being answered, or whose turn to be answered has not
    come; then its next request is not begun."""

    output_bytes_max: int = 1 << 20
    """Bytes of answers that wait to be sent on one connection; then its next request is not begun.
    The answers to requests already begun may go beyond it."""

    send_buffer_bytes: int = 100 << 10
    """Kafka's `socket.send.buffer.bytes`: what the kernel keeps of them besides; -1 leaves that to
    the kernel, which would keep megabytes. A peer on this machine reads less faster: it is still in
    the processor's cache."""

    receive_buffer_bytes: int = 1 << 20
    """Kafka's `socket.receive.buffer.bytes`: what the kernel keeps of the requests of a connection
    before they are read. -1 leaves that to the kernel, which may keep tens of megabytes of each. A
    whole Produce of librdkafka has room, and is received by two calls; with the 100 KB that Kafka
    has it takes eight."""

    request_bytes_max: int = 1 << 28
    """Kafka's `queued.max.request.bytes`: requests that are arriving or being answered, on all
    connections together; then those that have a share in it are not read from."""

    connections_max: int = 10_000
    """Kafka's `max.connections`, on all listeners together; one more is closed at once."""

    connections_at_once_max: int = sys.maxsize
    """Connections for which the process has descriptors; those beyond it wait to be accepted."""

    connections_per_address_max: int = 5_000
    """Kafka's `max.connections.per.ip`; one more from there is closed at once."""

    frame_ms_max: int = 30_000
    """How long a request may take to arrive, once its first byte is here."""

    stalled_ms_max: int = 60_000
    """How long a peer may leave its answers unread."""

    answers_bytes_max: int = 64 << 20
    """Bytes in memory of answers that wait for peers to read, on all connections together. While
    there are more, a peer that leaves much unread has less time."""

    crowded_stalled_ms_max: int = 1_000
    """How long a peer may leave its answers unread while those of all take too much memory."""

    idle_ms_max: int = 600_000
    """Kafka's `connections.max.idle.ms`: how long there may be nothing to do."""

    farewell_ms_max: int = 10_000
    """How long the requests in flight may still take when a connection ends, by the peer's wish, by
    its fault, or because the server stops; then they are cancelled."""
