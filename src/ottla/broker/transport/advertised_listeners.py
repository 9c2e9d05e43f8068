"""The advertised address of this broker, for each listener that clients connect to."""

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
        """Set the advertised address for clients of this listener."""
        self._by_listener[listener] = Endpoint(host, port)

    def advertised(self, listener: str) -> Endpoint:
        """Return where clients of this listener should come."""
        return self._by_listener[listener]
