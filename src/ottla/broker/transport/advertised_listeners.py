"""Where clients reach this broker: as told by the listener that they came in through."""

from typing import NamedTuple


class Endpoint(NamedTuple):
    """A host and a port, as a client should connect to them."""

    host: str
    port: int


class Endpoints:
    """The advertised end of each listener; filled in once the ports are bound."""

    def __init__(self) -> None:
        self._by_listener: dict[str, Endpoint] = {}

    def advertise(self, listener: str, host: str, port: int) -> None:
        """Tell clients of this listener to come here."""
        self._by_listener[listener] = Endpoint(host, port)

    def advertised(self, listener: str) -> Endpoint:
        """Return where clients of this listener should come."""
        return self._by_listener[listener]
