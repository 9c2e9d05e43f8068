"""Reserved ports, which no other process gets, even while no server listens on them."""

import socket
from typing import Final

from ottla.testing.child_process import ClusterError

HOST: Final = "127.0.0.1"


class ReservedPort:
    """A port on loopback that the kernel assigns to no other process, until it is released.

    A socket is bound to it and never listens. A server may listen on this port, with SO_REUSEADDR;
    a process that binds or connects from a free port gets a different one.
    """

    def __init__(self, number: int = 0) -> None:
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind((HOST, number))
        except OverflowError:
            self._held.close()
            raise ClusterError(f"there is no port {number}: 65535 is the last") from None
        except OSError as error:
            self._held.close()
            raise ClusterError(f"port {number} cannot be had: {error.strerror}") from None
        self.number = int(self._held.getsockname()[1])

    def release(self) -> None:
        """Release the port."""
        self._held.close()
