"""A network of byte streams: non-blocking sockets, watched by the event loop.

The owner of a socket registers it with `loop.add_reader` and `loop.add_writer`. A socket without
data to read, or without room to write, raises `BlockingIOError`; every other `OSError` means that
the stream has ended.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from ottla.environment.disk import Buffer


class StreamSocket(Protocol):
    """One end of a connection."""

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Receive into a buffer and return the number of bytes; 0 is the end of the stream."""
        ...

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Take some of the data, in order, and return how much: at least one byte."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, for sendfile; a simulated socket raises `OSError`."""
        ...

    def close(self) -> None:
        """End the connection in both directions; bytes that were sent still arrive."""
        ...


class ListeningSocket(Protocol):
    """A port that peers connect to."""

    def accept(self) -> tuple[Any, Any]:
        """Return the next connection, as a `StreamSocket`, and the peer's address, host first."""
        ...

    def getsockname(self) -> Any:
        """Return the address: host, port and further fields of the family."""
        ...

    def fileno(self) -> int:
        """Return the descriptor; a simulated socket raises `OSError`."""
        ...

    def close(self) -> None:
        """Listen no longer."""
        ...


class Network(Protocol):
    """Where streams begin."""

    async def listen(self, host: str, port: int) -> Sequence[ListeningSocket]:
        """Listen, on one port, on every address of a host; port 0 is any free one.

        An `OSError` says why that cannot be. An empty host is every address of this machine.
        """
        ...

    async def connect(self, host: str, port: int) -> StreamSocket:
        """Return a connection; `OSError` if it is refused or not answered."""
        ...

    def set_send_buffer(self, connected: StreamSocket, size_bytes: int) -> None:
        """Set the size of the send buffer, approximately."""
        ...

    def set_receive_buffer(self, listening: ListeningSocket, size_bytes: int) -> None:
        """Let about this many received bytes wait to be read, on each connection from now on."""
        ...

    def untaken_bytes(self, connected: StreamSocket) -> int:
        """Return how many of the bytes that were sent the peer's side has not taken yet."""
        ...
