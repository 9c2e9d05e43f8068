"""Requests in flight, and the deadlines of their responses."""

from collections import defaultdict

from ottla.clients.errors import NoResponseError
from ottla.clients.producer.batching.accumulator import NEVER_MS
from ottla.clients.producer.batching.ready_batch import ReadyBatch
from ottla.rpc.connection import Connection


class InFlightRequest:
    """A request in flight, and the deadline of its response."""

    __slots__ = ("broker_id", "connection", "failure", "late_at_ms", "ready_batches")

    def __init__(
        self,
        broker_id: int,
        ready_batches: list[ReadyBatch],
        connection: Connection,
        late_at_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.ready_batches = ready_batches
        self.connection = connection
        self.late_at_ms = late_at_ms
        self.failure: Exception | None = None


class InFlightRequests:
    """All requests in flight by broker, in the order of their deadlines."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._by_broker: defaultdict[int, dict[InFlightRequest, None]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, list(self._by_broker.values())))

    def to(self, broker_id: int) -> dict[InFlightRequest, None]:
        """Return the requests in flight to a broker, always as the same dict."""
        return self._by_broker[broker_id]

    def make(
        self, broker_id: int, ready_batches: list[ReadyBatch], connection: Connection, now_ms: int
    ) -> InFlightRequest:
        """Return a request with a deadline, not registered yet."""
        return InFlightRequest(broker_id, ready_batches, connection, now_ms + self._timeout_ms)

    def begin(self, flight: InFlightRequest) -> None:
        """Register a request."""
        self.to(flight.broker_id)[flight] = None

    def end(self, flight: InFlightRequest) -> bool:
        """Remove a request; return whether it was registered."""
        flights = self.to(flight.broker_id)
        if flight not in flights:
            return False
        del flights[flight]
        return True

    def end_late(self, now_ms: int) -> int:
        """Close connections with an overdue response: a late response would be of no use.

        Returns when the next response will be overdue.
        """
        next_ms = NEVER_MS
        for flights in list(self._by_broker.values()):
            for flight in list(flights):
                if flight.late_at_ms > now_ms:
                    next_ms = min(next_ms, flight.late_at_ms)
                    break
                if flight in flights:
                    self._end_late(flight)
        return next_ms

    def _end_late(self, flight: InFlightRequest) -> None:
        flight.failure = NoResponseError(
            f"{flight.connection.address} did not answer Produce within "
            f"{self._timeout_ms / 1000:g} s"
        )
        flight.connection.close()
