"""Listeners' ports, taken from the network."""

from collections.abc import Sequence

from ottla.environment.network import ListeningSocket, Network
from ottla.model.settings.listeners import Listener


async def listening_sockets(listener: Listener, network: Network) -> Sequence[ListeningSocket]:
    """Listen on every address of the host; an OSError names the address and the reason."""
    try:
        return await network.listen(listener.host, listener.port)
    except OSError as error:
        raise cannot_listen(listener, error) from None


def cannot_listen(listener: Listener, error: OSError) -> OSError:
    """Return the error with the listener in its message."""
    return OSError(error.errno, f"cannot listen on {listener}: {error.strerror}")


def port_of(listening: ListeningSocket) -> int:
    """Return the port that a socket listens on."""
    port: int = listening.getsockname()[1]
    return port
