"""Requests that are on their way, and how long their answers may take."""

from ottla.clients.connection import Connection
from ottla.clients.errors import NoAnswerError
from ottla.clients.producer.accumulator import NEVER_MS
from ottla.clients.producer.shipment import Shipment


class Flight:
    """A request on its way, and when its answer is late."""

    __slots__ = ("broker_id", "connection", "failure", "late_at_ms", "shipments")

    def __init__(
        self, broker_id: int, shipments: list[Shipment], connection: Connection, late_at_ms: int
    ) -> None:
        self.broker_id = broker_id
        self.shipments = shipments
        self.connection = connection
        self.late_at_ms = late_at_ms
        self.failure: Exception | None = None


class Flights:
    """All of them, in the order of their times."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._flights: dict[Flight, None] = {}

    def begin(
        self, broker_id: int, shipments: list[Shipment], connection: Connection, now_ms: int
    ) -> Flight:
        """Watch a request that is sent now."""
        flight = Flight(broker_id, shipments, connection, now_ms + self._timeout_ms)
        self._flights[flight] = None
        return flight

    def end(self, flight: Flight) -> None:
        """Watch a request no longer."""
        self._flights.pop(flight, None)

    def end_late(self, now_ms: int) -> int:
        """Close connections that owe an answer for too long: what they would say is of no use.

        Returns when the next answer will be late.
        """
        for flight in list(self._flights):
            if flight.late_at_ms > now_ms:
                return flight.late_at_ms
            if flight in self._flights:
                flight.failure = NoAnswerError(
                    f"{flight.connection.address} did not answer Produce within "
                    f"{self._timeout_ms / 1000:g} s"
                )
                flight.connection.close()
        return NEVER_MS
