"""Where clients reach a node that is running."""

from ottla.model.address import Address


class Endpoints:
    """The advertised end of each listener; filled in once the ports are bound."""

    def __init__(self) -> None:
        self._by_listener: dict[str, Address] = {}

    def advertise(self, listener: str, host: str, port: int) -> None:
        """Set the advertised address for clients of this listener."""
        self._by_listener[listener] = Address(host, port)

    def advertised(self, listener: str) -> Address:
        """Return where clients of this listener should come."""
        return self._by_listener[listener]
