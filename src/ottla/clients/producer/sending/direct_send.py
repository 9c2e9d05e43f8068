"""The direct path for a single batch: the caller's thread sends it.

Waking the sender's thread, and deciding there, takes longer than sending. After a successful
request with a single batch, its partition therefore gets a `DirectSend`. While no other request to
that broker is pending, the next batch goes straight from the caller's thread to the socket. To the
rest of the sender it is an ordinary request in flight. A thread that waits for the record also
receives the response; without such a thread, or after a timeout, the sender handles it.
"""

import sys
from collections.abc import Callable
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clients.producer.batching import _accumulator_python
from ottla.clients.producer.batching.accumulator import NEVER_MS, Accumulator, Batch, OpenBatches
from ottla.clients.producer.batching.ready_batch import ReadyBatch
from ottla.clients.producer.sending.in_flight_requests import InFlightRequest
from ottla.clients.producer.sending.produce_requests import NO_ANSWER, ProduceRequests
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.environment.clock import Clock
from ottla.rpc.connection import Connection, Pending
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import encode_response
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.records.compression.codecs import Compression

if TYPE_CHECKING:
    from ottla.clients.producer.sending.sender import Sender

    DirectSend: Any
else:
    try:
        from ottla.clients.producer.sending._direct_send import DirectSend
    except ImportError:
        DirectSend = None

OFFER_MS: Final = 1000
"""How long a partition keeps its direct send. After that one batch goes through the sender, which
checks for late responses, moved leaders, and unused topics and connections."""
FLEXIBLE_VERSION: Final = 9
"""Since this version the size of the records is a varint, as `DirectSend` writes it."""
TAIL_BYTES: Final = 3
"""The bytes after the records in such a request: three empty sets of tagged fields."""


class Route(NamedTuple):
    """The destination of a direct send: a connection, and the parts of a prepared request."""

    broker_id: int
    connection: Connection
    head: bytes
    """The request frame up to the size of the records."""
    tail: bytes
    response: bytes
    """The frame of a successful response, except for the numbers in it."""
    make_flight: Callable[[Batch], tuple[InFlightRequest, int, Pending]]
    """Makes an InFlightRequest, its correlation id, and its pending response."""
    until: float
    """The expiry time on the monotonic clock, in seconds."""


class DirectSends:
    """Gives direct sends to partitions and removes them, in the sender's thread unless noted."""

    def __init__(
        self,
        sender: "Sender",
        clock: Clock,
        settings: ProducerSettings,
        accumulator: Accumulator,
        calls: ProduceRequests,
        epoll: int,
    ) -> None:
        self._sender = sender
        self._epoll = epoll
        self._clock = clock
        self._accumulator = accumulator
        self._calls = calls
        self._is_open = (
            DirectSend is not None
            and Accumulator is not _accumulator_python.Accumulator
            and settings.compression_type is Compression.NONE
            and calls.acks != NO_ANSWER
        )
        self._offer_ms = min(OFFER_MS, settings.metadata_max_idle_ms // 2)
        self._lanes: list[OpenBatches] = []
        self._until_ms: int = NEVER_MS

    def offer(self, flight: InFlightRequest) -> None:
        """Give a direct send to the partition of this request, if it held a single batch."""
        lane: OpenBatches = flight.ready_batches[0].queue.lane
        identity = self._sender.identity
        if (
            not self._is_open
            or lane.direct_send is not None
            or len(flight.ready_batches) > 1
            or identity.produce_version_max is not None
            or not _may_be_shared(flight.connection)
        ):
            return
        request, version_max = self._calls.request(identity, flight.ready_batches)
        version = flight.connection.version_for(ProduceRequest, version_max)
        if version >= FLEXIBLE_VERSION:
            self._until_ms = min(self._until_ms, self._clock.monotonic_ms() + self._offer_ms)
            route = self._route(flight, request, version)
            lane.direct_send = DirectSend(self._sender, self._accumulator, lane, route, self._epoll)
            self._lanes.append(lane)

    def review(self, now_ms: int) -> int:
        """Remove expired direct sends, and return when the next expire."""
        if self._until_ms <= now_ms:
            for lane in self._lanes:
                lane.direct_send = None
            self._lanes.clear()
            self._until_ms = NEVER_MS
        return self._until_ms

    def _route(self, flight: InFlightRequest, request: ProduceRequest, version: int) -> Route:
        request.topic_data[0].partition_data[0].records = b""
        frame = b"".join(flight.connection.encoded(request, version))
        return Route(
            flight.broker_id,
            flight.connection,
            head=frame[: -TAIL_BYTES - 1],  # before the tail is one byte, the size 0 of the records
            tail=frame[-TAIL_BYTES:],
            response=_usual_response(request, version),
            make_flight=partial(self._make_flight, flight, request, version),
            until=self._until_ms / 1000,
        )

    def _make_flight(
        self, like: InFlightRequest, request: ProduceRequest, version: int, batch: Batch
    ) -> tuple[InFlightRequest, int, Pending]:
        """Make a request like the given one; `DirectSend` fills in the rest when it sends."""
        ready_batch = ReadyBatch(like.ready_batches[0].queue, batch, 0, bytearray())
        ready_batch.attempts = 1
        ready_batch.is_in_doubt = True
        flight = self._sender.flights.make(
            like.broker_id, [ready_batch], like.connection, self._clock.monotonic_ms()
        )
        take = self._calls.taking(request, partial(self._sender.land, flight))
        return flight, *like.connection.expect(ProduceRequest, version, take)


def _usual_response(request: ProduceRequest, version: int) -> bytes:
    topic = request.topic_data[0]
    row = PartitionProduceResponse(index=topic.partition_data[0].index)
    rows = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[row])
    return b"".join(encode_response(ApiKey.PRODUCE, version, 0, ProduceResponse(responses=[rows])))


def _may_be_shared(connection: Connection) -> bool:
    """Whether another thread may use the connection: it needs a plain socket and the GIL."""
    stream = connection.stream
    return stream is not None and type(stream.socket) is socket and _is_gil_enabled()


def _is_gil_enabled() -> bool:
    """Whether the GIL is enabled, on which `DirectSend` relies."""
    tell = getattr(sys, "_is_gil_enabled", None)
    return tell is None or bool(tell())
